"""Measured machines: seconds put together by hand, files, and a real measurement of a tiny model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretell.config import HeadsConfig
from foretell.errors import DataError, ForetellError, UsageError
from foretell.planning.machine_file import read_machine
from foretell.planning.measured import KEY, MeasuredMachine
from foretell.planning.measured_costs import MeasuredCosts
from foretell.planning.model import Linear
from tests.planning.models import preset, write_json
from tests.planning.test_roofline import HEADS, MODEL

REAL = replace(
    MODEL, linears=(Linear(50, 10, 4),), heads=replace(HEADS, linears=(Linear(10, 20, 1), Linear(50, 10, 2)))
)
MACHINE = MeasuredMachine(
    name="cpu",
    num_threads=2,
    model="m",
    dtype="bfloat16",
    num_layers=2,
    context=8,
    num_bytes=1e9,
    bandwidth=1e9,
    flops_per_s=1e12,
    least_rows=2,
    kernels={
        (50, 10): [(1.0, 5.0), (2.0, 6.0), (4.0, 8.0)],
        (300, 10): [(1.0, 10.0), (4.0, 40.0)],
        (10, 20): [(1.0, 3.0), (4.0, 3.0)],
        (6, 4): [(1.0, 1.0), (4.0, 1.0)],
    },
    passes={1: [(1.0, 100.0), (2.0, 110.0)], 4: [(1.0, 130.0), (2.0, 170.0)]},
    drafts={1: [(1.0, 20.0), (2.0, 40.0)], 4: [(1.0, 50.0), (2.0, 90.0)]},
    thin=(Linear(6, 4, 4), Linear(6, 4, 1)),
    thin_head=(Linear(6, 4, 3), Linear(6, 4, 1)),
    samples={(10, 20): [[2.0, 3.0, 4.0], [3.0, 3.0]]},
    environment={"date": "2026-01-01", "load": {"cores_of_others": 0.0}},
    reads={1: [(8.0, 140.0), (16.0, 180.0)], 4: [(8.0, 200.0)]},
    catch_ups={1: [(8.0, 26.0), (16.0, 32.0)], 4: [(8.0, 70.0)]},
)


def test_a_pass_is_the_thin_one_with_wider_layers() -> None:
    costs = MeasuredCosts(MACHINE, REAL)
    # Batch 1 pads to two rows: thin 100 - 5 x 1, wide 4 x 6 + 20.
    assert costs.pass_s(1, 1) == pytest.approx(100 - 5 + 24 + 20)
    assert costs.pass_s(1, 2) == pytest.approx(110 - 5 + 24 + 20)
    # Batch 2 lies a third of the way from 1 to 4 rows.
    assert costs.pass_s(2, 2) == pytest.approx((110 + (170 - 110) / 3) - 5 + 4 * 8 + 40)


def test_a_draft_is_the_thin_one_with_wider_heads() -> None:
    costs = MeasuredCosts(MACHINE, REAL)
    first = 3 + 2 * 6 + 10 - 4  # two tokens are read, one is projected
    second = 3 + 2 * 5 + 10 - 4
    assert costs.draft_s(1, 1, 2.0, 1.0) == pytest.approx(20 + first)
    assert costs.draft_s(1, 2, 2.0, 1.0) == pytest.approx(40 + first + second)
    distinct = replace(REAL, heads=replace(REAL.heads, distinct=True))
    assert MeasuredCosts(MACHINE, distinct).draft_s(1, 2, 2.0, 1.0) == pytest.approx(40 + 2 * first)


def test_no_step_takes_less_than_nothing() -> None:
    """A file in which the thin model's layers are slower than the real one's."""
    slow = replace(MACHINE, kernels=MACHINE.kernels | {(6, 4): [(1.0, 1e6)]})
    costs = MeasuredCosts(slow, REAL)
    assert costs.pass_s(1, 1) == pytest.approx(100) and costs.draft_s(1, 1, 1.0, 1.0) == 0.0


def test_a_step_that_reads_prompts_is_put_together_too() -> None:
    costs = MeasuredCosts(MACHINE, REAL)
    assert costs.knows_prompts
    # One prompt of 8 tokens alone: layers at 8 rows (4 x 12), the output matrix at one (10); the thin one's are 5 x 1.
    assert costs.join_s(0, 0, [8], 1) == pytest.approx(140 - 5 + 4 * 12 + 10)
    # Half of 16 tokens between the two lengths, and no first token yet, so nothing is projected.
    assert costs.join_s(0, 0, [12], 0) == pytest.approx(160 - 5 + 4 * 16)
    # Beside 2 rows of 2 tokens: 4 rows more become 12 (16 - 8 a layer), 4 projected become 5 (50 - 40), and launches
    # are there already: a step of one row less its thin layers, 100 - 5.
    assert costs.join_s(2, 2, [8], 1) == pytest.approx((140 - 5) - (100 - 5) + 4 * (16 - 8) + (50 - 40))
    # Two prompts lie a third of the way from 1 to 4.
    assert costs.join_s(0, 0, [8, 8], 2) == pytest.approx(140 + 60 / 3 - 5 + 4 * 20 + 20)


def test_heads_read_a_prompt_before_their_first_draft() -> None:
    costs = MeasuredCosts(MACHINE, REAL)
    # The thin ones take 26 beside 20; theirs: one row becomes 8 (2 x (12 - 5), the other shape is flat).
    one = (26 - 20) + 2 * (12 - 5)
    assert costs.catch_up_s(1, 2, [8]) == pytest.approx(one)
    # Of three rows two go on as before.
    assert costs.catch_up_s(3, 2, [8]) == pytest.approx((26 - 20) + 2 * (14 - 7))
    distinct = replace(REAL, heads=replace(REAL.heads, distinct=True))
    assert MeasuredCosts(MACHINE, distinct).catch_up_s(1, 2, [8]) == pytest.approx(2 * one)
    without = replace(REAL, heads=replace(REAL.heads, cache=replace(REAL.heads.cache, num_layers=0)))
    assert costs.catch_up_s(1, 0, [8]) == MeasuredCosts(MACHINE, without).catch_up_s(1, 2, [8]) == 0


def test_heads_of_another_kind_are_refused() -> None:
    medusa = replace(REAL, heads=replace(REAL.heads, config=HeadsConfig(kind="medusa")))
    with pytest.raises(UsageError, match="with sequential heads, and these are medusa; measure it again"):
        MeasuredCosts(MACHINE, medusa)


def test_a_file_gives_back_what_was_measured(tmp_path: Path) -> None:
    path = write_json(tmp_path / "m.json", {KEY: MACHINE.as_dict()})
    assert read_machine(path) == MACHINE
    bare = MACHINE.as_dict()
    del bare["environment"], bare["kernels"][2]["samples"], bare["reads"], bare["catch_ups"], bare["heads_kind"]
    old = read_machine(write_json(path, {KEY: bare}))
    assert old == replace(MACHINE, samples={}, environment={}, reads={}, catch_ups={})
    assert not MeasuredCosts(old, REAL).knows_prompts
    assert MACHINE.hardware.balance("bfloat16") == 1000 and MACHINE.max_rows == 4


def test_another_model_is_refused() -> None:
    with pytest.raises(UsageError, match="measure it again"):
        MeasuredCosts(MACHINE, preset("smollm2-135m"))
    with pytest.raises(UsageError, match="measure it again"):
        MeasuredCosts(MACHINE, replace(REAL, num_layers=3))
    with pytest.raises(UsageError, match="measure it again"):
        MeasuredCosts(MACHINE, replace(REAL, linears=(Linear(51, 10, 4),)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", 3),
        ("num_layers", 0),
        ("bandwidth", float("nan")),
        ("bandwidth", -1),
        ("flops_per_s", "fast"),
        ("kernels", {}),
        ("kernels", [{"num_out": 1, "num_in": 1, "rows": [1, 2], "seconds": [1]}]),
        ("kernels", [{"num_out": 1, "num_in": 1, "rows": [2, 1], "seconds": [1, 1]}]),
        ("kernels", [{"num_out": 1, "num_in": 1, "rows": [1], "seconds": [1], "samples": [[1], [2]]}]),
        ("kernels", [{"num_out": 1, "num_in": 1, "rows": [1], "seconds": [1], "samples": [[]]}]),
        ("kernels", [{"num_out": 1, "num_in": 1, "rows": [1], "seconds": [1], "samples": [["x"]]}]),
        ("environment", 3),
        ("passes", []),
        ("passes", [{"rows": 1, "nodes": [1], "seconds": [0]}]),
        ("passes", [{"rows": 1, "nodes": [1], "seconds": [1e300]}]),
        ("drafts", [{"rows": 1, "depths": [], "seconds": []}]),
        ("reads", 3),
        ("reads", []),
        ("reads", [{"rows": 1, "lengths": [2, 1], "seconds": [1, 1]}]),
        ("catch_ups", [{"rows": 0, "lengths": [1], "seconds": [1]}]),
        ("heads_kind", "x"),
        ("heads_kind", [1]),
        ("thin", [[1, 2]]),
        ("thin_head", None),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str, value: Any) -> None:
    path = write_json(tmp_path / "m.json", {KEY: MACHINE.as_dict() | {name: value}})
    with pytest.raises(DataError) as caught:
        read_machine(path)
    assert "\n" not in str(caught.value) and "m.json" in str(caught.value)


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--measure --json"):
        read_machine(write_json(tmp_path / "m.json", {"runs": []}))
    with pytest.raises(ForetellError, match="cannot be read"):
        read_machine(tmp_path)
