"""Distil: the trunk's own answers to prompts, JSONL in and JSONL out, batched and resumable.

Heads learn best from text their trunk writes, because that is the text they will be asked to guess.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import ContextLengthError, DataError, UsageError
from foretell.models.mtp_model import MTPModel
from foretell.training.answers import read_answers
from foretell.training.jsonl import numbered_prompts
from foretell.types import Completion


@dataclass
class DistillReport:
    """What a run wrote; ``num_skipped`` prompts were already answered in the output file."""

    num_written: int = 0
    num_skipped: int = 0
    num_tokens: int = 0


def distill(
    model: MTPModel,
    prompts: str | Path,
    output: str | Path,
    params: SamplingParams,
    max_batch: int = 64,
    limit: int = 0,
    on_answer: Callable[[int, int, int], None] | None = None,
) -> DistillReport:
    """Answer every prompt of ``prompts`` that ``output`` does not hold yet.

    A record keeps its id and gains prompt_token_ids, token_ids, text, finish_reason, and the settings it was made with.
    Answers are appended as they finish, so a killed run loses only what was unfinished. Sampled answers draw from a
    seed per prompt, made of ``params.seed`` and the id, so an answer does not depend on where a run was cut.
    ``on_answer(num_done, num_total, num_tokens)``.

    Nothing is written where a prompt does not fit the model (DataError), the settings are not those of the answers in
    ``output`` (UsageError), or ``output`` holds something else (``read_answers``).
    """
    output = Path(output)
    records = numbered_prompts(prompts)[: limit or None]
    settings = _settings(model, params)
    earlier = read_answers(prompts, output)
    earlier.check_settings(settings)
    waiting = [(line, record) for line, record in records if str(record["id"]) not in earlier.ids]
    report = DistillReport(num_skipped=len(records) - len(waiting))
    engine = Engine(model, max_batch=max_batch)
    token_ids = [_encode(engine, record, prompts, line) for line, record in waiting]
    earlier.repair()
    if not waiting:
        return report
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a", encoding="utf-8") as sink:

        def write(index: int, completion: Completion) -> None:
            record = {
                **waiting[index][1],
                "prompt_token_ids": completion.prompt_token_ids,
                "token_ids": completion.token_ids,
                "text": completion.text,
                "finish_reason": completion.finish_reason,
                **settings,
            }
            sink.write(json.dumps(record, ensure_ascii=False) + "\n")
            sink.flush()
            report.num_written += 1
            report.num_tokens += len(completion.token_ids)
            if on_answer:
                on_answer(report.num_written + report.num_skipped, len(records), report.num_tokens)

        engine.generate(
            token_ids,
            [replace(params, seed=_seed(settings["seed"], str(record["id"]))) for _, record in waiting],
            on_finish=write,
        )
    return report


def _settings(model: MTPModel, params: SamplingParams) -> dict[str, Any]:
    """What an answer depends on besides its prompt; stored with every answer."""
    names = ("max_tokens", "temperature", "top_k", "top_p", "min_p")
    return {"trunk": model.trunk.name, **{n: getattr(params, n) for n in names}, "seed": params.seed or 0}


def _encode(engine: Engine, record: dict[str, Any], file: str | Path, line: int) -> list[int]:
    """Token ids of a prompt; raises DataError where the model cannot take it, or it leaves no room for an answer."""
    try:
        return engine.encode(record.get("messages") or record["prompt"])
    except (ContextLengthError, UsageError) as error:
        raise DataError(str(error), file, line) from error


def _seed(base: int, record_id: str) -> int:
    return (base * 1_000_003 + zlib.crc32(record_id.encode())) % 2**63
