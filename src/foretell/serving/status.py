"""GET /v1/status: what this server decodes with, why plain where it is plain, and what drafting brings, by class."""

from __future__ import annotations

from typing import Any

from foretell.serving.service import Service


def status_of(service: Service) -> dict[str, Any]:
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
        "policy": {
            "depth": settings.depth,
            "fixed_depth": settings.fixed_depth,
            "max_depth": 0 if engine.drafter is None else engine.drafter.max_depth(model),
        },
        "why_plain": why_plain(service),
        "max_batch": engine.max_batch,
        "max_waiting": settings.max_waiting,
        "dtype": model.trunk.dtype_name,
        "window": engine.max_length,
        "num_running": engine.num_running,
        "num_waiting": service.num_waiting,
        "kv_cache_usage": engine.cache_use,
        "classes": {label: service.classes.as_dict(label) for label in sorted(service.classes.passes)},
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
