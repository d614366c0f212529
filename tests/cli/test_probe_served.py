"""--served: numbers, or the chain of a bench file; what holds none is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretell.cli.probe_served import parse_served
from foretell.errors import UsageError
from tests.planning.models import bench, run, write_json


def heads(batch: int, depth: int, shares: list[float], **more: Any) -> dict[str, Any]:
    return run(batch, depth, 20.0, shares=shares, **{"drafter": "heads", **more})


def test_numbers_and_here() -> None:
    assert parse_served("here") is None and parse_served("0.5,0.25") == [0.5, 0.25]
    with pytest.raises(UsageError, match="none above the one before"):
        parse_served("0.25,0.5")


def test_a_bench_file_gives_the_deepest_chain_of_heads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of batch 1 where that was measured, else of the smallest; no tree, no other drafter, no single domain."""
    single = [heads(1, 1, [0.9]), heads(1, 2, [0.6, 0.3])]
    others = [
        heads(4, 2, [0.4, 0.1]),
        heads(2, 3, [0.5, 0.2, 0.1]),
        heads(1, 3, [0.8, 0.7, 0.6], num_nodes=6),
        heads(1, 4, [0.8, 0.7, 0.6, 0.5], domain="code"),
        heads(1, 4, [0.8, 0.7, 0.6, 0.5], drafter="ngram"),
        {**heads(1, 2, [0.8, 0.7]), "depth": "auto"},
        run(1, 0, 10.0, drafter=None),
    ]
    assert parse_served(str(write_json(tmp_path / "b.json", bench(*others, *single)))) == [0.6, 0.3]
    assert capsys.readouterr().err == (
        "served figures are those of: foretell bench demo --repeats 1; give its prompts and --max-tokens here\n"
    )
    assert parse_served(str(write_json(tmp_path / "b.json", bench(*others)))) == [0.5, 0.2, 0.1]


BAD: list[tuple[Any, str]] = [
    ("not JSON", "broken JSON"),
    (b"\xff\xfe", "cannot be read"),
    ("[" * 100_000, "recursion"),
    ("1" * 10_000, "digits"),
    ([], "holds a list"),
    ({}, 'no "runs" in it'),
    ({"runs": 3}, "runs is no list"),
    ({"runs": []}, "no run of ours with chains"),
    ({"compare": True, "runs": [{"name": "parallel"}]}, r"holds 1 systems side by side \(parallel\)"),
    (bench(run(1, 2, 20.0, drafter="ngram")), "drafted by ngram, not by heads"),
    (bench(run(1, 2, 20.0)), "drafted by nobody it names"),
    (bench(heads(1, 1, [1.5])), "share from 0 to 1"),
    (bench(heads(1, 1, [float("nan")])), "expected a number"),
    (bench(heads(1, 1, [0.5]) | {"batch": "4"}), "batch is '4'"),
    (bench(heads(1, 1, [0.5])) | {"environment": 3}, "environment is 3"),
]


@pytest.mark.parametrize(("values", "says"), BAD)
def test_what_holds_no_chain_is_one_line(values: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(values if isinstance(values, bytes) else str(values).encode() if isinstance(values, str) else
                     json.dumps(values).encode())  # fmt: skip
    with pytest.raises(UsageError, match=f"--served: .*{says}.*Give here, numbers") as caught:
        parse_served(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["none.json", ".", "x" * 5000, "0.5;0.3"])
def test_what_cannot_be_read_is_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--served: .*cannot be read.*Give here, numbers") as caught:
        parse_served(str(tmp_path / name))
    assert "\n" not in str(caught.value)
