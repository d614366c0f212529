"""Files are known by what they hold; what cannot be used is one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import DataError, UsageError
from foretell.reporting.files import read_results, short_names
from tests.reporting import made


def test_every_kind_is_known_whatever_its_name(tmp_path: Path) -> None:
    found = read_results([path.rename(path.with_suffix(".x")) for path in made.everything(tmp_path)])
    kinds = (found.benches, found.compares, found.verifies, found.probes, found.adapters, found.logs)
    assert [len(kind) for kind in kinds] == [1] * 6 and found.problems == {}
    assert found.logs[0].curves["loss"] == [(10, 0.9), (20, 0.45), (30, 0.3)]
    assert found.logs[0].summary == {"train_runtime": 12.5, "train_loss": 0.5}


@pytest.mark.parametrize("left", ["greedy", "sampling", "controls", "model_law"])
def test_a_verify_file_is_known_by_any_one_check(left: str, tmp_path: Path) -> None:
    values = {"passed": True, left: {**made.verify(), **made.verify_all()}[left]}
    assert len(read_results([made.write(tmp_path, "v.json", values)]).verifies) == 1


def test_a_probe_file_made_without_data_is_known(tmp_path: Path) -> None:
    [probe] = read_results([made.write(tmp_path, "p.json", made.served())]).probes
    assert probe.served is not None and probe.depths == [] and probe.served.served == (0.5, 0.3)


def test_folders_stand_for_the_log_and_the_config_in_them(tmp_path: Path) -> None:
    made.everything(tmp_path)
    found = read_results([tmp_path / "run", tmp_path / "adapter"])
    assert [log.name for log in found.logs] == ["run"] and [adapter.name for adapter in found.adapters] == ["adapter"]


def test_names_are_as_long_as_it_takes() -> None:
    files = [Path("a/x.json"), Path("b/x.json"), Path("b/y.json"), Path("r/one/metrics.jsonl")]
    assert short_names(files) == ["a/x", "b/x", "y", "one"]


def test_a_log_that_is_being_written_ends_before_the_torn_line(tmp_path: Path) -> None:
    found = read_results([made.write(tmp_path, "m.jsonl", made.LOG + '{"step": 40, "lo')])
    assert found.logs[0].curves["loss"][-1][0] == 30 and found.problems == {"m.jsonl": ["line 5: not whole; left out"]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ("[1, 2]", "a list, not an object"),
        ("7", "a int, not an object"),
        ('{"setting": 1, "runs": []}', "has the keys setting, runs"),
        ("{}", "has the keys (none)"),
        ("[" * 100_000, "nested too deep"),
        ("1" * 10_000, "not valid JSON"),
        (made.LOG + "{broken\n", ":5: no JSON object"),
        ('{"step": 1}\n{"epoch": 1}\n', ":2: no JSON object"),
        ('{"step": 1, "lr": 0.1}', "no line with a loss"),
        (b"\xff\xfe{", "not UTF-8"),
    ],
)
def test_what_is_no_result_file_is_one_line(text: str | bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as caught:
        read_results([path])
    assert says in str(caught.value) and str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "a folder without"),
        (Path("x" * 5000), "too long"),
    ):
        with pytest.raises(DataError, match=says):
            read_results([path])
    file = made.write(tmp_path, "b.json", made.bench())
    os.symlink(file, tmp_path / "link")
    with pytest.raises(UsageError, match="given twice"):
        read_results([file, tmp_path / "link"])


def one_value(key: str, value: Any, tmp_path: Path) -> tuple[Any, list[str]]:
    text = json.dumps(made.bench()).replace(f'"{key}": {json.dumps(made.run(1)[key])}', f'"{key}": {value}')
    found = read_results([made.write(tmp_path, "b.json", text)])
    return found.benches[0].runs[1], found.problems.get("b", [])


@pytest.mark.parametrize("value", ["NaN", "-1", "1e999", "1" * 400, '"1.5"', "true", "[]", "{}"])
def test_a_value_that_cannot_be_meant_is_not_known_and_is_named(value: str, tmp_path: Path) -> None:
    run, problems = one_value("mean_acceptance_length", value, tmp_path)
    assert run.mean_acceptance_length is None
    assert problems[0].startswith("runs[1].mean_acceptance_length: ") and len(problems[0]) < 200


def test_null_is_absent_without_a_word(tmp_path: Path) -> None:
    run, problems = one_value("mean_acceptance_length", "null", tmp_path)
    assert run.mean_acceptance_length is None and problems == []


def test_a_share_above_one_and_a_spread_out_of_order_are_not_known(tmp_path: Path) -> None:
    values = made.bench()
    values["runs"][1]["acceptance_by_depth"] = [0.5, 1.5]
    values["runs"][1]["speedup"] = made.spread(1.0, 1.2, 0.9)
    found = read_results([made.write(tmp_path, "b.json", values)])
    run = found.benches[0].runs[1]
    assert run.acceptance_by_depth == (0.5, None) and run.speedup is None and len(found.problems["b"]) == 2


def test_a_run_that_does_not_say_what_it_measured_is_left_out(tmp_path: Path) -> None:
    values = made.bench()
    del values["runs"][1]["batch"]
    found = read_results([made.write(tmp_path, "b.json", values)])
    assert len(found.benches[0].runs) == 5 and found.problems["b"][0].startswith("runs[1]: ")
