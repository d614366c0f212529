"""Distil: the trunk's own answers to prompts, JSONL in and JSONL out, batched and resumable.

Heads learn best from text their trunk writes, because that is the text they will be asked to guess.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import DataError
from foretell.models.mtp_model import MTPModel
from foretell.training.jsonl import read_jsonl, read_prompts, repair_tail
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

    A record keeps its id and gains prompt_token_ids, token_ids, text, finish_reason. Answers are appended as they
    finish, so a killed run loses only what was unfinished. Sampled answers draw from a seed per prompt, made of
    ``params.seed`` and the id, so an answer does not depend on where a run was cut.
    ``on_answer(num_done, num_total, num_tokens)``.
    """
    output = Path(output)
    records = read_prompts(prompts)[: limit or None]
    done: set[str] = set()
    if output.exists():
        repair_tail(output)
        for number, record in read_jsonl(output):
            if "id" not in record:
                raise DataError('no answer of an earlier run: it has no "id"; give another output', output, number)
            done.add(str(record["id"]))
    waiting = [record for record in records if str(record["id"]) not in done]
    report = DistillReport(num_skipped=len(records) - len(waiting))
    if not waiting:
        return report
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a", encoding="utf-8") as sink:

        def write(index: int, completion: Completion) -> None:
            record = {
                **waiting[index],
                "prompt_token_ids": completion.prompt_token_ids,
                "token_ids": completion.token_ids,
                "text": completion.text,
                "finish_reason": completion.finish_reason,
                "temperature": params.temperature,
            }
            sink.write(json.dumps(record, ensure_ascii=False) + "\n")
            sink.flush()
            report.num_written += 1
            report.num_tokens += len(completion.token_ids)
            if on_answer:
                on_answer(report.num_written + report.num_skipped, len(records), report.num_tokens)

        Engine(model, max_batch=max_batch).generate(
            [record.get("messages") or record["prompt"] for record in waiting],
            [replace(params, seed=_seed(params.seed or 0, str(record["id"]))) for record in waiting],
            on_finish=write,
        )
    return report


def _seed(base: int, record_id: str) -> int:
    return (base * 1_000_003 + zlib.crc32(record_id.encode())) % 2**63
