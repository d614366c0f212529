"""foretell eval: what it prints, what it warns of, and its errors."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from foretell.analysis import load_watch
from foretell.analysis.load import LoadSnapshot
from foretell.cli import eval_runs

TASK = """
task: letters
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/letters.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{text}}}}"
doc_to_target: "{{{{next}}}}"
generation_kwargs: {{until: ["h"], max_gen_toks: {tokens}}}
metric_list: [{{metric: exact_match}}]
metadata: {{version: 1}}
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "letters.jsonl").write_text('{"text": "ab", "next": "cdefg"}\n{"text": "d", "next": "x"}\n')
    (tmp_path / "letters.yaml").write_text(TASK.format(folder=tmp_path, tokens=8))
    return tmp_path / "letters.yaml"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("abcdefghijklmnopqrstuvwxyz" * 40)
    return file


def test_tasks(run: Any, folders: Path, task: Path, tmp_path: Path) -> None:
    scores = {}
    for depth in (0, 3):
        out = tmp_path / f"{depth}.json"
        ran = run(
            "eval", folders / "cycle", "--heads", folders / "right", "--tasks", task, "--depth", depth, "--json", out
        )
        assert ran.code == 0, ran.err
        found = json.loads(out.read_text())
        scores[depth] = found["tasks"]["results"]
        assert found["depth"] == depth and found["warnings"] == [] and found["tasks"]["n-samples"]
        assert "letters" in ran.out and "exact_match" in ran.out and "0.5000" in ran.out
    assert scores[0] == scores[3]
    [spent] = found["tasks"]["speculation"]
    assert (spent["name"], spent["num_tokens"], spent["mean_acceptance_length"]) == ("letters", 10, 10 / 3)
    assert "1.00 0.67" in ran.out and "tokens/pass" in ran.out  # the last drafts ended with the text


