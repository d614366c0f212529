"""What a pass of n nodes costs in a hybrid trunk: Foretell's, which keeps the state after each, and transformers'.

    python experiments/hybrid_passes.py

Random weights, fp32, 24 layers of width 1024, one of attention after three recurrent ones; a text of 64 tokens before.
Passes of both alternate; the median of ten is printed. After a rejection transformers would have to run the accepted
tokens again.
"""

from __future__ import annotations

import copy
import statistics
import time
import warnings
from typing import Any

import torch
import transformers

import foretell
from foretell.decoding.ngram_drafter import NgramDrafter
from foretell.decoding.scheduler import Work
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.decoding.step import StepTimes
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft

NUM_NODES = (1, 2, 4, 8)
TEXT = list(range(100, 164))
NUM_PASSES = 10
_COMMON = {"vocab_size": 32_000, "hidden_size": 1024, "num_hidden_layers": 24, "max_position_embeddings": 1024}
SHAPES = {
    "Qwen3.5": transformers.Qwen3_5TextConfig(
        **_COMMON,
        intermediate_size=3072,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=16,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
    ),
    "Bamba": transformers.BambaConfig(
        **_COMMON,
        intermediate_size=2048,
        num_attention_heads=8,
        num_key_value_heads=2,
        attn_layer_indices=list(range(3, 24, 4)),
        mamba_n_heads=32,
        mamba_d_head=64,
        mamba_d_state=128,
    ),
}


class AlwaysSo(NgramDrafter):
    """Drafts a chain of the length it is asked for, wrong as a rule."""

    def depth_for(self, row: Sequence) -> int:
        """As deep as is wanted."""
        return NUM_NODES[-1]

    def draft(self, rows: list[Sequence], shapes: list[Shape]) -> list[Draft]:
        """The same token again and again."""
        return [Draft.chain([7] * shape.depth) for shape in shapes]


def own_pass(model: MTPModel, num_nodes: int) -> list[float]:
    """Seconds of passes over a root and ``num_nodes`` - 1 drafted tokens, of which none is kept."""
    engine = foretell.Engine(model, drafter="ngram")
    seconds: list[float] = []

    def on_step(works: list[Work], times: StepTimes) -> None:
        if works[0].num_read == 1 and len(works[0].draft) == num_nodes - 1:
            seconds.append(times.verify_s + times.other_s)

    core = engine._core
    core.watchers.append(on_step)  # type: ignore[arg-type]
    core.step.drafter = core.scheduler.drafter = core.depths.drafter = AlwaysSo(1, 1)
    params = foretell.SamplingParams(max_tokens=NUM_NODES[-1] + 6, ignore_eos=True)
    engine.generate([TEXT], params, depth=num_nodes - 1)
    return seconds[1:]


def their_pass(model: Any, cache: Any, num_nodes: int) -> float:
    """Seconds of transformers' pass over so many tokens behind the text."""
    own = copy.deepcopy(cache)
    input_ids = torch.tensor([[5] * num_nodes])
    start = time.perf_counter()
    model(input_ids=input_ids, past_key_values=own, use_cache=True, logits_to_keep=num_nodes)
    return time.perf_counter() - start


@torch.inference_mode()
def main() -> None:
    """Measure and print a table."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    print("ms a pass    " + "".join(f"{f'n = {n}':>16}" for n in NUM_NODES))
    for name, config in SHAPES.items():
        torch.manual_seed(0)
        reference = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        cache = reference(input_ids=torch.tensor([TEXT]), use_cache=True).past_key_values
        model = MTPModel(Trunk(copy.deepcopy(reference)))
        ours: dict[int, list[float]] = {n: [] for n in NUM_NODES}
        theirs: dict[int, list[float]] = {n: [] for n in NUM_NODES}
        while len(ours[NUM_NODES[-1]]) < NUM_PASSES:
            for n in NUM_NODES:
                found = own_pass(model, n)[:5]
                ours[n] += found
                theirs[n] += [their_pass(reference, cache, n) for _ in found]
        size = sum(p.numel() for p in reference.parameters()) / 1e6
        for label, found_by_n in (("Foretell", ours), ("transformers", theirs)):
            cells = [_cell(found_by_n[n][-NUM_PASSES:]) for n in NUM_NODES]
            print(f"{label:13}" + "".join(f"{cell:>16}" for cell in cells) + f"   {name} shape, {size:.0f} M")


def _cell(seconds: list[float]) -> str:
    low, *_, high = statistics.quantiles(seconds, n=10)
    return f"{1e3 * statistics.median(seconds):.0f} ({1e3 * low:.0f}-{1e3 * high:.0f})"


if __name__ == "__main__":
    main()
