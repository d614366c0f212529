"""The trunk's own answers, however often the run is cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import DataError, UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.training.data import read_documents
from foretell.training.distill import DistillReport, distill
from foretell.training.recipe import DataConfig
from tests.fixtures import byte_tokenizer, encode, script_trunk, tiny_llama

TEMPLATE = "{% for m in messages %}<{{ m['content'] }}>{% endfor %}"
SAMPLED = SamplingParams(max_tokens=10, temperature=1.0, seed=5)


@pytest.fixture(scope="module")
def model() -> MTPModel:
    return MTPModel(Trunk(tiny_llama(), byte_tokenizer(TEMPLATE)))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    records: list[dict[str, Any]] = [{"id": f"q{i}", "prompt": "abcdefg"[: i + 1], "topic": i} for i in range(6)]
    records.append({"messages": [{"role": "user", "content": "hi"}]})
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def answers(path: Path) -> dict[str, dict[str, Any]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    found = {record["id"]: record for record in records}
    assert len(found) == len(records)
    return found


def test_answers_are_the_engines(model: MTPModel, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "answers.jsonl"
    report = distill(model, prompts, out, SamplingParams(max_tokens=10), max_batch=3)
    assert report == DistillReport(num_written=7, num_skipped=0, num_tokens=70)
    found = answers(out)
    chat = [{"role": "user", "content": "hi"}]
    [plain, of_chat] = Engine(model).generate(["abc", chat], SamplingParams(max_tokens=10))
    assert found["q2"] == {
        "id": "q2",
        "prompt": "abc",
        "topic": 2,
        "prompt_token_ids": encode("abc"),
        "token_ids": plain.token_ids,
        "text": plain.text,
        "finish_reason": "length",
        "trunk": model.trunk.name,
        "max_tokens": 10,
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 0,
    }
    assert found["7"]["messages"] == chat
    assert found["7"]["prompt_token_ids"] == encode("<hi>")
    assert found["7"]["token_ids"] == of_chat.token_ids


def test_batched_is_single(model: MTPModel, prompts: Path, tmp_path: Path) -> None:
    distill(model, prompts, tmp_path / "single.jsonl", SAMPLED, max_batch=1)
    distill(model, prompts, tmp_path / "batched.jsonl", SAMPLED, max_batch=4)
    single = answers(tmp_path / "single.jsonl")
    assert answers(tmp_path / "batched.jsonl") == single
    assert len({tuple(record["token_ids"]) for record in single.values()}) == 7


def test_another_seed_gives_other_answers(model: MTPModel, prompts: Path, tmp_path: Path) -> None:
    for seed in (5, 6, None):
        params = SamplingParams(max_tokens=10, temperature=1.0, seed=seed)
        distill(model, prompts, tmp_path / f"{seed}.jsonl", params, limit=2)
    first, other, unseeded = (answers(tmp_path / f"{seed}.jsonl") for seed in (5, 6, None))
    assert set(first) == {"q0", "q1"}
    for id in first:
        assert len({tuple(run[id]["token_ids"]) for run in (first, other, unseeded)}) == 3


class Killed(Exception):
    """A run that ends in the middle."""


@pytest.mark.parametrize("torn", [False, True], ids=["between lines", "within a line"])
@pytest.mark.parametrize("num_done", [1, 4])
def test_a_killed_run_goes_on(model: MTPModel, prompts: Path, tmp_path: Path, num_done: int, torn: bool) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    distill(model, prompts, whole, SAMPLED, max_batch=3)

    def kill(done: int, total: int, num_tokens: int) -> None:
        assert (total, num_tokens) == (7, 10 * done)
        if done == num_done:
            raise Killed

    with pytest.raises(Killed):
        distill(model, prompts, cut, SAMPLED, max_batch=2, on_answer=kill)
    kept = cut.read_bytes()
    assert len(answers(cut)) == num_done
    if torn:
        cut.write_bytes(kept + whole.read_bytes().splitlines()[5][:-3])
    seen: list[tuple[int, int, int]] = []
    report = distill(model, prompts, cut, SAMPLED, max_batch=3, on_answer=lambda *numbers: seen.append(numbers))
    assert (report.num_written, report.num_skipped) == (7 - num_done, num_done)
    assert seen[-1] == (7, 7, report.num_tokens)
    assert cut.read_bytes().startswith(kept)
    assert answers(cut) == answers(whole)

    before = cut.read_bytes()
    assert distill(model, prompts, cut, SAMPLED) == DistillReport(num_skipped=7)
    assert cut.read_bytes() == before


def test_answers_end_with_eos_and_can_be_read_back(tmp_path: Path) -> None:
    """The label of EOS is learnt too."""
    (tmp_path / "p.jsonl").write_text('{"prompt": ">"}\n')
    trunk = script_trunk(">hi😀!<eos>")
    distill(MTPModel(trunk), tmp_path / "p.jsonl", tmp_path / "a.jsonl", SamplingParams())
    [record] = answers(tmp_path / "a.jsonl").values()
    assert (record["text"], record["finish_reason"]) == ("hi😀!", "stop")
    [document] = read_documents(DataConfig(files=(str(tmp_path / "a.jsonl"),), supervise="answer"), trunk)
    assert document.token_ids == encode(">hi😀!<eos>")
    assert document.supervised == [False] + [True] * 8


def test_another_file_is_not_an_output(model: MTPModel, prompts: Path, tmp_path: Path) -> None:
    """Nothing is written to a file that holds something else."""
    (tmp_path / "other.jsonl").write_text('{"text": "mine"}\n')
    with pytest.raises(DataError, match=r'other\.jsonl:1: .*"id"'):
        distill(model, prompts, tmp_path / "other.jsonl", SAMPLED)
    assert (tmp_path / "other.jsonl").read_text() == '{"text": "mine"}\n'


def test_prompts_that_do_not_fit_are_refused_before_any_work(model: MTPModel, tmp_path: Path) -> None:
    window = model.trunk.max_positions
    path, output = tmp_path / "p.jsonl", tmp_path / "new" / "a.jsonl"
    for text, num_tokens in (("a" * window, window), ("a" * 2 * window, 2 * window)):
        path.write_text(json.dumps({"prompt": "b"}) + "\n\n" + json.dumps({"prompt": text}) + "\n")
        with pytest.raises(DataError, match=rf"p\.jsonl:3: .*has {num_tokens} tokens .*; shorten the prompt to"):
            distill(model, path, output, SAMPLED)
    assert not output.parent.exists()
    path.write_text(json.dumps({"prompt": "a" * (window - 1)}) + "\n")
    assert distill(model, path, output, SAMPLED).num_tokens == 1


def test_a_refused_run_leaves_the_torn_line_to_the_right_one(model: MTPModel, prompts: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.jsonl"
    distill(model, prompts, output, SAMPLED, limit=2)
    output.write_bytes(output.read_bytes() + b'{"id": "q2"')
    before = output.read_bytes()
    for change, words in (
        ({"max_tokens": 11}, r"max_tokens 10 \(now 11\); give the same"),
        ({"temperature": 0.5, "min_p": 0.1}, r"temperature 1\.0 \(now 0\.5\), min_p 0\.0 \(now 0\.1\);"),
        ({"seed": 6}, r"seed 5 \(now 6\)"),
    ):
        with pytest.raises(UsageError, match=words):
            distill(model, prompts, output, replace(SAMPLED, **change))
    other = MTPModel(Trunk(tiny_llama(), byte_tokenizer(TEMPLATE), name="other"))
    with pytest.raises(UsageError, match=r"trunk .*\(now 'other'\)"):
        distill(other, prompts, output, SAMPLED)
    assert output.read_bytes() == before
    assert distill(model, prompts, output, SAMPLED).num_written == 5
    assert len(answers(output)) == 7
