from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests import fixtures


def test_text_on_stdout_and_numbers_on_stderr(run: Any, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "done.json"
    ran = run("generate", folders / "cycle", "a", "--heads", folders / "right", "--max-tokens", 9, "--json", out)
    assert (ran.code, ran.out) == (0, "bcdefghij\n")
    start, numbers, _ = ran.err.splitlines()
    assert start.startswith("heads: sequential") and "trained to 3" in start and "trunk match: yes (cycle)" in start
    assert numbers.startswith("9 tokens") and "mean acceptance length 4.00" in numbers
    assert numbers.endswith("acceptance by depth 1.00 1.00 1.00")
    data = json.loads(out.read_text())
    assert data["text"] == "bcdefghij" and data["depth"] == 3 and data["stats"]["num_accepted_tokens"] == 6


def test_same_text_at_depth_0_with_a_hint_and_no_draft(run: Any, folders: Path) -> None:
    ran = run("generate", folders / "cycle", "a", "--heads", folders / "right", "--depth", 0, "--max-tokens", 9)
    assert (ran.code, ran.out) == (0, "bcdefghij\n")
    assert "hint:" in ran.err and "--depth 3" in ran.err and "n/a (nothing drafted)" in ran.err


def test_without_heads_it_is_plain(run: Any, folders: Path) -> None:
    ran = run("generate", folders / "cycle", "a", "--max-tokens", 3)
    assert (ran.code, ran.out) == (0, "bcd\n")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("heads", "depth", "words"),
    [(None, 2, ["--depth", "depth 2", "no heads"]), ("two", 3, ["--depth", "depth 3", "2 trained modules"])],
)
def test_a_depth_that_cannot_be_drafted(
    run: Any, folders: Path, heads: str | None, depth: int, words: list[str]
) -> None:
    given = ["--heads", folders / heads] if heads else []
    ran = run("generate", folders / "cycle", "a", "--depth", depth, *given)
    assert (ran.code, ran.out) == (2, "")
    for word in words:
        assert word in ran.err.splitlines()[-1]


def test_heads_of_another_model_are_refused(run: Any, folders: Path) -> None:
    ran = run("generate", folders / "random", "a", "--heads", folders / "right")
    assert ran.code == 1 and "hidden_size" in ran.err and ran.err.count("\n") == 1


def test_prompt_from_standard_input(run: Any, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("abc"))
    assert run("generate", folders / "cycle", "-", "--max-tokens", 2).out == "de\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ran = run("generate", folders / "cycle", "-")
    assert ran.code == 2 and "standard input" in ran.err


def test_stop_and_chat(run: Any, folders: Path) -> None:
    assert run("generate", folders / "cycle", "a", "--stop", "f", "--stop", "k").out == "bcde\n"
    ran = run("generate", folders / "cycle", "a", "--chat")
    assert ran.code == 2 and "chat template" in ran.err
    plain = run("generate", folders / "random", "hello", "--max-tokens", 4)
    assert run("generate", folders / "random", "hello", "--max-tokens", 4, "--chat").out == plain.out


def test_a_prompt_may_look_like_an_option(run: Any, folders: Path) -> None:
    assert run("generate", folders / "cycle", "--max-tokens", 2, "--", "-a").out == "bc\n"


def test_seed_repeats_a_sample(run: Any, folders: Path) -> None:
    line = ("generate", folders / "random", "hello", "--temperature", 1, "--heads", folders / "noise", "--seed", 5)
    assert run(*line, "--max-tokens", 8).out == run(*line, "--max-tokens", 8).out


