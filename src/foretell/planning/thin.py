"""A thin model: the real one's layers, attention and vocabulary with hardly any width, run by the real engine.

Its steps cost what a step costs beside the linear layers. Its weights are random, so its drafts are hardly ever
accepted, and every step has the same shape.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from foretell.checkpoints.quiet import quiet_transformers
from foretell.config import HeadsConfig, SamplingParams
from foretell.decoding.core import Limits
from foretell.decoding.engine import Engine
from foretell.decoding.scheduler import Work
from foretell.decoding.step import StepTimes
from foretell.errors import UsageError
from foretell.models.build import build_heads
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import PackedLinear
from foretell.models.trunk import Trunk
from foretell.planning.model import HeadModel, Linear, PlanModel

LENGTHS = (16, 64, 128, 256)
"""Tokens of the prompts that are read, as far as those of all rows fit into one step."""
_WIDTH = 64
_STEPS = 8
_WARM_UP_STEPS = 2
_READ_TOKENS = 3
"""Written behind such a prompt: one with it, then a step that drafts one."""


def thin_model(model: PlanModel, kind: torch.dtype, max_depth: int) -> MTPModel:
    """Packed, in ``kind``, with heads of the model's kind."""
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
        heads = build_heads(trunk, _heads_config(model.heads, max_depth), draft_ids).to(kind)
    thin = MTPModel(trunk, heads).eval()
    thin.pack()
    return thin


def thin_linears(thin: MTPModel) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
    """Linear layers by shape of its trunk and of one module of its heads; the output matrix that it projects with is
    the last of each.
    """
    heads = thin.heads
    assert heads is not None
    rows = heads.config.draft_vocab_size or thin.trunk.vocab_size
    return _shapes(thin.trunk.model), (*_shapes(heads.modules_by_depth[0]), Linear(rows, thin.trunk.hidden_size, 1))


def _heads_config(heads: HeadModel, max_depth: int) -> HeadsConfig:
    """Of heads of the same kind, ``max_depth`` deep."""
    num_modules = max_depth if heads.distinct else 1
    if heads.config is not None:
        return replace(heads.config, num_depths=max_depth, num_modules=num_modules)
    return HeadsConfig(
        num_depths=max_depth,
        unrolled=not heads.distinct,
        num_modules=num_modules,
        draft_vocab_size=heads.draft_vocab or 0,
    )


class ThinRows:
    """Steps of ``batch`` rows with ``context`` tokens behind each, to ``max_depth``; every ``sample`` adds some.

    Seconds: ``passes`` by depth, without drafting; ``drafts`` by depth, of drafting; ``reads`` by the prompts' length,
    of a step that reads a prompt for every row; ``catch_ups``, of drafting one token a row behind it.
    """

    def __init__(self, thin: MTPModel, batch: int, context: int, max_depth: int) -> None:
        self.batch = batch
        self.passes: dict[int, list[float]] = {}
        self.drafts: dict[int, list[float]] = {}
        self.reads: dict[int, list[float]] = {}
        self.catch_ups: dict[int, list[float]] = {}
        self._thin, self._context, self._max_depth = thin, context, max_depth
        self._engine = Engine(thin, max_batch=batch, reuse_prefixes=False)
        room = min(Limits().max_step_tokens // batch, thin.trunk.max_positions - _READ_TOKENS)
        self._lengths = [length for length in LENGTHS if length <= room]

    def sample(self) -> None:
        """``_STEPS`` steps of every depth, and one of every length."""
        for depth in range(self._max_depth + 1):
            # While prompts are read, a few a step, the first rows write already; none may end before all have begun.
            num_reading = -(-self.batch * self._context // Limits().max_step_tokens)
            num_tokens = (num_reading + _STEPS + _WARM_UP_STEPS) * (1 + depth) + 1
            kept = [
                times
                for works, times in self._run(self._context, depth, num_tokens)
                if all(work.num_read == 1 and len(work.draft) == depth for work in works)
            ][_WARM_UP_STEPS : _WARM_UP_STEPS + _STEPS]
            if not kept:
                raise UsageError(
                    f"--measure: {self.batch} rows of {self._context} tokens never decode all at once here; give a "
                    "smaller --batch or --context"
                )
            self.passes.setdefault(depth, []).extend(times.verify_s + times.other_s for times in kept)
            if depth:
                self.drafts.setdefault(depth, []).extend(times.draft_s for times in kept)
        for length in self._lengths:
            (_, read), (_, behind), *_ = self._run(length, 1, _READ_TOKENS)
            self.reads.setdefault(length, []).append(read.verify_s + read.other_s)
            self.catch_ups.setdefault(length, []).append(behind.draft_s)

    def _run(self, length: int, depth: int, num_tokens: int) -> list[tuple[list[Work], StepTimes]]:
        """Steps in which every row took part: its prompt's last token is read, or it decodes."""
        seen: list[tuple[list[Work], StepTimes]] = []

        def on_step(works: Items[Work], times: StepTimes) -> None:
            if len(works) == self.batch and all(work.is_judged for work in works):
                seen.append((list(works), times))

        stop = self._engine.watch(on_step)
        vocab = self._thin.trunk.vocab_size
        prompts = [[(7 * row + place) % vocab for place in range(length)] for row in range(self.batch)]
        try:
            self._engine.generate(prompts, SamplingParams(max_tokens=num_tokens), depth)
        finally:
            stop()
        return seen


def _shapes(module: nn.Module) -> tuple[Linear, ...]:
    """Without a module's own output matrix."""
    shapes = Counter(
        tuple(part.weight.shape)
        for name, part in module.named_modules()
        if isinstance(part, PackedLinear | nn.Linear) and name != "output"
    )
    return tuple(Linear(int(num_out), int(num_in), count) for (num_out, num_in), count in shapes.items())
