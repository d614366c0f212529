"""EngineCore: scheduler, caches, drafter and step of one engine, put together once; ``advance`` runs one step."""

from __future__ import annotations

import torch

from foretell.decoding.blocks import BLOCK_SIZE, FULL, BlockPool
from foretell.decoding.cache import KVCache
from foretell.decoding.drafter import Shape
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.memory import block_num_bytes, free_num_bytes
from foretell.decoding.ranks import from_first, share_shapes
from foretell.decoding.scheduler import Scheduler, Work
from foretell.decoding.sequence import Sequence
from foretell.decoding.step import DecodeStep, StepTimes
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import smallest_pass

_DRAFT_ROOM = 128
"""Entries behind a row's longest text that its drafts may need."""


class EngineCore:
    """One engine's rows and memory. ``prefill_times`` add up steps that read prompts, ``decode_times`` all others.

    ``memory_budget``: bytes of keys and values, None for half of what is free; never more than ``max_batch`` windows.
    """

    def __init__(
        self,
        model: MTPModel,
        max_batch: int,
        drafter: DrafterConfig | None,
        memory_budget: int | None,
        max_step_tokens: int,
        reuses_prefixes: bool,
    ) -> None:
        trunk = model.trunk
        self.model = model
        self.drafter_config = drafter
        self.prefill_times = StepTimes()
        self.decode_times = StepTimes()
        width = smallest_pass(trunk.output_head) if max_batch == 1 else 1
        budget = free_num_bytes(trunk.device) if memory_budget is None else memory_budget
        [[budget]] = from_first(trunk.tp_group, [[budget]])
        self.pools = _pools(model, max_batch, drafter, budget, max_step_tokens)
        is_full = set(trunk.kinds) == {FULL}  # what sliding layers gave back cannot be shared
        self.scheduler = Scheduler(
            self.pools, max_batch, max_step_tokens, trunk.window, reuses_prefixes and is_full, width
        )
        self.step = DecodeStep(trunk, KVCache(trunk.kinds, self.pools, trunk.window), width)

    def add(self, row: Sequence) -> None:
        """Queue a row. Raises UsageError where its text could outgrow the memory there is."""
        room = self.pools[FULL].num_blocks * BLOCK_SIZE - _DRAFT_ROOM
        if row.max_length > room:
            raise UsageError(
                f"a prompt of {len(row.prompt_token_ids)} tokens with max_tokens {row.params.max_tokens} may come to "
                f"{row.max_length} tokens, and the memory budget holds {max(0, room)}; ask for fewer tokens or give the "
                "engine a larger memory_budget"
            )
        if row.depth and self.drafter_config is not None and self.step.drafter is None:
            drafter = self.drafter_config.build(self.model, self.pools)
            self.step.drafter = self.scheduler.drafter = drafter
        [[seed]] = from_first(self.model.trunk.tp_group, [[row.generator.initial_seed()]])
        row.generator.manual_seed(seed)
        self.scheduler.add(row)

    def abort(self, row: Sequence) -> None:
        """End a row now, with what it has; nothing happens where it has ended."""
        if row.finish_reason is None:
            row.finish_reason = "abort"
            self.scheduler.remove(row)
            if row.on_step:
                row.on_step(row)

    @property
    def is_idle(self) -> bool:
        """True where no row waits or runs."""
        return not self.scheduler.waiting and not self.scheduler.running

    @torch.inference_mode()
    def advance(self) -> list[Work]:
        """One step; returns the work that was done."""
        works = self.scheduler.plan(self._shapes)
        if not works:
            return works
        is_prefill = any(work.row.num_pending > 1 or not work.row.token_ids for work in works)
        times = self.step(works)
        (self.prefill_times if is_prefill else self.decode_times).add(times)
        for work in works:
            self.scheduler.settle(work)
            if work.is_judged and work.row.on_step:
                work.row.on_step(work.row)
        return works

    def _shapes(self, rows: list[Sequence]) -> list[Shape]:
        """What is drafted for rows that decode: their own depth, as far as row and drafter go."""
        return share_shapes(self.model.trunk.tp_group, [self._shape(row) for row in rows])

    def _shape(self, row: Sequence) -> Shape:
        if self.step.drafter is None or not row.depth:
            return Shape.chain(0)
        assert isinstance(row.depth, int)
        wanted = Shape(row.depth, max(row.num_nodes, row.depth))
        return wanted.cut(min(row.depth_limit, self.step.drafter.depth_for(row)))


def _pools(
    model: MTPModel, max_batch: int, drafter: DrafterConfig | None, budget: int, max_step_tokens: int
) -> dict[str, BlockPool]:
    """A pool for each kind of attention layer, and for full attention in any case: drafters may need it."""
    trunk = model.trunk
    sizes = block_num_bytes(trunk)
    entries = min(trunk.max_positions, 2**20) + _DRAFT_ROOM
    wanted = {FULL: max_batch * -(-entries // BLOCK_SIZE)}
    if "sliding_attention" in sizes:
        seen = min(entries, (trunk.window or entries) + max_step_tokens + _DRAFT_ROOM)
        wanted["sliding_attention"] = max_batch * (-(-seen // BLOCK_SIZE) + 2)
        budget -= wanted["sliding_attention"] * sizes["sliding_attention"]
    per_block = sizes.get(FULL, 0) + (drafter.block_num_bytes(model) if drafter else 0)
    if per_block:
        wanted[FULL] = min(wanted[FULL], budget // per_block)
    if wanted[FULL] < 1:
        raise UsageError(
            f"a memory budget of {budget:,} bytes holds no block of {BLOCK_SIZE} tokens, which takes {per_block:,} bytes; "
            "give the engine a larger memory_budget or a smaller max_batch"
        )
    return {kind: BlockPool(num_blocks) for kind, num_blocks in wanted.items()}
