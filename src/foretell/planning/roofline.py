"""Roofline: the seconds of a pass and of a draft that no kernel can beat, from bytes and FLOPs.

A pass is four groups of kernels that run one after the other: always-read weights, routed experts, attention, output
matrix. Each takes the longer of its bytes over the bandwidth and its FLOPs over the peak (Williams et al., 2009):

    seconds = sum over groups of max(bytes / bandwidth, FLOPs / peak) / (efficiency x devices) + overhead x layers

Activations, norms, softmax and sampling are left out; so is what devices tell each other. Without an efficiency below 1
and an overhead this is a bound, not an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foretell.planning.hardware import CACHE_BYTES, WEIGHT_BYTES, Hardware
from foretell.planning.layer_caches import LayerCache
from foretell.planning.model import PlanModel
from foretell.planning.stack import Stack


@dataclass(frozen=True)
class Work:
    """Bytes from memory and FLOPs of one group of kernels."""

    name: str
    num_bytes: float
    flops: float


@dataclass(frozen=True)
class Machine:
    """``devices`` of ``hardware`` that share every layer. ``efficiency``: share of the vendor's peaks that is reached;
    ``layer_overhead_s``: seconds that every layer takes beyond its kernels (launches, communication).
    """

    hardware: Hardware
    dtype: str = "bfloat16"
    devices: int = 1
    efficiency: float = 1.0
    layer_overhead_s: float = 0.0

    @property
    def bandwidth(self) -> float:
        """Bytes/s of all devices, at this efficiency."""
        return self.hardware.bandwidth * self.devices * self.efficiency

    @property
    def flops_per_s(self) -> float:
        """FLOP/s of all devices, at this efficiency."""
        return self.hardware.flops_per_s(self.dtype) * self.devices * self.efficiency

    @property
    def num_bytes(self) -> float:
        """Memory of all devices."""
        return self.hardware.num_bytes * self.devices

    @property
    def is_bound(self) -> bool:
        """True where nothing but the data sheet is in the figures."""
        return self.efficiency == 1.0 and self.layer_overhead_s == 0.0

    def seconds(self, works: Iterable[Work]) -> float:
        """Groups of kernels one after the other, overhead left out."""
        bandwidth, flops = self.bandwidth, self.flops_per_s
        return sum(max(work.num_bytes / bandwidth, work.flops / flops) for work in works)


@dataclass(frozen=True)
class Roofline:
    """Costs of one model on one machine, for rows with ``context`` tokens each."""

    model: PlanModel
    machine: Machine
    context: int

    def pass_works(self, batch: int, nodes: float) -> list[Work]:
        """One pass of the trunk over ``nodes`` tokens of each of ``batch`` rows."""
        return self._works(self.model.stack, self.model.caches, batch, nodes, nodes, nodes)

    def draft_works(self, batch: int, num_read: float, num_projected: float) -> list[Work]:
        """One pass of a module over ``num_read`` tokens a row, of which ``num_projected`` get logits."""
        heads = self.model.heads
        looked_up = num_read if heads.reads_tokens else 0.0
        return self._works(heads.stack, (heads.cache,), batch, num_read, num_projected, looked_up)

    def pass_s(self, batch: int, nodes: float) -> float:
        """Seconds of a pass over ``nodes`` tokens a row."""
        return self.machine.seconds(self.pass_works(batch, nodes)) + self._overhead_s(self.model.num_layers)

    def draft_s(self, batch: int, depth: int, num_true: float, width: float) -> float:
        """Seconds of drafting ``depth`` levels; see ``draft_levels``."""
        levels = self.draft_levels(batch, depth, num_true, width)
        return sum(self.machine.seconds(works) for works in levels) + self._overhead_s(depth)

    def draft_levels(self, batch: int, depth: int, num_true: float, width: float) -> list[list[Work]]:
        """Drafting, level by level. ``num_true`` tokens a row were added since the last step; the frontier of a tree
        has ``width`` of them (1 in a chain). What of it is read and projected: ``HeadModel``.
        """
        heads = self.model.heads
        return [
            self.draft_works(batch, heads.num_read(level, num_true, width), heads.num_projected(level, width))
            for level in range(1, depth + 1)
        ]

    def _works(
        self,
        stack: Stack,
        caches: Iterable[LayerCache],
        batch: int,
        nodes: float,
        num_projected: float,
        looked_up: float,
    ) -> list[Work]:
        """``looked_up``: tokens a row whose embedding is read."""
        weight, number = WEIGHT_BYTES[self.machine.dtype], CACHE_BYTES[self.machine.dtype]
        num_tokens = batch * nodes
        attention_bytes = attention_flops = 0.0
        for cache in caches:
            read = cache.row_numbers(self.context)
            # New keys and values; a recurrent layer keeps its state behind every node, so that it can go back.
            written = nodes * cache.num_layers * (cache.token_numbers + cache.state_numbers)
            attention_bytes += batch * (read + written) * number
            attention_flops += num_tokens * cache.flops(self.context)
        return [
            Work(
                "dense",
                weight * (stack.dense + batch * looked_up * self.model.hidden_size),
                2 * stack.dense * num_tokens,
            ),
            Work("experts", weight * stack.awake(num_tokens), stack.routed_flops(num_tokens)),
            Work("attention", attention_bytes, attention_flops),
            Work("output", weight * stack.output, 2 * stack.output * batch * num_projected),
        ]

    def _overhead_s(self, num_layers: int) -> float:
        return self.machine.layer_overhead_s * num_layers
