"""EngineCore: scheduler, caches, drafter and step of one engine, put together once; ``advance`` runs one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from foretell.decoding.blocks import BLOCK_SIZE, FULL, BlockPool
from foretell.decoding.cache import KVCache
from foretell.decoding.depths import DepthChooser
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.memory import block_num_bytes, free_num_bytes
from foretell.decoding.ranks import from_first
from foretell.decoding.recurrent import RecurrentStates
from foretell.decoding.scheduler import Scheduler, Work
from foretell.decoding.sequence import Sequence
from foretell.decoding.step import DecodeStep, StepTimes
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import smallest_pass
from foretell.models.trunk import Trunk

OnStep = Callable[[Items[Work], StepTimes], None]
"""Called after a step with its work and its seconds, when tokens are taken and the policy has learnt."""
EXACT_WIDTH = 8
"""Nodes that every pass of an exact engine has at least, so that drafts of up to seven change no shape."""
_DRAFT_ROOM = 128
"""Entries behind a row's longest text that its drafts may need."""


@dataclass(frozen=True)
class Limits:
    """What an engine may hold and do at a time.

    ``memory_budget``: bytes of keys and values, None for half of what is free; never more than ``max_batch`` windows.
    """

    max_batch: int = 1
    max_step_tokens: int = 512
    memory_budget: int | None = None
    reuse_prefixes: bool = True
    exact: bool = False


class EngineCore:
    """One engine's rows and memory. ``prefill_times`` add up steps that read prompts, ``decode_times`` all others."""

    def __init__(self, model: MTPModel, limits: Limits, drafter: DrafterConfig | None) -> None:
        trunk = model.trunk
        self.model = model
        self.drafter_config = drafter
        self.prefill_times = StepTimes()
        self.decode_times = StepTimes()
        self.watchers: list[OnStep] = []
        self.depths = DepthChooser(trunk.tp_group, EXACT_WIDTH - 1) if limits.exact else DepthChooser(trunk.tp_group)
        width = smallest_pass(trunk.output_head) if limits.max_batch == 1 else 1
        width = EXACT_WIDTH if limits.exact else width
        self._block_sizes = block_num_bytes(trunk)
        if drafter is not None:
            self._block_sizes[FULL] = self._block_sizes.get(FULL, 0) + drafter.block_num_bytes(model)
        self.pools = _pools(trunk, limits, self._block_sizes)
        recurrent = RecurrentStates(trunk.model) if trunk.is_recurrent else None
        # Neither a state nor what sliding layers gave back can be shared; and shared entries come from other shapes.
        reuses_prefixes = (
            limits.reuse_prefixes and set(trunk.kinds) == {FULL} and recurrent is None and not limits.exact
        )
        self.scheduler = Scheduler(
            self.pools,
            limits.max_batch,
            limits.max_step_tokens,
            trunk.window,
            reuses_prefixes,
            width,
            recurrent.forget if recurrent else lambda row: None,
        )
        self.step = DecodeStep(trunk, KVCache(trunk.kinds, self.pools, trunk.window, recurrent), width, limits.exact)

    @property
    def room(self) -> int:
        """Tokens of one row that the memory holds."""
        return self.pools[FULL].num_blocks * BLOCK_SIZE - _DRAFT_ROOM

    @property
    def cache_num_bytes(self) -> int:
        """What keys and values may come to."""
        return sum(size * self.pools[kind].num_blocks for kind, size in self._block_sizes.items())

    def check_room(self, row: Sequence) -> None:
        """Raise UsageError where its text could outgrow the memory there is."""
        room = self.room
        if row.max_length > room:
            raise UsageError(
                f"a prompt of {len(row.prompt_token_ids)} tokens with max_tokens {row.params.max_tokens} may come to "
                f"{row.max_length} tokens, and the memory budget holds {max(0, room)} of them; ask for fewer tokens or "
                "give the engine a larger memory_budget"
            )

    def add(self, row: Sequence) -> None:
        """Queue a row."""
        if row.depth and self.drafter_config is not None and self.step.drafter is None:
            drafter = self.drafter_config.build(self.model, self.pools)
            self.step.drafter = self.scheduler.drafter = self.depths.drafter = drafter
        [[seed]] = from_first(self.model.trunk.tp_group, [[row.generator.initial_seed()]])
        row.generator.manual_seed(seed)
        self.scheduler.add(row)

    def abort(self, row: Sequence) -> None:
        """End a row now, with what it has; nothing happens where it has ended and been told so."""
        self.scheduler.remove(row)
        if row.finish_reason is None:
            row.finish_reason = "abort"
            self._tell_row(row)

    @property
    def is_idle(self) -> bool:
        """True where no row waits or runs."""
        return not self.scheduler.waiting and not self.scheduler.running

    @torch.inference_mode()
    def advance(self) -> list[Work]:
        """One step; returns the work that was done."""
        works = self.scheduler.plan(self.depths.choose)
        if not works:
            return works
        is_prefill = any(work.row.num_pending > 1 or not work.row.token_ids for work in works)
        try:
            times = self.step(works)
        except BaseException:  # no row's caches are known to be whole, not those of a drafter that was interrupted
            for work in works:
                self._wipe(work.row)
            self.scheduler.restart([work.row for work in works])
            self._tell(works)
            raise
        (self.prefill_times if is_prefill else self.decode_times).add(times)
        self.depths.observe(works, times)
        for work in works:
            if work.row.error is not None:
                self._wipe(work.row)
            self.scheduler.settle(work)
        try:
            for on_step in self.watchers:
                on_step(works, times)
        finally:
            self._tell(works)
        return works

    def _tell(self, works: Items[Work]) -> None:
        for work in works:
            if work.is_judged or work.row.finish_reason is not None:
                self._tell_row(work.row)

    def _tell_row(self, row: Sequence) -> None:
        if row.finish_reason is not None:
            self.depths.forget(row)
        if row.on_step:
            row.on_step(row)

    def _wipe(self, row: Sequence) -> None:
        """A row failed: its entries may be no numbers."""
        blocks = {(t.pool, block) for t in row.tables.values() for block in t.blocks if t.pool.wipe(block)}
        drafter = self.step.drafter
        for cache in [self.step.cache, *(drafter.caches if drafter is not None else ())]:
            cache.wipe(blocks)


