"""GET /v1/status: what this server decodes with, why plain where it is plain, and what drafting brings, by class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from foretell.decoding.estimates import RowView
from foretell.decoding.scheduler import Work
from foretell.decoding.shape import Shape
from foretell.serving.service import Service
from foretell.types import AcceptanceStats


class ClassCounts:
    """Drafts by request class since the start, counted in the engine's thread. ``label``: as metrics bound classes."""

    def __init__(self, label: Callable[[str], str]) -> None:
        self._label = label
        self.stats: dict[str, AcceptanceStats] = {}
        self.passes: dict[str, int] = {}
        self.mean_depth: dict[str, float] = {}

    def count(self, works: Sequence[Work]) -> None:
        """A step."""
        for work in works:
            if not work.is_judged:
                continue
            label = self._label(work.row.label)
            depth = max(work.draft.depths, default=0)
            self.stats.setdefault(label, AcceptanceStats()).count(depth, work.num_accepted, len(work.draft))
            self.passes[label] = self.passes.get(label, 0) + 1
            if work.row.depth == "auto":  # what requests ask for says nothing of the policy
                before = self.mean_depth.get(label, float(depth))
                self.mean_depth[label] = before + (depth - before) / 16


def status_of(service: Service, counts: ClassCounts) -> dict[str, Any]:
    """Plain values for JSON."""
    engine, settings = service.engine, service.settings
    model = engine.model
    heads = None
    if model.heads is not None:
        config = model.heads.config
        heads = {
            "kind": config.kind,
            "num_depths": config.num_depths,
            "num_modules": config.num_modules,
            "unrolled": config.unrolled,
            "num_parameters": sum(p.numel() for p in model.heads.parameters()),
        }
    return {
        "model": settings.name,
        "status": "ok" if service.trouble is None else service.trouble,
        "heads": heads,
        "drafter": None if engine.drafter is None else engine.drafter.kind,
        "policy": {"depth": settings.depth, "fixed_depth": settings.fixed_depth},
        "why_plain": why_plain(service),
        "max_batch": engine.max_batch,
        "max_waiting": settings.max_waiting,
        "window": engine.max_length,
        "num_running": engine.num_running,
        "num_waiting": engine.num_waiting,
        "kv_cache_usage": engine.cache_use,
        "classes": {label: _class(service, counts, label) for label in sorted(counts.passes)},
    }


def why_plain(service: Service) -> str | None:
    """Why requests are decoded without drafts unless they ask for some; None where they are drafted for."""
    engine = service.engine
    if engine.drafter is None:
        return (
            f"{engine.model.trunk.name} has no heads, and no other drafter was chosen; start with --heads or --drafter"
        )
    if service.settings.depth == 0:
        return "the server was started with --depth 0"
    return None


def _class(service: Service, counts: ClassCounts, label: str) -> dict[str, Any]:
    """``depth``: mean of the last passes whose depth was the policy's; None without any. ``speedup``: expected tokens a
    second at that depth over those of depth 0, one row alone, by the policy's costs; None before both were measured.
    ``is_gated``: the policy hardly drafts for this class now, because plain decoding is faster.
    """
    stats, num_passes = counts.stats[label], counts.passes[label]
    depth = counts.mean_depth.get(label)
    return {
        "num_passes": num_passes,
        "tokens_per_pass": (num_passes + stats.num_accepted_tokens) / num_passes,
        "depth": depth,
        "is_gated": depth is not None and depth < 0.25,
        "speedup": None if depth is None else _speedup(service, label, round(depth)),
        **stats.as_dict(),
    }


def _speedup(service: Service, label: str, depth: int) -> float | None:
    estimates = service.engine.policy.estimates
    row = [RowView(-1, depth, label)]
    plain, drafted = [Shape.chain(0)], [Shape.chain(depth)]
    if not estimates.step_s(plain) or not estimates.step_s(drafted):
        return None
    return estimates.goodput(row, drafted) / estimates.goodput(row, plain)
