"""Single measurements: who was measured (``Setting``), on what and when (``Record``), and spreads of many of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from foretell.decoding.step import StepTimes
from foretell.planning.averages import percentile
from foretell.types import AcceptanceStats, Depth


@dataclass(frozen=True)
class Setting:
    """One way to decode. ``num_nodes``: of a drafted tree; 0 = a chain."""

    system: str
    depth: Depth
    num_nodes: int = 0

    @property
    def label(self) -> str:
        """``3``, ``auto``, or ``3, 8 nodes`` for a tree."""
        return f"{self.depth}, {self.num_nodes} nodes" if self.num_nodes else str(self.depth)

    @property
    def is_plain(self) -> bool:
        """True for our own depth 0, the base of every speed-up."""
        return self.system == "foretell" and self.depth == 0

    @property
    def is_fixed(self) -> bool:
        """True for our own chains and trees of a fixed depth, 0 included."""
        return self.system == "foretell" and self.depth != "auto"

    @property
    def is_fixed_chain(self) -> bool:
        """True for our own chains of a fixed depth, 0 included."""
        return self.is_fixed and not self.num_nodes

    @property
    def order(self) -> tuple[bool, str, bool, bool, int, int]:
        """Sort key: ours before others; chains, then trees, then auto."""
        depth = -1 if self.depth == "auto" else self.depth
        return self.system != "foretell", self.system, depth < 0, self.num_nodes > 0, self.num_nodes, depth


class Measured(Protocol):
    """What a prompt, or a group of them, gave when it was decoded once."""

    @property
    def texts(self) -> list[list[int]]:
        """Output token ids of every prompt."""

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Output tokens of all prompts together over the seconds they took; None where there is no time to speak of."""

    @property
    def request_tokens_per_s(self) -> list[float]:
        """The same for each prompt."""

    @property
    def times(self) -> StepTimes:
        """Parts of the steps in which all rows decoded; nothing for systems that do not say."""

    @property
    def prefill_s(self) -> float:
        """Seconds, among those measured, of steps that read prompts."""

    @property
    def num_passes(self) -> int:
        """Passes of the trunk that gave tokens, of every row for itself; 0 for systems that do not say."""

    @property
    def stats(self) -> AcceptanceStats:
        """Counts of all drafts."""

    @property
    def drafter_num_bytes(self) -> int:
        """Weights, keys and values that the drafter had come to hold."""


_Sample = TypeVar("_Sample", bound=Measured)


@dataclass(frozen=True)
class Record(Generic[_Sample]):
    """One sample with its place in the run. ``prompt``: index of the prompt, or of the group of prompts."""

    system: str
    depth: Depth
    prompt: int
    repeat: int
    domain: str
    sample: _Sample
    num_nodes: int = 0

    @property
    def setting(self) -> Setting:
        """Who was measured."""
        return Setting(self.system, self.depth, self.num_nodes)

    @property
    def is_plain(self) -> bool:
        """True for our own depth 0."""
        return self.setting.is_plain

    def as_dict(self) -> dict[str, Any]:
        """The raw measurement as plain values; seconds of parts are those of steps that read no prompt."""
        sample, times = self.sample, self.sample.times
        return {
            "system": self.system,
            "depth": self.depth,
            "num_nodes": self.num_nodes,
            "prompt": self.prompt,
            "repeat": self.repeat,
            "domain": self.domain,
            "num_tokens": [len(text) for text in sample.texts],
            "tokens_per_s": sample.decode_tokens_per_s,
            "request_tokens_per_s": sample.request_tokens_per_s,
            "num_passes": sample.num_passes,
            "num_steps": times.num_steps,
            "seconds": {"draft": times.draft_s, "verify": times.verify_s, "other": times.other_s},
            "num_drafts": sample.stats.num_drafts,
            "accepted_per_position": sample.stats.accepted_per_position,
        }


@dataclass(frozen=True)
class Spread:
    """Median, and 10th and 90th percentile."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None where there is no value."""
        found = sorted(v for v in values if v is not None)
        if not found:
            return None
        return cls(statistics.median(found), percentile(found, 0.1), percentile(found, 0.9))


def ratios(own: Iterable[Record[Any]], base: Iterable[Record[Any]]) -> list[float]:
    """Speed over that of ``base`` on the same prompt or group in the same repeat."""
    base_rates = {(r.prompt, r.repeat): r.sample.decode_tokens_per_s for r in base}
    found = []
    for record in own:
        rate, base_rate = record.sample.decode_tokens_per_s, base_rates.get((record.prompt, record.repeat))
        if rate and base_rate:
            found.append(rate / base_rate)
    return found


_System = TypeVar("_System")


def turns(systems: Sequence[_System], num_items: int, repeats: int) -> Iterator[tuple[int, int, _System]]:
    """(repeat, item, system): every system decodes an item before the next one comes, in an order that rotates.

    A machine that slows down for a while slows all of them down.
    """
    for repeat in range(repeats):
        for index in range(num_items):
            shift = (repeat + index) % len(systems)
            for system in [*systems[shift:], *systems[:shift]]:
                yield repeat, index, system
