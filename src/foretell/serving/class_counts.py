"""ClassCounts: what drafting brings to each class of requests, for /v1/status and /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from foretell.decoding.engine import Engine
from foretell.decoding.estimates import RowView
from foretell.decoding.scheduler import Work
from foretell.decoding.shape import Shape
from foretell.serving.metrics import OTHER
from foretell.types import AcceptanceStats

_GATED_DEPTH = 0.25
"""A policy that drafts less than this a pass has turned drafting off, but for a try now and then."""


class ClassCounts(Collector):
    """Drafts by request class since the start, counted in the engine's thread. ``label``: as metrics bound classes."""

    def __init__(self, engine: Engine, model_name: str, label: Callable[[str], str]) -> None:
        self.stats: dict[str, AcceptanceStats] = {}
        self.passes: dict[str, int] = {}
        self.mean_depth: dict[str, float] = {}
        self._estimates = engine.policy.estimates
        self._model = model_name
        self._label = label
        engine.watch(lambda works, times: self._count(works))

    def as_dict(self, label: str) -> dict[str, Any]:
        """Plain values for JSON."""
        stats, num_passes = self.stats[label], self.passes[label]
        return {
            "num_passes": num_passes,
            "tokens_per_pass": (num_passes + stats.num_accepted_tokens) / num_passes,
            "depth": self.mean_depth.get(label),
            "is_gated": self.is_gated(label),
            "speedup": self.speedup(label),
            **stats.as_dict(),
        }

    def is_gated(self, label: str) -> bool:
        """The policy hardly drafts for this class now, because plain decoding is faster."""
        depth = self.mean_depth.get(label)
        return depth is not None and depth < _GATED_DEPTH

    def speedup(self, label: str) -> float | None:
        """Expected tokens a second at the policy's depth over those of depth 0, one row alone, by the policy's costs;
        None before both were measured, and of classes that are counted together.
        """
        if label not in self.mean_depth or label == OTHER:
            return None
        depth = round(self.mean_depth[label])
        row, plain, drafted = [RowView(-1, depth, label)], [Shape.chain(0)], [Shape.chain(depth)]
        if not self._estimates.step_s(plain) or not self._estimates.step_s(drafted):
            return None
        return self._estimates.goodput(row, drafted) / self._estimates.goodput(row, plain)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Gauges of the classes whose depth is the policy's."""
        by = ("model_name", "request_class")
        depth = GaugeMetricFamily("foretell:spec_decode_depth", "Mean depth of the policy's last drafts.", labels=by)
        gated = GaugeMetricFamily("foretell:spec_decode_gated", "1: the policy hardly drafts, as it costs.", labels=by)
        speedup = GaugeMetricFamily(
            "foretell:spec_decode_speedup", "Expected tokens a second over plain decoding, one row alone.", labels=by
        )
        for label, value in sorted(self.mean_depth.items()):
            depth.add_metric((self._model, label), value)
            gated.add_metric((self._model, label), self.is_gated(label))
            if (ratio := self.speedup(label)) is not None:
                speedup.add_metric((self._model, label), ratio)
        yield from (depth, gated, speedup)

    def _count(self, works: Sequence[Work]) -> None:
        for work in works:
            if not work.is_judged:
                continue
            label = self._label(work.row.label)
            depth = max(work.draft.depths, default=0)
            self.stats.setdefault(label, AcceptanceStats()).count(depth, work.num_accepted, len(work.draft))
            self.passes[label] = self.passes.get(label, 0) + 1
            # What requests ask for says nothing of the policy, nor does a pass that no draft could have helped.
            num_before = len(work.row.token_ids) - work.num_taken
            if work.row.depth == "auto" and num_before and work.row.params.max_tokens - num_before > 1:
                before = self.mean_depth.get(label, float(depth))
                self.mean_depth[label] = before + (depth - before) / 16
