"""What an engine is given, checked before anything runs: every error is one line and says what to give instead."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from foretell.decoding.core import EXACT_WIDTH, Limits
from foretell.decoding.drafter_config import DrafterConfig
from foretell.errors import PlainDecodingWarning, UsageError
from foretell.models.mtp_model import MTPModel
from foretell.types import Depth, Prompt


def check_limits(model: object, limits: Limits) -> None:
    """Raise UsageError for what is no model, and for limits of the wrong kind or size."""
    if not isinstance(model, MTPModel):
        raise UsageError(f"model is {model!r}; give what foretell.load returns")
    for name in ("max_batch", "max_step_tokens", "memory_budget"):
        value = getattr(limits, name)
        if name == "memory_budget" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} is {value!r}; give an integer of at least 1")
    for name in ("reuse_prefixes", "exact"):
        if not isinstance(getattr(limits, name), bool):
            raise UsageError(f"{name} is {getattr(limits, name)!r}; give True or False")
    if limits.max_step_tokens < limits.max_batch:
        raise UsageError(
            f"max_step_tokens {limits.max_step_tokens} is less than max_batch {limits.max_batch}; give at least as many"
        )


def check_prompts(prompts: Iterable[Prompt], on_finish: object = None) -> list[Prompt]:
    """The prompts as a list. Raises UsageError for a single one, for what has no order, and for no callback."""
    if isinstance(prompts, (str, bytes, dict, set, frozenset)) or not isinstance(prompts, Iterable):
        raise UsageError(f"prompts is one {type(prompts).__name__}; give a list of prompts: [prompt]")
    if on_finish is not None and not callable(on_finish):
        raise UsageError(f"on_finish is {on_finish!r}; give a function of (index, completion)")
    return list(prompts)


def one_each(value: Any, count: int, what: str) -> list[Any]:
    """``value`` for every prompt, or the list of them that it is; whether they are any good is seen one by one."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise UsageError(f"{len(value)} {what} for {count} prompts; give one for all or one each")
    return list(value)


def warn_if_plain(model: MTPModel, drafter: DrafterConfig | None, depths: Iterable[Depth]) -> None:
    """A PlainDecodingWarning where drafts were asked for in a way that allows none, and there is no drafter."""
    if drafter is None and "auto" in depths:
        warnings.warn(
            f"{model.trunk.name} has no heads and the engine no other drafter, so depth auto is plain decoding",
            PlainDecodingWarning,
            stacklevel=3,
        )


def check_draft(model: MTPModel, drafter: DrafterConfig | None, exact: bool, depth: Depth, num_nodes: int = 0) -> None:
    """Raise UsageError where ``drafter`` cannot draft ``depth`` tokens a step, or a tree of ``num_nodes``."""
    if depth == "auto":
        depth = 0 if drafter is None else 1
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
        raise UsageError(
            f'depth {depth!r} is not allowed; give an integer of at least 0 (0 = plain decoding), or "auto"'
        )
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int) or num_nodes < 0:
        raise UsageError(f"num_nodes {num_nodes!r} is not allowed; give an integer of at least 0 (0 = a chain)")
    _check_depth(model, drafter, exact, depth)
    if num_nodes:
        _check_nodes(model, drafter, exact, depth, num_nodes)


def _check_depth(model: MTPModel, drafter: DrafterConfig | None, exact: bool, depth: int) -> None:
    if depth and drafter is None:
        raise UsageError(
            f"depth {depth} asked for, but {model.trunk.name} has no heads; give heads (an adapter folder), "
            "another drafter (ngram needs nothing else), or depth 0 for plain decoding"
        )
    limit = None if drafter is None else drafter.max_depth(model)
    if limit is not None and depth > limit:
        raise UsageError(
            f"depth {depth} is more than the {limit} trained modules of these heads (not unrolled, so none is "
            f"used twice); give a depth from 0 to {limit}"
        )
    if exact and depth >= EXACT_WIDTH:
        raise UsageError(
            f"depth {depth}: an exact engine's passes have {EXACT_WIDTH} nodes; draft at most {EXACT_WIDTH - 1} tokens"
        )


def _check_nodes(model: MTPModel, drafter: DrafterConfig | None, exact: bool, depth: int, num_nodes: int) -> None:
    if not depth or drafter is None:
        raise UsageError(
            f"num_nodes {num_nodes}: nothing is drafted here; give heads or another drafter and a depth above 0, "
            "or leave num_nodes out"
        )
    if num_nodes < depth:
        raise UsageError(
            f"num_nodes {num_nodes} is less than depth {depth}, and every level has a node; give at least {depth}, "
            "or leave num_nodes out (a chain)"
        )
    if num_nodes == depth:
        return
    if not drafter.branches:
        raise UsageError(
            f"num_nodes {num_nodes}: drafter {drafter.kind} without heads drafts chains; leave num_nodes out, "
            "or draft with heads"
        )
    if model.trunk.is_recurrent:
        raise UsageError(
            f"num_nodes {num_nodes}: {model.trunk.name} has recurrent layers, which read one branch only; "
            "leave num_nodes out (a chain)"
        )
    if exact:
        raise UsageError(
            f"num_nodes {num_nodes}: a tree's keys lie in another order than plain text's, so its sums round "
            "otherwise; leave num_nodes out (a chain), or exact"
        )
