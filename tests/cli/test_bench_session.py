"""``bench`` and ``compare`` that are stopped, fail, or run on a busy machine: what was measured is kept, and marked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foretell.analysis import bench as bench_module
from foretell.analysis import compare as compare_module
from foretell.analysis import load_watch
from foretell.analysis.load import LoadSnapshot
from foretell.analysis.records import Spread
from foretell.analysis.systems import EngineSystem
from foretell.cli.bench_stop import part_target
from foretell.cli.bench_table import spread
from foretell.evaluation import nll

COMMANDS = ("bench", "compare")
NUM_SYSTEMS = {"bench": 3, "compare": 2}
"""Depths 0, 1 and 2; plain and one drafter at depth 2."""


def line(command: str, folders: Path, prompts: Path) -> list[object]:
    own = ["--depths", "1,2", "--repeats", 1] if command == "bench" else ["--no-ngram", "--depths", 2]
    model = [command, folders / "cycle", "--heads", folders / "right", "--prompts", prompts]
    return [*model, "--dtype", "float32", "--max-tokens", 9, *own]


def before_each(monkeypatch: pytest.MonkeyPatch, action: Callable[[int], None]) -> None:
    """``action(n)`` before text n is decoded, warm-up included."""
    run, calls = EngineSystem.run, [0]

    def acting(self: EngineSystem, *args: Any) -> object:
        calls[0] += 1
        action(calls[0])
        return run(self, *args)

    monkeypatch.setattr(EngineSystem, "run", acting)


def after(num_systems: int, num_measured: int, what: Callable[[], None]) -> Callable[[int], None]:
    def action(call: int) -> None:
        if call == num_systems + num_measured + 1:
            what()

    return action


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise RuntimeError("no memory")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("what", "code", "last"), [(interrupt, 130, "interrupted"), (fail, 1, "RuntimeError: no memory")]
)
def test_the_first_batch_size_is_kept_as_far_as_it_went(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    folders: Path,
    prompts: Path,
    tmp_path: Path,
    command: str,
    what: Callable[[], None],
    code: int,
    last: str,
) -> None:
    num, out = NUM_SYSTEMS[command], tmp_path / "out.json"
    before_each(monkeypatch, after(num, num + 1, what))
    ran = run(*line(command, folders, prompts), "--json", out)
    data = json.loads(out.read_text())
    assert ran.code == code and f"error: {last}" in ran.err.splitlines()[-1]
    assert data["incomplete"] is True and len(data["samples"]) == num + 1
    assert data["batches"][0].items() >= {"batch": 1, "num_measured": num + 1, "num_planned": 3 * num}.items()
    assert {r["num_prompts"] for r in data["runs"] if r["domain"] == "all"} == {1}  # the whole turn alone
    assert f"stopped at batch 1: {num + 1} of {3 * num} measurements made and kept; figures are of whole" in ran.err
    assert "speed-up" in ran.out and f"NOT FINISHED: {num + 1} of {3 * num} measurements; figures" in ran.out
    assert data["step_costs"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_whole_turn_is_no_figure_and_still_kept(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path, command: str
) -> None:
    num, out = NUM_SYSTEMS[command], tmp_path / "new" / "out.json"
    before_each(monkeypatch, after(num, 1, interrupt))
    ran = run(*line(command, folders, prompts), "--json", out)
    data = json.loads(out.read_text())
    assert (ran.code, ran.out) == (130, "") and "no turn of all systems was whole" in ran.err
    assert data["incomplete"] is True and data["runs"] == [] and len(data["samples"]) == 1
    assert [file.name for file in out.parent.iterdir()] == ["out.json"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_part_does_not_replace_a_whole_run(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out.json"
    assert run(*line(command, folders, prompts), "--json", out).code == 0
    before = out.read_bytes()
    for _ in range(2):  # a part may take the place of a part of the same size
        with monkeypatch.context() as patch:
            before_each(patch, after(NUM_SYSTEMS[command], 1, interrupt))
            ran = run(*line(command, folders, prompts), "--json", out)
        assert ran.code == 130 and "out.incomplete.json" in ran.err
        assert out.read_bytes() == before
        assert json.loads((tmp_path / "out.incomplete.json").read_text())["incomplete"] is True


@pytest.mark.parametrize("command", COMMANDS)
def test_a_part_does_not_replace_a_longer_one(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path, command: str
) -> None:
    sizes = {"out.json": 3, "out.incomplete.json": 2, "out.incomplete-2.json": 1}
    for name, num_measured in sizes.items():
        with monkeypatch.context() as patch:
            before_each(patch, after(NUM_SYSTEMS[command], num_measured, interrupt))
            ran = run(*line(command, folders, prompts), "--json", tmp_path / "out.json")
        written = f"stays as it is; this part goes to {tmp_path / name}\n"
        assert ran.code == 130 and (written in ran.err) == (name != "out.json")
    assert {f.name: len(json.loads(f.read_text())["samples"]) for f in tmp_path.glob("out*.json")} == sizes
    assert json.loads((tmp_path / "out.json").read_text())["model"] == "cycle"


def test_a_part_of_an_evaluation_does_not_replace_a_longer_one(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text('{"incomplete": true, "text": {}, "tasks": {}}')
    assert part_target(out, 1) == tmp_path / "out.incomplete.json" and part_target(out, 2) == out


def test_one_pair_has_no_range() -> None:
    assert spread(Spread(1.47, 1.47, 1.47), 2, "x") == "1.47x (one pair)"
    assert spread(Spread(1.47, 1.46, 1.48), 2, "x") == "1.47x (1.46-1.48)"
    assert (spread(Spread(1.0, 1.0, 1.0), 2, "x"), spread(Spread(9.5, 9.5, 9.5), 1)) == ("1.00x", "9.5")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interruption_while_the_report_is_made_keeps_all(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path, command: str
) -> None:
    module: Any = bench_module if command == "bench" else compare_module
    name = "make_report" if command == "bench" else "_report"
    made, calls = getattr(module, name), [0]

    def once(*args: Any, **kw: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            raise KeyboardInterrupt
        return made(*args, **kw)

    monkeypatch.setattr(module, name, once)
    ran = run(*line(command, folders, prompts), "--json", tmp_path / "out.json")
    assert ran.code == 130
    assert json.loads((tmp_path / "out.json").read_text())["samples"]


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_measured_writes_nothing(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path, command: str
) -> None:
    before_each(monkeypatch, after(0, 0, interrupt))  # the first warm-up
    ran = run(*line(command, folders, prompts), "--json", tmp_path / "out.json")
    assert (ran.code, ran.out) == (130, "") and not (tmp_path / "out.json").exists()
    assert "stopped: nothing was measured yet; nothing written\n" in ran.err
    monkeypatch.setattr(nll, "mean_nll", lambda *args: interrupt())  # what is worked out before the first text
    ran = run(*line(command, folders, prompts), "--json", tmp_path / "out.json")
    assert ran.code == 130 and "stopped: nothing was measured yet; nothing written\n" in ran.err


def test_without_a_file_it_says_how_to_keep(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path
) -> None:
    before_each(monkeypatch, after(2, 3, interrupt))
    assert "made; --json FILE would have kept them" in run(*line("compare", folders, prompts)).err


def test_a_stopped_comparison_has_its_page(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path
) -> None:
    files = ("--json", tmp_path / "out.json", "--html", tmp_path / "out.html")
    before_each(monkeypatch, after(2, 3, interrupt))
    ran = run(*line("compare", folders, prompts), *files)
    assert ran.code == 130 and "interrupted" in (tmp_path / "out.html").read_text()


def test_sigterm_in_this_process(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    before_each(monkeypatch, after(2, 3, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    out = tmp_path / "out.json"
    with pytest.raises(SystemExit) as caught:
        run(*line("compare", folders, prompts), "--json", out)
    assert caught.value.code == 143 and signal.getsignal(signal.SIGTERM) is before
    assert json.loads(out.read_text())["incomplete"] is True


@pytest.mark.slow
def test_sigterm_from_outside(folders: Path, prompts: Path, tmp_path: Path) -> None:
    """``timeout``, a job's end, ``kill``: status 143, one line, and the file."""
    out, started = tmp_path / "out.json", tmp_path / "started"
    code = (
        "import sys, time, pathlib\n"
        "from foretell.analysis.systems import EngineSystem\n"
        "run, calls = EngineSystem.run, []\n"
        "def slow(self, *args):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 6:\n"
        "        pathlib.Path(sys.argv[-1]).touch()\n"
        "        time.sleep(60)\n"
        "    return run(self, *args)\n"
        "EngineSystem.run = slow\n"
        "from foretell.cli.main import main\n"
        "sys.exit(main(sys.argv[1:-1]))"
    )
    words = [*map(str, line("compare", folders, prompts)), "--json", str(out), str(started)]
    process = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True)
    while not started.exists() and process.poll() is None:
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert errors.endswith("error: terminated\n") and "Traceback" not in errors
    assert json.loads(out.read_text())["incomplete"] is True


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others take seven cores, and looks come often enough for a run of a second."""
    monkeypatch.setattr(load_watch, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(LoadSnapshot, "cores_of_others", lambda self, end: 7.0)
    before_each(monkeypatch, lambda call: time.sleep(0.05))


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_busy_machine_is_told_of_once(run: Any, folders: Path, prompts: Path, tmp_path: Path, command: str) -> None:
    out = tmp_path / "out.json"
    ran = run(*line(command, folders, prompts), "--json", out)
    load = json.loads(out.read_text())["environment"]["load"]
    assert ran.code == 0 and "NOT QUIET" in ran.out
    assert ran.err.count("warning: other processes take 7.00 of") == 1 and "--on-busy abort would end here" in ran.err
    assert load["busy_after_s"] < 1 and "other processes took 7.00" in load["note"]
    assert load["note"] in json.loads(out.read_text())["warnings"]


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_busy_machine_ends_the_run(run: Any, folders: Path, prompts: Path, tmp_path: Path, command: str) -> None:
    out = tmp_path / "out.json"
    ran = run(*line(command, folders, prompts), "--json", out, "--on-busy", "abort")
    data = json.loads(out.read_text())
    assert ran.code == 1 and ran.err.splitlines()[-1].startswith("error: --on-busy abort: other processes take 7.00")
    assert ran.err.count("other processes") == 1  # nothing is said twice
    assert data["incomplete"] is True and len(data["samples"]) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_only_its_end_shows_to_be_busy(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path, command: str
) -> None:
    """Too short for a look: all of it is measured and written, and the exit code is 1 as asked."""
    out = tmp_path / "out.json"
    monkeypatch.setattr(LoadSnapshot, "cores_of_others", lambda self, end: 7.0)
    ran = run(*line(command, folders, prompts), "--json", out, "--on-busy", "abort")
    data = json.loads(out.read_text())
    assert ran.code == 1 and "error: --on-busy abort: other processes took 7.00" in ran.err.splitlines()[-1]
    assert "incomplete" not in data and len(data["samples"]) == 3 * NUM_SYSTEMS[command]


def test_a_quiet_machine_aborts_nothing(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path
) -> None:
    monkeypatch.setattr(LoadSnapshot, "cores_of_others", lambda self, end: 0.0)
    ran = run(*line("bench", folders, prompts), "--on-busy", "abort")
    assert ran.code == 0 and "busy" not in ran.err
    ran = run(*line("bench", folders, prompts), "--on-busy", "stop")
    assert ran.code == 2 and "--on-busy" in ran.err


def test_costs_of_steps_are_told_apart_by_system(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    """Both systems take passes over one row and two guesses; each has its own steps, and plain decoding no draft."""
    out = tmp_path / "out.json"
    wrong = ("--draft-model", folders / "cycle")
    assert run(*line("compare", folders, prompts), *wrong, "--json", out).code == 0
    costs = json.loads(out.read_text())["step_costs"]
    assert list(costs) == ["plain", "sequential", "draft-model"]
    assert costs["plain"]["draft"] == [] and [c["nodes"] for c in costs["plain"]["pass"]] == [1]
    for name in ("sequential", "draft-model"):
        [passes] = [c for c in costs[name]["pass"] if (c["batch"], c["rows"], c["nodes"]) == (1, 1, 3)]
        [drafts] = [c for c in costs[name]["draft"] if (c["batch"], c["rows"], c["depth"], c["nodes"]) == (1, 1, 2, 2)]
        assert passes["num_steps"] == drafts["num_steps"] > 3 and drafts["seconds"]["median"] > 0
