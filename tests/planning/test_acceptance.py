"""Acceptance: conditional and unconditional, from numbers and from reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretell.errors import ForetellError, UsageError
from foretell.planning.acceptance import Acceptance, conditional_from, read_acceptance
from foretell.types import AcceptanceStats
from tests.planning.models import bench, run, write_json


def test_both_definitions_of_case_c42_agree() -> None:
    """Accept list 3,0,1,3,2,0,3,1 with three drafts: 13 of 24 accepted, mean length 2.625."""
    stats = AcceptanceStats()
    for accepted in (3, 0, 1, 3, 2, 0, 3, 1):
        stats.count(3, accepted)
    assert conditional_from(stats.acceptance_by_depth) == pytest.approx((0.75, 2 / 3, 0.75))
    unconditional = Acceptance.parse("0.75,0.5,0.375", unconditional=True)
    conditional = Acceptance.parse("0.75,0.6666667,0.75", unconditional=False)
    for acceptance in (unconditional, conditional):
        assert acceptance.tokens_per_pass(3) == pytest.approx(2.625)
        assert acceptance.tokens_per_pass(0) == 1.0
    assert stats.mean_acceptance_length == 2.625


def test_one_number_is_for_every_depth_and_a_list_ends() -> None:
    assert Acceptance.parse("0.5", False).tokens_per_pass(4) == 1 + 0.5 + 0.25 + 0.125 + 0.0625
    assert Acceptance.parse("0.5", False).max_depth is None
    assert Acceptance.parse("0.5", True).max_depth == 1 and Acceptance.parse("0.5,0.4", False).max_depth == 2


def test_nothing_follows_a_depth_that_is_never_accepted() -> None:
    assert conditional_from([0.4, 0.0, 0.0]) == (0.4, 0.0, 0.0)


@pytest.mark.parametrize("text", ["", "x", "1.1", "-0.1", "nan", "0.5,", "0.5;0.4", "inf", "80%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--acceptance: .*give shares"):
        Acceptance.parse(text, False)


def test_unconditional_shares_cannot_rise() -> None:
    with pytest.raises(UsageError, match="rises"):
        Acceptance.parse("0.5,0.6", True)


def test_a_bench_file_gives_its_deepest_chain_at_that_batch(tmp_path: Path) -> None:
    tree = run(1, 2, 30, num_nodes=6, shares=[0.7, 0.5], mean_acceptance_length=2.1)
    runs = [run(1, 0, 10), run(1, 1, 15), run(1, 2, 20, shares=[0.6, 0.3]), run(4, 2, 20, shares=[0.4, 0.1]), tree]
    path = write_json(tmp_path / "b.json", bench(*runs, {**run(1, 3, 1), "depth": "auto"}))
    assert read_acceptance(path, 1).conditional == pytest.approx((0.6, 0.5))
    assert read_acceptance(path, 4).conditional == pytest.approx((0.4, 0.25))
    assert "at batch 1" in read_acceptance(path, 8).origin
    of_trees = read_acceptance(path, 1, num_nodes=6, depth=2)
    assert of_trees.conditional == pytest.approx((0.7, 5 / 7)) and of_trees.tokens_per_pass(2) == 2.1
    with pytest.raises(ForetellError, match="trees of 8 nodes and depth 2"):
        read_acceptance(path, 1, num_nodes=8, depth=2)


def test_a_probe_file_gives_its_greedy_chains(tmp_path: Path) -> None:
    depths = [{"depth": k, "chained": share} for k, share in ((1, 0.6), (2, 0.3), (3, None))]
    path = write_json(tmp_path / "p.json", {"depths": depths})
    assert read_acceptance(path, 1).conditional == pytest.approx((0.6, 0.5))


def test_of_several_drafters_the_heads_are_taken_and_named(tmp_path: Path) -> None:
    runs = [run(1, 0, 10, drafter=None), run(1, 4, 20, shares=[0.2, 0.1, 0.1, 0.1], drafter="ngram")]
    heads = run(1, 2, 20, shares=[0.6, 0.3], drafter="heads")
    found = read_acceptance(write_json(tmp_path / "b.json", bench(*runs, heads)), 1)
    assert found.conditional == pytest.approx((0.6, 0.5))
    assert found.origin.endswith("b.json, chain of depth 2 at batch 1, drafted by heads")
    alone = read_acceptance(write_json(tmp_path / "b.json", bench(*runs)), 1)
    assert len(alone.conditional) == 4 and alone.origin.endswith("depth 4 at batch 1, drafted by ngram")
    other = run(1, 1, 10, drafter="model")
    with pytest.raises(ForetellError, match=r"several drafters \(ngram, model\), none of them heads"):
        read_acceptance(write_json(tmp_path / "b.json", bench(*runs, other)), 1)


def test_a_comparison_is_no_bench(tmp_path: Path) -> None:
    runs = [run(1, 0, 10, name="plain"), run(1, 2, 20, name="ngram"), run(1, 2, 20, name="heads")]
    path = write_json(tmp_path / "c.json", {"compare": True, **bench(*runs)})
    with pytest.raises(ForetellError, match=r"holds 3 systems side by side \(plain, ngram, heads\); give") as caught:
        read_acceptance(path, 1)
    assert "\n" not in str(caught.value) and "c.json" in str(caught.value)


def test_a_probe_that_walked_over_rounds_gives_those(tmp_path: Path) -> None:
    """Chained over all places is more than decoding accepts: its rounds begin behind a failed guess."""
    depths = [{"depth": 1, "chained": 0.6}, {"depth": 2, "chained": 0.3}]
    path = write_json(tmp_path / "p.json", {"depths": depths})
    assert "decoding accepts less" in read_acceptance(path, 1).origin
    served = {"predicted": [0.4, 0.1], "served": [0.9, 0.9]}
    for values in ({"depths": depths, "served": served}, {"served": served}):
        found = read_acceptance(write_json(path, values), 1)
        assert found.conditional == pytest.approx((0.4, 0.25))
        assert "rounds" in found.origin and "decoding accepts less" not in found.origin


BAD: list[tuple[Any, str]] = [
    ({}, "neither a bench file"),
    ([], "holds a list"),
    ({"runs": 3}, "runs is no list"),
    ({"runs": [3]}, "runs is no list"),
    ({"runs": []}, "no run of ours"),
    ({"depths": []}, "no depth has a chained share"),
    ({"depths": [{"chained": 1.5}]}, "share from 0 to 1"),
    ({"depths": [{"chained": "x"}]}, "expected a number"),
    ({"served": 3}, "served is 3, expected an object"),
    ({"served": {"predicted": []}}, "served.predicted is .*, expected a list"),
    ({"served": {"predicted": [1.5]}}, "share from 0 to 1"),
    ({"compare": True, "runs": 3}, "holds 0 systems side by side"),
    ({"depths": [{"chained": float("nan")}]}, "expected a number"),
    (bench(run(1, 1, 1, shares=[True])), "expected a number"),
    (bench(run(1, 1, 1) | {"acceptance_by_depth": "ab"}), "expected a list"),
]


@pytest.mark.parametrize(("values", "problem"), BAD)
def test_a_damaged_file_is_one_line(tmp_path: Path, values: Any, problem: str) -> None:
    path = write_json(tmp_path / "x.json", values)
    with pytest.raises(ForetellError, match=problem) as caught:
        read_acceptance(path, 1)
    assert "\n" not in str(caught.value) and "x.json" in str(caught.value)
