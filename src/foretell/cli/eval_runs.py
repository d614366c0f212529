"""The measurements of ``foretell eval``: each gives plain values for the report, and adds to its warnings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.analysis.meaning import short_text
from foretell.analysis.meaning import trained_on as reasons_of_training
from foretell.cli.loading import naming_option

if TYPE_CHECKING:
    from foretell.cli.eval_session import Shown
    from foretell.evaluation.parse import Language, ParseReport
    from foretell.evaluation.speculation import Speculation
    from foretell.models.mtp_model import MTPModel
    from foretell.types import Depth

_WINDOW = 1024
_MAX_TOKENS = 512


def found_tasks(names: list[str] | None, include_path: Path | None) -> dict[str, Any]:
    """The tasks of ``--tasks`` with their data; none where it was not given."""
    if not names:
        return {}
    os.environ.setdefault("TQDM_DISABLE", "1")  # lm-eval's own bars; read when tqdm is imported
    from foretell.evaluation.tasks import load_tasks

    with naming_option("--tasks"):
        return load_tasks(names, include_path)


def run_text(
    model: MTPModel,
    texts: Sequence[tuple[str, str]],
    window: int | None,
    stride: int | None,
    batch: int,
    warnings: list[str],
    shown: Shown,
) -> dict[str, Any]:
    """``--text``: a score a file, and all together."""
    from foretell.evaluation.text import score_texts, total

    if window is None:
        window = min(_WINDOW, model.trunk.max_positions)
    if stride is None:
        stride = max(1, window // 2)
    with naming_option("--text"):
        scores = score_texts(model, texts, window, stride, batch, shown("windows scored"))
    whole = total(scores)
    warnings += short_text(whole.num_bytes)
    warnings += [
        f"{score.file}: its tokens decode to another text, so its bytes hold more than was predicted; bits per byte "
        "are too low to compare with another tokenizer's"
        for score in scores
        if not score.keeps_text
    ]
    return {
        "window": window,
        "stride": stride,
        "files": [score.as_dict() for score in scores],
        "all": whole.as_dict(),
    }


def run_tasks(
    model: MTPModel,
    tasks: dict[str, Any],
    limit: int | None,
    num_fewshot: int | None,
    chat: bool,
    depth: Depth,
    batch: int,
    warnings: list[str],
    shown: Shown,
) -> dict[str, Any]:
    """``--tasks``: lm-eval's results, and what speculation did for each task that generates."""
    from foretell.evaluation import tasks as lm_eval_tasks
    from foretell.evaluation.lm import ForetellLM

    bars: dict[str, Callable[[int, int], None]] = {}

    def on_progress(what: str, done: int, total: int) -> None:
        if what not in bars:
            bars[what] = shown(what)
        bars[what](done, total)

    lm = ForetellLM(model, depth=depth, batch_size=batch, on_progress=on_progress)
    results = lm_eval_tasks.run_tasks(lm, tasks, limit, num_fewshot, chat)
    warnings += sorted(lm.notes)
    if lm.num_truncated:
        warnings.append(
            f"{lm.num_truncated} requests were longer than the context of {lm.max_length} tokens and lost their "
            "beginning; their scores are those of other questions"
        )
    for name, spent in lm.speculation.items():
        warnings += [f"{name}: {reason}" for reason in _reasons(model, spent)]
    return {
        **results,
        "num_truncated": lm.num_truncated,
        "speculation": [spent.as_dict() for spent in lm.speculation.values()],
    }


def run_parse(
    model: MTPModel,
    prompts: list[Path],
    asked: tuple[Language, int | None, int | None],
    depth: Depth,
    batch: int,
    warnings: list[str],
    shown: Shown,
) -> dict[str, Any]:
    """``--parse``: every answer, and how many parse. ``asked``: language, prompts of each file, tokens an answer."""
    from foretell.decoding.engine import Engine
    from foretell.evaluation.answers import answer, read_questions

    language, num_prompts, max_tokens = asked
    engine = Engine(model, batch)
    questions = read_questions(engine, prompts, num_prompts)
    found = answer(engine, questions, language, depth, max_tokens or _MAX_TOKENS, shown("answers"))
    warnings += _reasons(model, found.speculation)
    warnings += _cut_off(found.report, max_tokens or _MAX_TOKENS, model.trunk.max_positions)
    return {"max_tokens": max_tokens or _MAX_TOKENS, **found.as_dict()}


def _cut_off(report: ParseReport, max_tokens: int, context: int) -> list[str]:
    """A warning for each cause, where more than half of the answers were cut off."""
    if report.num_cut_off <= report.num_outputs / 2:
        return []
    num_short = report.num_cut_off - report.num_context_full
    causes = [
        (num_short, f"at {max_tokens:,} tokens and not judged; give a larger --max-tokens"),
        (
            report.num_context_full,
            f"where the context of {context:,} tokens was full, prompt included, and not judged; give shorter prompts, "
            "or a trunk with a longer context",
        ),
    ]
    return [f"{count} of {report.num_outputs} answers were cut off {cause}" for count, cause in causes if count]


def trained_on(heads: str | None, files: Sequence[Path]) -> list[str]:
    """A warning where a file was among the heads' training data, by their recipe."""
    if heads in (None, "none"):
        return []
    from foretell.checkpoints.adapter_config import read_adapter_config

    return reasons_of_training(files, read_adapter_config(heads).training)


def _reasons(model: MTPModel, spent: Speculation) -> list[str]:
    from foretell.analysis.measured_texts import reasons_against

    return reasons_against(model.trunk, spent.prompts, spent.outputs, spent.eos_ignored)
