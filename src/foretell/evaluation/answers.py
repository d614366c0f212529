"""Answers to the prompts of JSONL files, and how many of them a parser takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.decoding.engine import Engine
from foretell.evaluation.parse import Judged, Language, ParseReport, judge, report
from foretell.evaluation.prompt_files import encoded_prompts
from foretell.evaluation.speculation import Speculation
from foretell.sampling_params import SamplingParams
from foretell.types import Completion, Depth


@dataclass(frozen=True)
class Question:
    """A prompt, where it stands, and the text that its answer continues (None: a chat, whose answer stands alone)."""

    place: str
    token_ids: list[int]
    continues: str | None


@dataclass(frozen=True)
class Answers:
    """``completions[i]`` answers ``questions[i]``, and ``judged[i]`` is what the parser says of it."""

    questions: list[Question]
    completions: list[Completion]
    judged: list[Judged]
    report: ParseReport
    speculation: Speculation

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, every answer with its text among them."""
        rows = [
            {
                "prompt": question.place,
                "text": done.text,
                "finish_reason": done.finish_reason,
                "outcome": one.outcome,
                "message": one.message,
            }
            for question, done, one in zip(self.questions, self.completions, self.judged, strict=True)
        ]
        return {**self.report.as_dict(), "speculation": self.speculation.as_dict(), "answers": rows}


def read_questions(engine: Engine, files: Sequence[Path], num_prompts: int | None = None) -> list[Question]:
    """The first ``num_prompts`` records of every file. Raises DataError for a prompt that the model cannot take."""
    return [
        Question(f"{file}:{line}", token_ids, None if record.get("messages") else record["prompt"])
        for file, line, record, token_ids in encoded_prompts(engine, files, num_prompts)
    ]


def answer(
    engine: Engine,
    questions: list[Question],
    language: Language,
    depth: Depth,
    max_tokens: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Answer greedily, and judge every answer."""
    num_done = 0

    def on_finish(_index: int, _done: Completion) -> None:
        nonlocal num_done
        num_done += 1
        if on_progress:
            on_progress(num_done, len(questions))

    start = time.perf_counter()
    params = SamplingParams(max_tokens=max_tokens)
    done = engine.generate([q.token_ids for q in questions], params, depth, on_finish, label=language)
    spent = Speculation(language)
    spent.add(done, time.perf_counter() - start)
    context = engine.model.trunk.max_positions
    judged = [
        judge(q.continues, d.text, d.finish_reason, language, len(d.prompt_token_ids) + len(d.token_ids) >= context)
        for q, d in zip(questions, done, strict=True)
    ]
    return Answers(questions, done, judged, report(judged, language), spent)