def test_look_up_needs_no_heads(run: Any, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    line = ("generate", folders / "cycle", "a", "--max-tokens", 60, "--drafter", "ngram", "--json", out)
    plain = run(*line, "--depth", 0)
    assert json.loads(out.read_text())["drafter"] is None
    drafted = run(*line)
    found = json.loads(out.read_text())
    assert drafted.code == 0 and drafted.out == plain.out
    assert (found["drafter"], found["depth"], found["stats"]["acceptance_rate"]) == ("ngram", 3, 1.0)
    assert found["num_rounds"] == 26 + -(-34 // 4)  # "a" comes again after 26 tokens


@pytest.mark.parametrize(("given", "name"), [((), "model"), (("--drafter", "ngram+model"), "ngram+model")])
def test_a_draft_model(run: Any, folders: Path, tmp_path: Path, given: tuple[str, ...], name: str) -> None:
    out = tmp_path / "out.json"
    line = ("generate", folders / "cycle", "a", "--max-tokens", 9, "--draft-model", folders / "cycle", "--depth", 2)
    ran = run(*line, *given, "--json", out)
    found = json.loads(out.read_text())
    assert ran.code == 0 and ran.out == "bcdefghij\n"
    assert (found["drafter"], found["stats"]["acceptance_rate"], found["num_rounds"]) == (name, 1.0, 4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--drafter", "model"), ["--drafter model", "--draft-model"]),
        (("--drafter", "ngram", "--draft-model", "cycle"), ["--draft-model", "ngram uses none"]),
        (("--drafter", "heads"), ["--drafter", "cycle has no heads"]),
        (("--drafter", "ngram+heads"), ["--drafter", "cycle has no heads"]),
        (("--drafter", "beam"), ["--drafter", "beam"]),
        (("--draft-model", "nowhere"), ["nowhere"]),
        (("--draft-model", "other"), ["--draft-model", "vocabularies of 300 and 260 tokens"]),
    ],
)
def test_drafters_that_do_not_fit(
    run: Any, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], words: list[str]
) -> None:
    monkeypatch.chdir(folders)
    if "other" in given:
        fixtures.tiny_llama(vocab_size=300).save_pretrained(tmp_path / "other")
        given = (given[0], str(tmp_path / "other"))
    ran = run("generate", "./cycle", "a", *(f"./{word}" if word == "cycle" else word for word in given))
    assert ran.code != 0 and ran.out == "" and all(word in ran.err for word in words)
    assert len([line for line in ran.err.splitlines() if line.startswith("error")]) == 1


def test_heads_that_another_drafter_leaves_unused_are_pointed_out(run: Any, folders: Path) -> None:
    ran = run("generate", folders / "cycle", "a", "--heads", folders / "right", "--drafter", "ngram", "--max-tokens", 3)
    assert ran.code == 0 and "--drafter ngram leaves them unused" in ran.err


def test_depth_auto(run: Any, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    line = ("generate", folders / "cycle", "a", "--max-tokens", 40)
    plain = run(*line).out
    ran = run(*line, "--heads", folders / "right", "--depth", "auto", "--json", out)
    found = json.loads(out.read_text())
    assert ran.code == 0 and ran.out == plain and found["depth"] == "auto"
    assert found["stats"]["num_accepted_tokens"] > 0  # the policy's first steps draft in any case
    ran = run(*line, "--depth", "auto")
    assert ran.code == 0 and ran.out == plain and "auto is plain decoding" in ran.err


def test_a_tree(run: Any, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    line = ("generate", folders / "random", "hello", "--heads", folders / "noise", "--max-tokens", 12)
    plain = run(*line, "--depth", 0)
    ran = run(*line, "--depth", 2, "--nodes", 6, "--json", out)
    found = json.loads(out.read_text())
    assert ran.code == 0 and ran.out == plain.out and found["num_nodes"] == 6
    most = max(found["stats"]["num_draft_tokens_per_pos"])
    assert found["stats"]["num_draft_tokens"] > 2 * most  # more nodes than a chain of two has
    assert run(*line, "--depth", "auto", "--nodes", 6).out == plain.out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--heads", "right", "--nodes", 3), ["--nodes: 3 nodes at depth 3", "at least 4"]),
        (("--heads", "right", "--nodes", 4, "--depth", 0), ["--nodes", "nothing is drafted at depth 0"]),
        (("--nodes", 4, "--depth", "auto"), ["--nodes", "nothing is drafted at depth auto"]),
        (("--drafter", "ngram", "--nodes", 4), ["--nodes", "ngram without heads drafts chains"]),
        (("--draft-model", "cycle", "--nodes", 4), ["--nodes", "model without heads drafts chains"]),
        (("--heads", "right", "--nodes", 5, "--exact"), ["--nodes", "exact"]),
        (("--heads", "right", "--depth", 8, "--exact"), ["--exact", "at most 7"]),
        (("--params", "logprobs=2"), ["--params logprobs", "--json FILE"]),
        (("--params", 'logit_bias={"9999": 1}'), ["--params logit_bias", "9999 is not a token"]),
        (("--params", "regex=("), ["--params regex", "cannot be compiled"]),
    ],
)
def test_what_does_not_fit(run: Any, folders: Path, given: tuple[object, ...], words: list[str]) -> None:
    ran = run("generate", folders / "cycle", "a", *(folders / g if g in ("right", "cycle") else g for g in given))
    assert (ran.code, ran.out) == (2, "") and ran.err.splitlines()[-1].startswith("error: ")
    for word in words:
        assert word in ran.err.splitlines()[-1]


