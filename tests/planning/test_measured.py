"""Measured machines: seconds put together by hand, files, and a real measurement of a tiny model."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import DataError, ForetellError, UnsupportedModel, UsageError
from foretell.planning import measure as measure_module
from foretell.planning import thin as thin_module
from foretell.planning.measure import measure
from foretell.planning.measured import KEY, MeasuredCosts, MeasuredMachine, read_machine
from foretell.planning.model import Linear
from foretell.planning.open_model import open_model
from tests import fixtures
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


def test_a_file_gives_back_what_was_measured(tmp_path: Path) -> None:
    path = write_json(tmp_path / "m.json", {KEY: MACHINE.as_dict()})
    assert read_machine(path) == MACHINE
    bare = MACHINE.as_dict()
    del bare["environment"], bare["kernels"][2]["samples"]
    assert read_machine(write_json(path, {KEY: bare})) == replace(MACHINE, samples={}, environment={})
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
        ("drafts", [{"rows": 1, "depths": [], "seconds": []}]),
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


def test_a_tiny_model_is_measured_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "_LARGE", 256)
    monkeypatch.setattr(measure_module, "_BUSY", 256)
    monkeypatch.setattr(measure_module, "ROWS", (1, 2, 4))
    monkeypatch.setattr(measure_module, "BATCHES", (1, 2))
    monkeypatch.setattr(thin_module, "_STEPS", 4)
    fixtures.tiny_llama(hidden_size=96, intermediate_size=128).save_pretrained(tmp_path / "m")
    model = open_model(str(tmp_path / "m"))
    seen: list[tuple[int, int]] = []
    machine = measure(model, "float32", "cpu", 6, 2, 3, lambda done, total: seen.append((done, total)))
    assert seen == [(k, 6) for k in range(1, 7)]
    assert sorted(machine.passes) == [1, 2, 3] and [x for x, _ in machine.passes[2]] == [1, 2, 3]
    assert [x for x, _ in machine.drafts[3]] == [1, 2]
    assert {(128, 96), (96, 128), (260, 96), (96, 192)} <= machine.kernels.keys()
    # Its two layers have the real one's attention: 4 heads of 16, of width 64 in all, and 2 of keys.
    assert Linear(32, 64, 4) in machine.thin and Linear(260, 64, 1) in machine.thin
    assert all(seconds > 0 for points in machine.kernels.values() for _, seconds in points)
    assert machine.samples.keys() == machine.kernels.keys()
    for shape, points in machine.kernels.items():
        assert [len(passes) for passes in machine.samples[shape]] == [measure_module._REPEATS] * 3
        assert [seconds for _, seconds in points] == [statistics.median(each) for each in machine.samples[shape]]
    costs = MeasuredCosts(machine, model)
    assert costs.pass_s(1, 2) > 0 and costs.draft_s(2, 2, 1.5, 1.0) > 0


def test_what_cannot_be_measured_is_said() -> None:
    with pytest.raises(UsageError, match="float8 do not run here"):
        measure(preset("smollm2-135m"), "float8", "cpu", 8, 1)
    for name in ("deepseek-v3", "qwen3.5-0.8b"):
        with pytest.raises(UnsupportedModel, match="experts or recurrent"):
            measure(preset(name), "float32", "cpu", 8, 1)