def _pools(trunk: Trunk, limits: Limits, sizes: Mapping[str, int]) -> dict[str, BlockPool]:
    """A pool for each kind of attention layer, and for full attention in any case: drafters may need it.

    ``sizes``: bytes of a block by kind, the drafter's among those of full attention.
    """
    budget = free_num_bytes(trunk.device) if limits.memory_budget is None else limits.memory_budget
    [[budget]] = from_first(trunk.tp_group, [[budget]])
    entries = min(trunk.max_positions, 2**20) + _DRAFT_ROOM
    wanted = {FULL: limits.max_batch * -(-entries // BLOCK_SIZE)}
    sliding_bytes = 0
    if "sliding_attention" in sizes:
        seen = min(entries, (trunk.window or entries) + limits.max_step_tokens + _DRAFT_ROOM)
        wanted["sliding_attention"] = limits.max_batch * (-(-seen // BLOCK_SIZE) + 2)
        sliding_bytes = wanted["sliding_attention"] * sizes["sliding_attention"]
    per_block = sizes.get(FULL, 0)
    fewest = _DRAFT_ROOM // BLOCK_SIZE + 1
    if budget < sliding_bytes + fewest * per_block:
        sliding = f"{sliding_bytes:,} bytes for sliding windows and " if sliding_bytes else ""
        raise UsageError(
            f"a memory budget of {budget:,} bytes is too small: max_batch {limits.max_batch} needs {sliding}"
            f"{fewest * per_block:,} bytes for drafts and the first {BLOCK_SIZE} tokens, and {per_block:,} for every "
            f"{BLOCK_SIZE} more; give the engine a larger memory_budget or a smaller max_batch"
        )
    if per_block:
        wanted[FULL] = min(wanted[FULL], (budget - sliding_bytes) // per_block)
    return {kind: BlockPool(num_blocks) for kind, num_blocks in wanted.items()}
