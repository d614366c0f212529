"""distill, train, probe and inspect: thin, so one run each and their own errors."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest


def test_distill_writes_answers_and_goes_on(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    first = run("distill", folders / "cycle", prompts, answers, "--max-tokens", 4, "--limit", 2)
    assert (first.code, first.out) == (0, "")
    assert "2 answers written (8 tokens), 0 were there already" in first.err
    second = run("distill", folders / "cycle", prompts, answers, "--max-tokens", 4)
    assert "1 answers written (4 tokens), 2 were there already" in second.err
    texts = [json.loads(line)["text"] for line in answers.read_text().splitlines()]
    assert sorted(texts) == ["abcd", "bcde", "klmn"]


def test_distill_says_how_far_it_is_where_there_is_no_terminal(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr("foretell.cli.progress._NOTE_EVERY_S", 0.0)
    sampling = ("--temperature", 1, "--top-k", 5, "--min-p", 0.1, "--max-tokens", 4)
    ran = run("distill", folders / "random", prompts, tmp_path / "answers.jsonl", *sampling)
    assert "answers (4 tokens): 1 of 3 ..." in ran.err and "answers (12 tokens): 3 of 3 ..." in ran.err
    record = json.loads((tmp_path / "answers.jsonl").read_text().splitlines()[0])
    assert (record["temperature"], record["top_k"], record["min_p"], record["trunk"]) == (1.0, 5, 0.1, "random")


def test_distill_leaves_other_files_alone(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    mine = tmp_path / "thesis.txt"
    mine.write_text("all in one line")
    ran = run("distill", folders / "cycle", prompts, mine)
    assert ran.code == 1 and "thesis.txt:1" in ran.err and mine.read_text() == "all in one line"
    before = prompts.read_text()
    ran = run("distill", folders / "cycle", prompts, prompts)
    assert ran.code == 2 and "is the prompts file" in ran.err and prompts.read_text() == before


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("another text", '{"prompt": "b"}\n{"prompt": "hij"}\n{"domain": "code", "prompt": "xyz"}\n'),
        ("fewer prompts", '{"id": "7", "prompt": "a"}\n'),
        ("a chat", '{"messages": [{"role": "user", "content": "a"}]}\n{"prompt": "hij"}\n'),
    ],
)
def test_distill_goes_on_with_the_same_prompts_only(
    run: Any, folders: Path, prompts: Path, tmp_path: Path, name: str, other: str
) -> None:
    answers, others = tmp_path / "answers.jsonl", tmp_path / "others.jsonl"
    others.write_text(other)
    line = ("distill", folders / "cycle")
    assert run(*line, prompts, answers, "--max-tokens", 4, "--limit", 2).code == 0
    before = answers.read_bytes()
    ran = run(*line, others, answers, "--max-tokens", 4)
    assert ran.code == 2 and "answers.jsonl:1 answers another prompt than" in ran.err and "others.jsonl" in ran.err
    assert answers.read_bytes() == before
    answers.write_bytes(before[:-9])  # torn: the next run mends it
    assert run(*line, prompts, answers, "--max-tokens", 4).code == 0


def test_distill_writes_to_files_only(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    ran = run("distill", folders / "cycle", prompts, tmp_path / "fifo")
    assert ran.code == 2 and "OUTPUT" in ran.err and "no regular file" in ran.err
    ran = run("distill", folders / "cycle", prompts, prompts / "x.jsonl")
    assert ran.code == 2 and "OUTPUT" in ran.err and "is no folder" in ran.err


@pytest.mark.parametrize("command", ["bench", "verify", "demo"])
def test_a_prompt_that_is_too_long_is_named(run: Any, folders: Path, tmp_path: Path, command: str) -> None:
    long = tmp_path / "long.jsonl"
    long.write_text(f'{{"prompt": "a"}}\n\n{{"prompt": "{"a" * 300}"}}\n')
    model = ("--model", folders / "cycle") if command == "demo" else (folders / "cycle",)
    ran = run(command, *model, "--heads", folders / "right", "--prompts", long)
    assert ran.code == 1 and "long.jsonl:3: the prompt has 300 tokens" in ran.err


def test_probe_reports_every_depth(run: Any, folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "text.jsonl"
    data.write_text('{"text": "abcdefghijkl"}\n')
    ran = run("probe", folders / "cycle", "--data", data, "--heads", folders / "right", "--json", tmp_path / "out.json")
    assert ran.code == 0 and "mean acceptance length to expect at depth 3: 4.00" in ran.out
    report = json.loads((tmp_path / "out.json").read_text())
    assert [d["agreement"] for d in report["depths"]] == [1.0, 1.0, 1.0] and report["num_records"] == 1
    assert report["model"] == "cycle"


def test_probe_on_texts_that_mean_nothing_says_so(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    """C42: noise, circles, copies, text that the heads were trained on; and none of it for a sound text."""
    data, out, heads = tmp_path / "text.jsonl", tmp_path / "out.json", tmp_path / "heads"
    shutil.copytree(folders / "right", heads)
    config = json.loads((heads / "mtp_config.json").read_text())
    config["training"] = {"recipe": {"data": {"files": [str(prompts)]}}}
    (heads / "mtp_config.json").write_text(json.dumps(config))

    def warnings(text: str, *line: object) -> list[str]:
        data.write_text(text)
        ran = run("probe", *line, "--json", out)
        found: list[str] = json.loads(out.read_text())["warnings"]
        assert ran.code == 0 and all(f"warning: {warning}" in ran.err for warning in found), ran.err
        assert ran.err.count("warning: ") == len(found)
        return found

    right = (folders / "cycle", "--data", data, "--heads", folders / "right")
    letters = '{"text": "abcdefghijkl"}\n'
    assert warnings(letters, *right) == []
    [found] = warnings(
        '{"text": "How do I boil an egg?"}\n', folders / "random", *right[1:3], "--heads", folders / "noise"
    )
    assert found.startswith("the model finds the texts no likelier than random tokens")
    [found] = warnings(json.dumps({"text": "abcdefghijklmnopqrstuvwxyz" * 5}), *right)
    assert found.startswith("1 of 1 texts repeat themselves") and "same text): acceptance measures" in found
    [found] = warnings(letters * 5, *right)
    assert found.startswith("5 texts are 1 different ones")
    served = ("--served", "here", "--prompts", prompts, "--max-tokens")
    assert warnings(letters, *right, *served, 12) == []
    [found] = warnings(letters, *right, *served, 90)
    assert "3 of 3 outputs, and most of their tokens, repeat" in found
    [found] = warnings(letters, *right[:3], "--heads", heads, *served, 12)
    assert found.startswith(f"the heads were trained on {prompts}")


def test_probe_on_a_text_longer_than_the_context(run: Any, folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "text.jsonl"
    data.write_text(json.dumps({"text": "abcdefghijklmnopqrstuvwxyz" * 20}) + "\n")
    assert run("probe", folders / "cycle", "--data", data, "--heads", folders / "right").code == 0


def test_probe_names_what_is_wrong(run: Any, folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "text.jsonl"
    data.write_text('{"text": "abc"}\n{"txt": "abc"}\n')
    ran = run("probe", folders / "cycle", "--data", data, "--heads", folders / "right")
    assert ran.code == 1 and "text.jsonl:2" in ran.err and ran.err.count("\n") == 1
    data.write_text('{"text": "ab"}\n')
    ran = run("probe", folders / "cycle", "--data", data, "--heads", folders / "right")
    assert ran.code == 1 and "text.jsonl: nothing to probe" in ran.err
    data.write_text('{"text": "abc"}\n')
    ran = run("probe", folders / "cycle", "--data", data, "--heads", folders / "right")
    assert ran.code == 0 and "n/a" in ran.out
    ran = run("probe", folders / "cycle", "--data", data)
    assert ran.code == 2 and "no heads" in ran.err


def test_inspect_prints_what_it_finds(run: Any, folders: Path, tmp_path: Path) -> None:
    ran = run("inspect", folders / "right", "--json", tmp_path / "out.json")
    assert ran.code == 0 and "adapter (heads for a trunk that is elsewhere): 1 file" in ran.out
    assert "one module for 3 depths and more" in ran.out
    assert json.loads((tmp_path / "out.json").read_text())["kind"] == "adapter"
    assert "LlamaForCausalLM: 2 layers, " in run("inspect", folders / "random").out


@pytest.mark.parametrize(
    ("training", "shown"),
    [
        ({"recipe": {"trunk": "t"}, "rate": 0.0002, "num_steps": 12345}, ["rate 0.0002, num_steps 12,345"]),
        (
            {"held_out": {"depths": [{"depth": 1, "agreement": 0.56683, "overlap": None}]}},
            ["depth 1       on held-out text: agreement 0.567"],
        ),
        ({"held_out": "none"}, ["held_out none"]),
        ({"held_out": {"depths": [{"x": 1}]}}, ["agreement n/a"]),
        ({"held_out": {"depths": 3}}, ["'depths': 3"]),
    ],
)
def test_inspect_shows_training_in_brief(
    run: Any, folders: Path, tmp_path: Path, training: dict[str, Any], shown: list[str]
) -> None:
    """Whatever another tool has written there; the recipe is in the JSON alone."""
    adapter = shutil.copytree(folders / "right", tmp_path / "adapter")
    config = json.loads((adapter / "mtp_config.json").read_text())
    (adapter / "mtp_config.json").write_text(json.dumps({**config, "training": training}))
    ran = run("inspect", adapter, "--json", tmp_path / "out.json")
    assert ran.code == 0 and "recipe" not in ran.out
    for line in shown:
        assert line in ran.out
    assert json.loads((tmp_path / "out.json").read_text())["training"] == training


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ('trunk = "t"\noutput = "o"\n[train]\nlearning_rat = 1', ["recipe.toml", "[train]", "learning_rate"]),
        ('trunk = "t"\noutput = "o"\nrun_dir = "r"', ["recipe.toml", "[data] files"]),
    ],
)
def test_a_wrong_recipe_is_one_line(run: Any, tmp_path: Path, recipe: str, words: list[str]) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(recipe)
    ran = run("train", path)
    assert ran.code == 2 and ran.err.count("\n") == 1
    for word in words:
        assert word in ran.err


def test_train_writes_an_adapter_that_other_commands_take(run: Any, folders: Path, tmp_path: Path) -> None:
    data, recipe, adapter = tmp_path / "text.jsonl", tmp_path / "recipe.toml", tmp_path / "adapter"
    data.write_text("".join(f'{{"text": "one two three four {i}"}}\n' for i in range(6)))
    recipe.write_text(
        f"""
        trunk = "{folders / "random"}"
        output = "{adapter}"
        run_dir = "{tmp_path / "run"}"
        dtype = "float32"
        [heads]
        num_depths = 2
        [data]
        files = ["{data}"]
        max_length = 32
        held_out = 0.3
        draft_vocab_size = 0
        [train]
        max_steps = 1
        batch_rows = 2
        cache_states = false
        """
    )
    ran = run("train", recipe, "--json", tmp_path / "out.json")
    assert ran.code == 0 and "mean acceptance length to expect at depth 2" in ran.out
    assert "1 steps" in ran.err and str(adapter) in ran.err
    assert "trained: " in ran.err and "frozen: " in ran.err
    assert json.loads((tmp_path / "out.json").read_text())["num_steps"] == 1
    refused = run("train", recipe, "--overwrite", "--json", tmp_path / "run" / "recipe.json")
    assert refused.code == 2 and "--json" in refused.err
    again = run("train", recipe)
    assert again.code == 2 and "--overwrite" in again.err
    done = run("train", recipe, "--resume")
    assert done.code == 0
    assert "1 steps (1 of them done before)" in done.err and "training loss" not in done.err
    assert run("generate", folders / "random", "one", "--heads", adapter, "--max-tokens", 5).code == 0
