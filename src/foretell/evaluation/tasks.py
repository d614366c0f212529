"""lm-eval's tasks by name or by YAML file, with local data as well as the hub's; every failure in one line."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy
from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from lm_eval.utils import handle_non_serializable

from foretell.checkpoints.files import one_line
from foretell.errors import DataError, ForetellError, UsageError
from foretell.evaluation.lm import ForetellLM

_TIMEOUT_S = 3.0


Tasks = dict[str, Any]
"""What lm-eval's TaskManager loads: "tasks", "groups" and "group_map", each by name."""


def load_tasks(names: Sequence[str], include_path: Path | None = None) -> Tasks:
    """Tasks of lm-eval, its groups and tags, those below ``include_path``, and YAML files; their data is loaded too.

    A task's YAML may name Python functions, which are run. Raises UsageError for an unknown name, DataError where a
    task or its data cannot be loaded, and where a task comes twice.
    """
    manager = TaskManager(include_path=None if include_path is None else str(include_path), include_defaults=False)
    if any(not Path(name).is_file() and name not in manager.all_tasks for name in names):
        manager = TaskManager(include_path=None if include_path is None else str(include_path))  # reads 15,000 files
    found: Tasks = {"tasks": {}, "groups": {}, "group_map": {}}
    with _quick_hub():
        for name in names:
            if not Path(name).is_file() and name not in manager.all_tasks:
                near = [known for known in manager.all_tasks if name.lower() in known.lower()][:5]
                raise UsageError(
                    f'"{name}" is no YAML file here and no task that lm-eval knows; '
                    + (f"there are {', '.join(near)}" if near else "lm-eval ls tasks lists those it knows")
                )
            try:
                loaded = manager.load([name])
            except Exception as error:  # YAML, templates, task code and data sets break in many ways
                raise DataError(f"the task or its data cannot be loaded ({_reason(error)})", name) from error
            if twice := found["tasks"].keys() & loaded["tasks"].keys():
                raise UsageError(f'task "{min(twice)}" comes twice; name it, or a group with it, once')
            for part in found:
                found[part] |= loaded.get(part, {})
    return found


def run_tasks(
    lm: ForetellLM,
    tasks: Tasks,
    limit: int | None = None,
    num_fewshot: int | None = None,
    chat: bool = False,
) -> dict[str, Any]:
    """Run what ``load_tasks`` gave; lm-eval's results, versions and counts as plain values.

    ``limit``: the first so many documents of each; ``num_fewshot``: examples before each, but where a task says 0;
    ``chat``: in the chat template. Seeds are those of lm-eval's ``simple_evaluate``.
    Raises ForetellError where a task fails on its data.
    """
    if chat and not getattr(lm.tokenizer, "chat_template", None):
        raise UsageError(f"{lm.trunk.name} has no chat template; leave it out, or use a chat model")
    try:
        with _quiet():
            random.seed(DEFAULT_RANDOM_SEED)
            numpy.random.seed(DEFAULT_OTHER_SEED)
            for task in tasks["tasks"].values():
                _set_examples(task, num_fewshot)
            found = evaluate(
                lm, tasks, limit=limit, apply_chat_template=chat, fewshot_as_multiturn=chat, log_samples=False
            )
    except ForetellError:
        raise
    except Exception as error:  # a template that names a field the data lacks, a metric that is not installed, ...
        raise ForetellError(f"lm-eval cannot run these tasks ({_reason(error)})") from error
    kept = ("results", "groups", "versions", "n-shot", "higher_is_better", "n-samples")
    values = json.loads(json.dumps({key: found.get(key) for key in kept}, default=handle_non_serializable))
    return {key: _plain(value) for key, value in values.items()}


def _set_examples(task: Any, num_fewshot: int | None) -> None:
    own = task.get_config("num_fewshot")
    if own is None or (num_fewshot is not None and own != 0):
        task.set_config(key="num_fewshot", value=num_fewshot or 0)
    task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"[:400]


def _plain(value: Any) -> Any:
    """NaN and infinities, which JSON has no words for, as null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm-eval's advice is left out, and what it prints goes to stderr."""
    logger = logging.getLogger("lm_eval")
    level, bars = logger.level, datasets.are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def _quick_hub() -> Iterator[None]:
    """A hub that does not answer at once is left alone: its library would try for half a minute."""
    holders: list[Any] = [huggingface_hub.constants, datasets.config]
    flags = [(holder, holder.HF_HUB_OFFLINE) for holder in holders]
    try:
        huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=_TIMEOUT_S)
    except Exception:  # no network, a proxy's refusal, offline mode, ...
        for holder in holders:
            holder.HF_HUB_OFFLINE = True
    try:
        with _quiet():
            yield
    finally:
        for holder, offline in flags:
            holder.HF_HUB_OFFLINE = offline
