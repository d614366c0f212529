"""A thin model: the real one's layers, attention and vocabulary with hardly any width, run by the real engine.

Its steps cost what a step costs beside the linear layers. Its weights are random, so its drafts are hardly ever
accepted, and every step has the same shape.
"""

from __future__ import annotations

import copy
import statistics
from collections import Counter
from collections.abc import Sequence as Items
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from foretell.checkpoints.quiet import quiet_transformers
from foretell.config import HeadsConfig, SamplingParams
from foretell.decoding.engine import Engine
from foretell.decoding.scheduler import Work
from foretell.decoding.step import StepTimes
from foretell.models.build import build_heads
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import PackedLinear
from foretell.models.trunk import Trunk
from foretell.planning.measured import Points
from foretell.planning.model import Linear, PlanModel

_WIDTH = 64
_STEPS = 16
_WARM_UP_STEPS = 3


def thin_model(model: PlanModel, kind: torch.dtype, max_depth: int) -> MTPModel:
    """Packed, in ``kind``, with one module of heads for every depth."""
    config: Any = copy.deepcopy(model.config)
    if not getattr(config, "head_dim", None):
        config.head_dim = config.hidden_size // config.num_attention_heads
    config.hidden_size = config.intermediate_size = _WIDTH
    config.eos_token_id = None  # texts must not end
    with torch.random.fork_rng():
        torch.manual_seed(0)
        with quiet_transformers():
            trunk = Trunk(AutoModelForCausalLM.from_config(config, dtype=kind), name="thin")
        draft_ids = torch.arange(model.heads.draft_vocab) if model.heads.draft_vocab else None
        heads_config = HeadsConfig(
            num_depths=max_depth, unrolled=True, num_modules=1, draft_vocab_size=model.heads.draft_vocab or 0
        )
        heads = build_heads(trunk, heads_config, draft_ids).to(kind)
    thin = MTPModel(trunk, heads).eval()
    thin.pack()
    return thin


def thin_linears(thin: MTPModel) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
    """Linear layers by shape of its trunk and of its heads, each with the output matrix that it projects with."""
    trunk = _shapes(thin.trunk.model)
    assert thin.heads is not None
    rows = thin.heads.config.draft_vocab_size or thin.trunk.vocab_size
    head = _shapes(thin.heads)
    return trunk, (*head, Linear(rows, thin.trunk.hidden_size, 1))


def thin_steps(thin: MTPModel, batch: int, context: int, max_depth: int) -> tuple[Points, Points]:
    """(nodes a row, mean seconds without drafting) and (depth, mean seconds of drafting), ``batch`` rows at a time."""
    engine = Engine(thin, max_batch=batch, reuse_prefixes=False)
    passes: Points = []
    drafts: Points = []
    for depth in range(max_depth + 1):
        seen: list[StepTimes] = []

        def on_step(
            works: Items[Work], times: StepTimes, seen: list[StepTimes] = seen, nodes: int = batch * (1 + depth)
        ) -> None:
            full = len(works) == batch and len(works) + sum(len(work.draft) for work in works) == nodes
            if full and all(work.num_read == 1 for work in works):
                seen.append(times)

        stop = engine.watch(on_step)
        prompts = [[(7 * row + place) % thin.trunk.vocab_size for place in range(context)] for row in range(batch)]
        num_tokens = (_STEPS + _WARM_UP_STEPS) * (1 + depth) + 1
        engine.generate(prompts, SamplingParams(max_tokens=num_tokens), depth)
        stop()
        kept = seen[_WARM_UP_STEPS : _WARM_UP_STEPS + _STEPS]
        passes.append((1.0 + depth, statistics.fmean(times.verify_s + times.other_s for times in kept)))
        if depth:
            drafts.append((float(depth), statistics.fmean(times.draft_s for times in kept)))
    return passes, drafts


def _shapes(module: nn.Module) -> tuple[Linear, ...]:
    shapes = Counter(
        tuple(part.weight.shape) for part in module.modules() if isinstance(part, PackedLinear | nn.Linear)
    )
    return tuple(Linear(int(num_out), int(num_in), count) for (num_out, num_in), count in shapes.items())