@pytest.mark.parametrize("is_busy", [False, True])
def test_tokens_per_s_of_a_busy_machine(
    run: Any, folders: Path, task: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    monkeypatch.setattr(LoadSnapshot, "cores_of_others", lambda self, end: 7.0 if is_busy else 0.0)
    out = tmp_path / "out.json"
    ran = run("eval", folders / "cycle", "--tasks", task, "--json", out)
    load = json.loads(out.read_text())["environment"]["load"]
    assert ran.code == 0 and load["cores_of_others"] == (7.0 if is_busy else 0.0)
    assert ("warning: other processes took 7.00" in ran.err) == is_busy == bool(load["note"])
    ran = run("eval", folders / "cycle", "--text", text, "--json", out)  # scores alone: nothing is timed
    assert "other processes" not in ran.err and "load" in json.loads(out.read_text())["environment"]


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others take seven cores during the tasks."""
    others, decode = [0.0], eval_runs.run_tasks

    def late(*args: Any) -> dict[str, Any]:
        others[0] = 7.0
        time.sleep(0.1)  # a few looks
        try:
            return decode(*args)
        finally:
            others[0] = 0.0

    monkeypatch.setattr(load_watch, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(LoadSnapshot, "cores_of_others", lambda self, end: others[0])
    monkeypatch.setattr(eval_runs, "run_tasks", late)


@pytest.mark.usefixtures("busy")
def test_a_busy_machine_ends_the_run(run: Any, folders: Path, task: Path, text: Path, tmp_path: Path) -> None:
    """What was finished before, the text's score, is kept and marked, beside a whole report and not over it."""
    out, line = tmp_path / "out.json", ("eval", folders / "cycle", "--text", text, "--tasks", task)
    for target in (out, tmp_path / "out.incomplete.json"):
        ran = run(*line, "--json", out, "--on-busy", "abort")
        assert ran.code == 1 and "stopped: tasks not measured to the end; text is finished" in ran.err
        assert ran.err.splitlines()[-1].startswith("error: --on-busy abort: other processes take 7.00")
        assert ran.err.count("other processes") == 1
        found = json.loads(target.read_text())
        assert found["incomplete"] is True and found["text"]["files"] and "tasks" not in found
        del found["incomplete"]
        out.write_text(json.dumps(found))
    assert "incomplete" not in json.loads(out.read_text())


@pytest.mark.usefixtures("busy")
def test_a_busy_machine_is_told_of_at_once(run: Any, folders: Path, task: Path, text: Path) -> None:
    ran = run("eval", folders / "cycle", "--tasks", task)
    assert ran.code == 0 and ran.err.count("warning: other processes take 7.00") == 1
    assert "--on-busy abort would end here" in ran.err
    ran = run("eval", folders / "cycle", "--text", text, "--on-busy", "abort")
    assert ran.code == 2 and "--on-busy: --text times nothing" in ran.err


def test_a_run_that_only_its_end_shows_to_be_busy(
    run: Any, folders: Path, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoadSnapshot, "cores_of_others", lambda self, end: 7.0)
    ran = run("eval", folders / "cycle", "--tasks", task, "--json", tmp_path / "out.json", "--on-busy", "abort")
    assert ran.code == 1 and "error: --on-busy abort: other processes took 7.00" in ran.err.splitlines()[-1]
    assert "incomplete" not in json.loads((tmp_path / "out.json").read_text())


def test_limit_and_include_path(run: Any, folders: Path, task: Path, tmp_path: Path) -> None:
    ran = run("eval", folders / "cycle", "--tasks", "letters", "--include-path", tmp_path, "--limit", 1)
    assert ran.code == 0 and "1.0000" in ran.out and "n/a" in ran.out  # nothing drafted
    ran = run("eval", folders / "cycle", "--tasks", tmp_path / "gone.yaml", "--include-path", tmp_path / "none")
    assert ran.code == 2 and "--include-path" in ran.err and ran.err.count("\n") == 1


def test_a_task_in_the_chat_template(run: Any, folders: Path, task: Path) -> None:
    ran = run("eval", folders / "random", "--tasks", task, "--chat")
    assert ran.code == 0
    ran = run("eval", folders / "cycle", "--tasks", task, "--chat")
    assert ran.code == 2 and "no chat template" in ran.err


def test_requests_that_lose_their_beginning_are_counted(run: Any, folders: Path, task: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.jsonl").write_text(json.dumps({"text": "ab" * 200, "next": "c"}) + "\n")
    ran = run("eval", folders / "cycle", "--tasks", task)
    assert ran.code == 0 and "warning: 1 requests were longer than the context of 256 tokens" in ran.err


def test_text(run: Any, folders: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    ran = run("eval", folders / "cycle", "--text", text, "--heads", folders / "right", "--json", out)
    assert ran.code == 0 and "warning" not in ran.err
    assert "Windows of 256 tokens, stride 128" in ran.out and "at least 128 tokens before it" in ran.out
    found = json.loads(out.read_text())
    assert found["depth"] is None and "tasks" not in found
    [file], whole = found["text"]["files"], found["text"]["all"]
    assert file["num_bytes"] == file["num_tokens"] == 1040 and whole["num_bytes"] == 1040
    assert [d["num_targets"] for d in file["depths"]] == [1040, 1039, 1038, 1037]
    # The first letter follows EOS, of which this model knows nothing; all others are certain.
    assert file["depths"][0]["bits_per_byte"] < 0.02 and file["depths"][3]["bits_per_byte"] < 0.02
    rows = [line.split() for line in ran.out.splitlines()]
    assert any(row[:2] == ["0", "(trunk)"] for row in rows) and any(row[:2] == ["3", "1,037"] for row in rows)


def test_several_texts_have_a_sum(run: Any, folders: Path, text: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("xyz")
    ran = run("eval", folders / "cycle", "--text", text, short, "--window", 32, "--stride", 8)
    assert ran.code == 0 and "depth" not in ran.out and "Windows of 32 tokens, stride 8" in ran.out
    assert any(line.split()[:2] == ["all", "1,043"] for line in ran.out.splitlines())
    ran = run("eval", folders / "cycle", "--text", short)
    assert ran.code == 0 and "warning: 3 bytes of text are few" in ran.err


def test_parse(run: Any, folders: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.json"
    prompts.write_text('{"prompt": "ab"}\n{"prompt": "x", "id": "b"}\n')
    line = ("eval", folders / "cycle", "--parse", "python", "--prompts", prompts, "--max-tokens", 12, "--json", out)
    ran = run(*line, "--heads", folders / "right")
    assert ran.code == 0 and "python: 0 of 0 answers parse (n/a); 0 do not, 0 are empty; 2 more were cut off" in ran.out
    assert "warning: 2 of 2 answers were cut off" in ran.err and "3.67" in ran.out  # 1 + 4 + 4 + 3 tokens
    found = json.loads(out.read_text())["parse"]
    assert [(a["text"], a["finish_reason"], a["outcome"]) for a in found["answers"]] == [
        ("cdefghijklmn", "length", "cut off"),
        ("yzabcdefghij", "length", "cut off"),
    ]
    assert found["answers"][1]["prompt"].endswith("p.jsonl:2") and found["speculation"]["num_tokens"] == 24
    assert (
        run(*line, "--num-prompts", 1).out.startswith("python: 0 of 0")
        and "1 of 1 answers" in run(*line, "--num-prompts", 1).err
    )


@pytest.mark.parametrize(
    ("max_tokens", "second", "line", "warnings"),
    [
        (20, "c" * 246, "2 more were cut off (1 at 20 tokens, 1 by the end of the context)", ["20 tokens", "context"]),
        (500, "c" * 246, "2 more were cut off by the end of the context and", ["context"]),
        (10, "c" * 246, "2 more were cut off (1 at 10 tokens, 1 by the end of the context)", ["10 tokens", "context"]),
        (10, "c" * 245, "2 more were cut off at 10 tokens and", ["10 tokens"]),
    ],
)
def test_the_cause_of_a_cut_is_the_true_one(
    run: Any, folders: Path, tmp_path: Path, max_tokens: int, second: str, line: str, warnings: list[str]
) -> None:
    """A context of 256 tokens: with 246 of them for the prompt there is room for 10, however many are asked for."""
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.json"
    prompts.write_text(json.dumps({"prompt": "ab"}) + "\n" + json.dumps({"prompt": second}) + "\n")
    asked = ("--parse", "python", "--prompts", prompts, "--max-tokens", max_tokens)
    ran = run("eval", folders / "cycle", *asked, "--json", out)
    said = [warning for warning in json.loads(out.read_text())["warnings"] if "cut off" in warning]
    assert ran.code == 0 and line in ran.out
    assert len(said) == len(warnings) and all(f"warning: {warning}" in ran.err for warning in said)
    for warning, word in zip(said, warnings, strict=True):
        is_full = word == "context"
        assert word in warning and ("give a larger --max-tokens" in warning) != is_full
        assert ("where the context of 256 tokens was full" in warning) == is_full


def test_all_three_share_a_report(run: Any, folders: Path, task: Path, text: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.json"
    prompts.write_text('{"prompt": "ab"}\n')
    asked = ("--tasks", task, "--text", text, "--parse", "json", "--prompts", prompts, "--max-tokens", 4)
    ran = run("eval", folders / "cycle", *asked, "--json", out)
    assert ran.code == 0 and {"tasks", "text", "parse"} <= json.loads(out.read_text()).keys()


def test_prompts_that_look_random_and_outputs_that_repeat(run: Any, folders: Path, task: Path, tmp_path: Path) -> None:
    """A random model finds any prompt as unlikely as random ones; a cycle of 26 letters repeats itself."""
    (tmp_path / "letters.jsonl").write_text(json.dumps({"text": "How do I boil an egg?", "next": "c"}) + "\n")
    ran = run("eval", folders / "random", "--tasks", task)
    assert ran.code == 0 and "warning: letters: the model finds the prompts no likelier than random" in ran.err
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "abcdef"}\n')
    ran = run("eval", folders / "cycle", "--parse", "json", "--prompts", prompts, "--max-tokens", 120)
    assert "warning: 1 of 1 outputs, and most of their tokens, repeat themselves" in ran.err


def test_files_that_the_heads_were_trained_on(run: Any, folders: Path, text: Path, tmp_path: Path) -> None:
    heads = tmp_path / "heads"
    shutil.copytree(folders / "right", heads)
    config = json.loads((heads / "mtp_config.json").read_text())
    config["training"] = {"recipe": {"data": {"files": [str(text)]}}}
    (heads / "mtp_config.json").write_text(json.dumps(config))
    ran = run("eval", folders / "cycle", "--heads", heads, "--text", text)
    assert ran.code == 0 and f"warning: the heads were trained on {text}" in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "nothing to measure; give --tasks, --text or --parse"),
        (["--parse", "python"], "--parse: there is nothing to answer"),
        (["--parse", "cobol", "--prompts", "PROMPTS"], "cobol"),
        (["--prompts", "PROMPTS"], "--prompts: it belongs to --parse"),
        (["--text", "TEXT", "--limit", "3"], "--limit: it belongs to --tasks"),
        (["--text", "TEXT", "--chat"], "--chat: it belongs to --tasks"),
        (["--text", "TEXT", "--depth", "1"], "--depth: --text decodes nothing"),
        (["--parse", "json", "--prompts", "PROMPTS", "--window", "9"], "--window: it belongs to --text"),
        (["--parse", "json", "--prompts", "PROMPTS", "--depth", "2"], "no heads"),
        (["--parse", "json", "--prompts", "PROMPTS", "--max-tokens", "0"], "--max-tokens"),
        (["--text", "TEXT", "--window", "257"], "--text: window 257"),
        (["--text", "TEXT", "--window", "1"], "--window"),
        (["--text", "TEXT", "--stride", "nan"], "--stride"),
        (["--text", "TEXT", "--batch", "0"], "--batch"),
        (["--tasks", "gone.yaml", "--include-path", "TEXT"], "--include-path"),
        (["--text", "TEXT", "--json", "TEXT"], "--json"),
    ],
)
def test_usage_errors(run: Any, folders: Path, text: Path, tmp_path: Path, options: list[str], words: str) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n')
    names = {"TEXT": str(text), "PROMPTS": str(tmp_path / "p.jsonl")}
    ran = run("eval", folders / "cycle", *[names.get(option, option) for option in options])
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    assert words in ran.err


@pytest.mark.parametrize(
    ("option", "content", "words"),
    [
        ("--text", b"", "is empty"),
        ("--text", b"\xff", "not UTF-8"),
        ("--text", None, "cannot be read"),
        ("--prompts", b"", "no records"),
        ("--prompts", b'{"prompt": 3}', "file:1"),
        ("--prompts", b"\xff\xfe", "not UTF-8"),
        ("--prompts", b'{"prompt": "%s"}' % (b"a" * 300), "the prompt has 300 tokens"),
    ],
)
def test_files_that_cannot_be_used(
    run: Any, folders: Path, tmp_path: Path, option: str, content: bytes | None, words: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    mode = ["--parse", "json"] if option == "--prompts" else []
    ran = run("eval", folders / "cycle", *mode, option, file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1), ran.err
    assert words in ran.err


def test_without_lm_eval(run: Any, folders: Path, task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.cli.eval.find_spec", lambda name: None)
    ran = run("eval", folders / "cycle", "--tasks", task)
    assert ran.code == 2 and "pip install 'foretell[eval]'" in ran.err