def test_exact_gives_the_same_text(run: Any, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    line = ("generate", folders / "random", "hello", "--max-tokens", 12, "--exact", "--json", out)
    plain = run(*line)
    drafted = run(*line, "--heads", folders / "noise", "--depth", 3)
    found = json.loads(out.read_text())
    assert drafted.code == 0 and drafted.out == plain.out
    assert found["exact"] and found["stats"]["num_draft_tokens"] > 0


def test_rules_change_the_text_and_drafts_do_not(run: Any, folders: Path) -> None:
    line = ("generate", folders / "random", "a", "--heads", folders / "noise", "--max-tokens", 30)
    for pair in ("repetition_penalty=2", "frequency_penalty=1.5", "json_object=true", 'logit_bias={"70": 100}'):
        plain, drafted = (run(*line, "--depth", depth, "--params", pair) for depth in (0, 3))
        assert plain.code == drafted.code == 0
        assert plain.out == drafted.out != run(*line).out


def test_several_completions(run: Any, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    line = ("generate", folders / "random", "hello", "--max-tokens", 6, "--temperature", 1, "--seed", 5, "--json", out)
    run(*line)
    first = json.loads(out.read_text())
    assert "completions" not in first
    ran = run(*line, "--params", "n=3")
    found = json.loads(out.read_text())
    texts = [done["text"] for done in found["completions"]]
    assert ran.out == "".join(f"--- {i} of 3 ---\n{text}\n" for i, text in enumerate(texts, start=1))
    num_tokens = sum(len(done["token_ids"]) for done in found["completions"])
    assert f"{num_tokens} tokens |" in ran.err and len(set(texts)) == 3
    assert found["text"] == texts[0] == first["text"] and found["token_ids"] == first["token_ids"]


def test_logprobs_go_to_the_json_file(run: Any, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    line = ("generate", folders / "cycle", "ab", "--heads", folders / "right", "--max-tokens", 6, "--json", out)
    ran = run(*line, "--params", "logprobs=2", "--params", "prompt_logprobs=0")
    found = json.loads(out.read_text())
    assert ran.out == "cdefgh\n"
    assert [entry["token"] for entry in found["logprobs"]] == list("cdefgh")
    for entry in found["logprobs"]:
        assert [len(entry["top"]), entry["top"][0]["token"], entry["top"][0]["logprob"]] == [
            2,
            entry["token"],
            entry["logprob"],
        ]
        assert -0.01 < entry["logprob"] < 0
    assert found["prompt_logprobs"][0] is None and found["prompt_logprobs"][1]["token"] == "b"
    assert run(*line).code == 0 and "logprobs" not in json.loads(out.read_text())


def test_a_lossy_option_says_so(run: Any, folders: Path) -> None:
    line = ("generate", folders / "random", "hello", "--max-tokens", 4, "--temperature", 1)
    lossy = ("--params", "typical_acceptance=0.2")
    ran = run(*line, *lossy, "--heads", folders / "noise")
    assert ran.code == 0 and "LOSSY" in ran.err
    for plain in ((), ("--heads", folders / "noise", "--depth", 0), ("--depth", "auto")):
        ran = run(*line, *lossy, *plain)
        assert ran.code == 0 and "LOSSY" not in ran.err


@pytest.mark.parametrize("given", [("--seed", 1), ("--top-p", 0.9), ("--top-k", 4), ("--min-p", 0.1)])
def test_what_greedy_decoding_has_no_use_for_is_pointed_out(run: Any, folders: Path, given: tuple[object, ...]) -> None:
    line = ("generate", folders / "cycle", "a", "--max-tokens", 2, *given)
    ran = run(*line)
    assert ran.code == 0 and f"hint: at temperature 0 the likeliest token is taken, so {given[0]}" in ran.err
    assert "hint" not in run(*line, "--temperature", 1).err


def test_the_report_says_how_to_have_the_text_again(run: Any, folders: Path, tmp_path: Path) -> None:
    out, heads = tmp_path / "out.json", folders / "noise"
    line = ("generate", folders / "random", "hello", "--heads", heads, "--temperature", 1, "--max-tokens", 8)
    ran = run(*line, "--params", "min_tokens=8", "--dtype", "float32", "--json", out)
    found = json.loads(out.read_text())
    assert (found["model"], found["heads"], found["prompt"]) == (str(folders / "random"), str(heads), "hello")
    assert (found["dtype"], found["chat"], found["draft_model"]) == ("float32", False, None)
    sampling = found["sampling"]
    assert (sampling["temperature"], sampling["min_tokens"], sampling["max_tokens"]) == (1.0, 8, 8)
    again = run(*line, "--params", "min_tokens=8", "--dtype", "float32", "--seed", sampling["seed"])
    assert again.out == ran.out
    run("generate", folders / "cycle", "a", "--json", out)
    assert json.loads(out.read_text())["sampling"]["seed"] is None


def test_bytes_that_are_no_text(run: Any, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for errors in ("strict", "surrogateescape"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff\xfe"), "utf-8", errors))
        ran = run("generate", folders / "cycle", "-")
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1) and "no text in UTF-8" in ran.err
