"""``foretell compare``: every drafter in one run, with figures that are known for scripted ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from foretell.analysis.compare import TokenTime
from foretell.analysis.contenders import contenders_of
from foretell.analysis.entries import entries_of
from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.config import HeadsConfig
from foretell.decoding import judge
from foretell.models.build import build_heads
from foretell.types import Draft, Verdict


@pytest.fixture
def medusa(folders: Path, tmp_path: Path) -> Path:
    """Random Medusa heads for the trunk that counts through the alphabet."""
    torch.manual_seed(0)
    heads = build_heads(load_trunk(folders / "cycle"), HeadsConfig(kind="medusa", num_depths=2))
    save_adapter(heads, tmp_path / "medusa", dtype=torch.float32)
    return tmp_path / "medusa"


def compared(run: Any, folders: Path, prompts: Path, out: Path, *options: object) -> tuple[Any, dict[str, Any]]:
    line = ("compare", folders / "cycle", "--prompts", prompts, "--dtype", "float32", "--max-tokens", 13)
    ran = run(*line, "--json", out, *options)
    return ran, json.loads(out.read_text())


def test_every_system_once(run: Any, folders: Path, prompts: Path, medusa: Path, tmp_path: Path) -> None:
    adapters = ("--heads", folders / "right", folders / "two", medusa)
    ran, data = compared(
        run, folders, prompts, tmp_path / "c.json", *adapters, "--draft-model", folders / "cycle", "--depths", "2"
    )
    assert ran.code == 0 and "All texts are plain decoding's." in ran.out
    names = ["sequential", "sequential-distinct", "medusa", "draft-model"]
    systems = {s["name"]: s for s in data["systems"]}
    assert list(systems) == [*names, "ngram", *(f"ngram+{name}" for name in names)]
    assert systems["draft-model"]["extra_parameters"] > 0 == systems["ngram"]["extra_parameters"]
    everywhere = {r["name"]: r for r in data["runs"] if r["domain"] == "all"}
    assert list(everywhere) == ["plain", *systems]
    for name in ("sequential", "sequential-distinct", "draft-model"):
        assert everywhere[name]["acceptance_by_depth"] == [1.0, 1.0]
        assert everywhere[name]["mean_acceptance_length"] == 3.0
        assert everywhere[name]["extra_memory_bytes"] > 0 and everywhere[name]["draft_overhead"] > 0
    assert everywhere["medusa"]["acceptance_by_depth"][0] < 0.5
    assert everywhere["plain"]["speedup"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert all(r["token_ms"]["median"] <= r["token_ms"]["p95"] for r in data["runs"])
    assert {r["domain"] for r in data["runs"]} == {"all", "letters", "code"}
    samples = [s for s in data["samples"] if s["name"] == "sequential"]
    assert [s["num_tokens"] for s in samples] == [[13]] * 3  # raw, one a prompt
    assert samples[0]["num_steps"] == 4  # 12 tokens behind the first, three a step
    assert everywhere["sequential"]["tokens_per_pass"] == 3.0 and everywhere["sequential"]["share_drafted"] == 1.0
    assert everywhere["plain"]["tokens_per_pass"] == 1.0 and everywhere["plain"]["share_drafted"] == 0.0
    assert everywhere["ngram"]["tokens_per_pass"] == 1.0  # no letter occurs twice in so few
    assert everywhere["sequential"]["speedup_over_chain"] is None
    rates = sorted(s["tokens_per_s"] for s in samples)
    assert everywhere["sequential"]["decode_tokens_per_s"]["median"] == rates[1]


def test_trees_and_batches(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    page = tmp_path / "c.html"
    options = (
        "--heads",
        folders / "right",
        "--no-ngram",
        "--nodes",
        "4",
        "--batch",
        "1,2",
        "--depths",
        "2",
        "--html",
        page,
    )
    ran, data = compared(run, folders, prompts, tmp_path / "c.json", *options)
    assert ran.code == 0 and "<svg" in page.read_text() and "sequential, one module" in page.read_text()
    keys = {(r["batch"], r["name"], r["num_nodes"], r["mode"]) for r in data["runs"]}
    assert keys == {
        *((1, name, nodes, "decode") for name, nodes in (("plain", 0), ("sequential", 0), ("sequential", 4))),
        *((2, name, nodes, "end-to-end") for name, nodes in (("plain", 0), ("sequential", 0), ("sequential", 4))),
    }
    assert [(s["name"], s["num_nodes"]) for s in data["systems"]] == [("sequential", 0), ("sequential", 4)]
    threads = data["environment"]["threads"]
    assert f", {threads} thread{'s' * (threads != 1)}, float32" in ran.out


def test_a_wrong_text_fails(
    run: Any, folders: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accept_all(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
        return Verdict(list(range(len(draft))), argmax_ids[-1], True)

    monkeypatch.setattr(judge, "verify_greedy", accept_all)
    out = tmp_path / "c.json"
    line = ("compare", folders / "random", "--heads", folders / "noise", "--prompts", prompts, "--dtype", "float32")
    ran = run(*line, "--no-ngram", "--json", out, "--max-tokens", 13)
    assert ran.code == 1 and "NOT all near ties" in ran.out
    assert {d["name"] for d in json.loads(out.read_text())["differences"]} == {"sequential"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--depths", "0"), '--depths: "0" drafts nothing'),
        (("--depths", "x"), '--depths: "x" is not allowed'),
        (("--heads", "{right}", "{right}"), "--heads: .* is given twice"),
        (("--heads", "{two}", "--depths", "3"), "--depths: depths 3: sequential, 2 modules drafts 2 tokens at most"),
        (("--no-ngram",), "nothing to compare"),
        (("--html", "x.html"), "--html: x.html is made of the file that --json writes"),
        (("--nodes", "1"), '--nodes: "1" is not allowed'),
        (("--batch", "9"), "--batch: a batch of 9 needs"),
        (("--heads", "{missing}"), "missing"),
    ],
)
def test_what_cannot_be_compared(
    run: Any, folders: Path, prompts: Path, options: tuple[str, ...], message: str
) -> None:
    import re

    named = [o.format(right=folders / "right", two=folders / "two", missing=folders / "missing") for o in options]
    ran = run("compare", folders / "cycle", "--prompts", prompts, "--dtype", "float32", *named)
    assert ran.code in (1, 2) and re.search(message, ran.err.splitlines()[-1]), ran.err


def test_names_tell_two_adapters_of_one_kind_apart(folders: Path) -> None:
    trunk = load_trunk(folders / "cycle")
    heads = [(name, build_heads(trunk, HeadsConfig())) for name in ("x/a", "x/b", "y/b")]
    found = contenders_of(trunk, heads, look_up=False)
    assert [contender.name for contender in found] == ["sequential:a", "sequential:x/b", "sequential:y/b"]


def test_depths_beyond_a_contender_are_left_out_for_it(folders: Path) -> None:
    trunk = load_trunk(folders / "cycle")
    distinct = build_heads(trunk, HeadsConfig(num_modules=2, num_depths=2))
    entries = entries_of(contenders_of(trunk, [("x", distinct)]), [1, 3], [2])
    chains = [(e.name, e.depth) for e in entries if not e.num_nodes]
    assert chains == [
        ("sequential-distinct", 1),
        ("ngram", 1),
        ("ngram", 3),
        *[("ngram+sequential-distinct", d) for d in (1, 3)],
    ]


def test_time_of_a_token() -> None:
    """100 requests of 1 to 100 ms a token."""
    found = TokenTime.of([1000 / ms for ms in range(1, 101)])
    assert found is not None and found.median == pytest.approx(50.5) and found.p95 == pytest.approx(95.05)
    assert TokenTime.of([]) is None
