"""``foretell plan``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretell.analysis import load_watch
from foretell.analysis.load import LoadSnapshot
from foretell.planning.measured import MeasuredMachine
from foretell.planning.model import Linear as PlanLinear
from foretell.planning.open_model import open_model
from tests import fixtures
from tests.docs.conftest import ROOT
from tests.planning.models import bench, write_json
from tests.planning.models import run as bench_run
from tests.planning.test_against import DRAFTS, PASSES
from tests.planning.test_measured import MACHINE

COLUMNS = ["depth", "bytes", "FLOPs", "FLOP/byte", "idle", "pass", "draft"]
GAINS = ["tokens/pass", "tokens/s", "speed-up", "simple"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "tiny"
    fixtures.tiny_llama().save_pretrained(folder)
    return folder


def table(out: str) -> list[list[str]]:
    """The first table: heading and lines."""
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == ["depth"])
    end = next(i for i, line in enumerate(lines) if i > start and not line.strip())
    return [line.split() for line in lines[start:end]]


def test_depths_on_the_screen_and_in_the_file(run: Any, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    ran = run("plan", tiny, "--acceptance", "0.8,0.5", "--batch", 2, "--json", out)
    assert ran.code == 0, ran.err
    rows = table(ran.out)
    assert rows[0] == [*COLUMNS, *GAINS, "break-even"] and [row[0] for row in rows[1:]] == ["0", "1", "2"]
    assert "Seconds are bounds" in ran.out and "acceptance  0.8, 0.5 (conditional" in ran.out
    report = json.loads(out.read_text())
    plan = report["plan"]
    assert [depth["tokens_per_pass"] for depth in plan["depths"]] == pytest.approx([1, 1.8, 2.2])
    assert plan["best_depth"] == max(plan["depths"], key=lambda depth: depth["tokens_per_s"])["depth"]
    assert report["hardware"]["balance"] == pytest.approx(295.3, abs=0.1) and report["seconds_are"] == "bounds"
    assert report["acceptance"]["conditional"] == [0.8, 0.5] and report["model"]["parameters"] > 0
    best = max(plan["depths"], key=lambda depth: depth["tokens_per_s"])
    assert f"Best depth {best['depth']}, {best['speedup']:.2f}x plain decoding. " in ran.out


def test_without_acceptance_there_is_no_speed_up(run: Any, tiny: Path) -> None:
    ran = run("plan", tiny, "--depth", 2, "--hardware", "cpu")
    assert ran.code == 0 and table(ran.out)[0] == [*COLUMNS, "break-even"]
    assert "No acceptance given" in ran.out and "Best depth" not in ran.out


def test_overhead_and_efficiency_are_said(run: Any, tiny: Path) -> None:
    line = ("plan", tiny, "--acceptance", "0.7", "--depth", 1, "--devices", 2)
    ran = run(*line, "--efficiency", "0.5", "--layer-overhead-us", "10")
    assert "data sheet x 0.5, and 10 us a layer" in ran.out and "Seconds are bounds" not in ran.out
    assert "2 x H100 SXM" in ran.out


def test_published_figures_stand_beside_deepseek_v3(run: Any) -> None:
    line = ("plan", "deepseek-v3", "--hardware", "h200", "--dtype", "float8", "--acceptance", "0.785", "--depth", 3)
    ran = run(*line, "--devices", 8, "--draft-cost", "0.05")
    assert "Published: 1.8x at batch 1, 1.5x at batch 32 (SGLang" in ran.out and "it does not say depth" in ran.out
    assert "Where published figures are better: real steps" in ran.out
    assert table(ran.out)[-1][-2] == "2.51x" and "8 of 256 experts" in ran.out and "experts" in table(ran.out)[0]
    assert "Published" not in run(*line, "--devices", 4).out


def test_trees_are_named(run: Any, tiny: Path) -> None:
    ran = run("plan", tiny, "--depth", 2, "--nodes", 6, "--acceptance", "0.8,0.6")
    assert ran.code == 0 and "(any candidate of a level; as given)" in ran.out
    assert [row[:2] for row in table(ran.out)] == [["depth", "nodes"], ["0", "0"], ["2", "6"]]


def test_a_bench_file_is_explained_without_a_model(run: Any, tmp_path: Path) -> None:
    path = write_json(
        tmp_path / "b.json", bench(bench_run(1, 0, 9.0), bench_run(1, 2, 14.0), passes=PASSES, drafts=DRAFTS)
    )
    out = tmp_path / "out.json"
    ran = run("plan", "--against", path, "--json", out)
    assert ran.code == 0 and "explained" in ran.out and "+11.1%" in ran.out
    assert "Largest error +11.1% (batch 1, depth 0)" in ran.out
    rows = json.loads(out.read_text())["against"]["step_costs"]
    assert [row["depth"] for row in rows] == [0, 2]
    assert run("plan", "--against", path, "--json", path).code == 2


def test_a_bench_file_beside_a_plan(run: Any, tiny: Path, tmp_path: Path) -> None:
    path = write_json(tmp_path / "b.json", bench(bench_run(1, 0, 9.0), bench_run(1, 2, 14.0)))
    assert run("plan", "--against", path).code == 2
    out = tmp_path / "out.json"
    ran = run("plan", tiny, "--acceptance", path, "--against", path, "--json", out)
    report = json.loads(out.read_text())
    assert ran.code == 0 and "predicted from the machine above" in ran.out and not report["against"]["step_costs"]
    plan = {depth["depth"]: depth["tokens_per_s"] for depth in report["plan"]["depths"]}
    assert [row["predicted_tokens_per_s"] for row in report["against"]["hardware"]] == pytest.approx([plan[0], plan[2]])


def test_where_the_seconds_of_prompts_are_from_is_said(run: Any, tiny: Path, tmp_path: Path) -> None:
    """Predicted where the machine's file has such steps and the bench's has lengths, else a hint says why not."""
    folder, common = tmp_path / "m", {"mode": "end-to-end", "num_prompts": 2, "num_output_tokens": 20}
    fixtures.tiny_llama(num_hidden_layers=2).save_pretrained(folder)
    shapes = [*open_model(str(folder)).linears, *open_model(str(folder)).heads.linears, PlanLinear(260, 64, 1)]
    kernels = MACHINE.kernels | {(one.num_out, one.num_in): [(1.0, 1e-3), (4.0, 2e-3)] for one in shapes}
    new = replace(MACHINE, kernels=kernels)
    values = bench(bench_run(2, 0, 9.0, **common), bench_run(2, 1, 9.0, **common), passes=[(2, 2, 2, 0.1, 9)])
    sample = {"system": "foretell", "depth": 0, "batch": 2, "prompt": 0, "num_tokens": [10, 10], "domain": "mixed"}
    lengths = {"samples": [sample], "batches": [{"batch": 2, "prompt_tokens": [[9, 9]]}]}
    for machine, more, hint in (
        (new, lengths, None),
        (replace(new, reads={}, catch_ups={}), lengths, "has no steps that read prompts; measure it again"),
        (new, {}, "does not say how long its prompts were; a new bench does"),
    ):
        path = write_json(tmp_path / "b.json", values | more)
        file = write_json(tmp_path / "machine.json", {"machine": machine.as_dict()})
        ran = run("plan", folder, "--hardware", file, "--acceptance", "0.5", "--against", path)
        assert ran.code == 0, ran.err
        assert ("hint: what reading a prompt takes" in ran.err) == (hint is not None)
        assert hint is None or hint in ran.err


@pytest.mark.parametrize("kind", ["medusa", "parallel"])
def test_heads_that_read_no_tokens(run: Any, kind: str) -> None:
    ran = run("plan", "demo", "--heads", ROOT / f"adapters/smollm2-135m-instruct-{kind}", "--acceptance", "0.5")
    assert ran.code == 0 and "3 modules" in ran.out and f"{kind} heads" in ran.out
    assert [row[0] for row in table(ran.out)[1:]] == ["0", "1", "2", "3"]
    ran = run("plan", "demo", "--heads", ROOT / f"adapters/smollm2-135m-instruct-{kind}", "--depth", 4)
    assert ran.code == 2 and "the heads have modules for 3 depths only" in ran.err


def test_our_bench_files_are_read(run: Any) -> None:
    path = ROOT / "docs" / "benchmarks" / "smollm2-135m-batches-8-16.json"
    ran = run("plan", "--against", path)
    assert ran.code == 0 and len(table_of_comparison(ran.out)) == 8


def test_a_comparison_is_refused(run: Any, tiny: Path, tmp_path: Path) -> None:
    runs = [bench_run(1, 0, 9.0, name="plain"), bench_run(1, 2, 14.0, name="ngram")]
    path = write_json(tmp_path / "c.json", {"compare": True, **bench(*runs, passes=PASSES, drafts=DRAFTS)})
    for options in (("--against", path), (tiny, "--acceptance", path)):
        ran = run("plan", *options)
        assert ran.code == 1 and ran.err.count("\n") == 1, ran.err
        assert "holds 2 systems side by side (plain, ngram); give a file that foretell bench wrote" in ran.err


def test_batches_that_do_not_fit_are_not_promised(run: Any) -> None:
    line = ("plan", "llama-3-8b", "--acceptance", "0.8", "--context")
    ran = run(*line, 32000)
    assert "up to 14 rows fit" in ran.out
    assert "By this prediction drafting pays at every batch size that fits at context 32,000: up to 14." in ran.out
    assert re.search(r"By this prediction drafting stops paying at batch \d+\.\n", run(*line, 100).out)
    assert "The weights do not fit; this is as if they did." in run("plan", "llama-3-70b", "--acceptance", "0.8").out


@pytest.mark.parametrize("acceptance", [("--acceptance", "0.8"), ()])
def test_why_rows_do_not_fit_is_said(run: Any, tmp_path: Path, acceptance: tuple[str, ...]) -> None:
    out, line = tmp_path / "p.json", ("plan", "llama-3-8b", *acceptance)
    ran = run(*line, "--context", 1000000, "--depth", 2, "--json", out)
    assert ", no row of 1,000,000 tokens fits (" in ran.out and "weights do not" not in ran.out
    assert "No row of 1,000,000 tokens fits; this is as if one did." in ran.out
    found = run("report", out, "--markdown", tmp_path / "p.md")
    page = (tmp_path / "p.md").read_text()
    assert found.code == 0 and "none: no row of 1,000,000 tokens fits" in page and "as if one did" in page
    ran = run(*line, "--context", 32000, "--batch", 15)
    assert "WARNING: 15 rows do not fit, 14 at most do; this is as if they did." in ran.out
    assert "WARNING" not in run(*line, "--context", 32000, "--batch", 14).out


@pytest.mark.parametrize(
    ("model", "warns"), [("SmolLM2-135M-Instruct.Q8_0", True), ("Org/Tiny-Instruct", False), (None, False), (7, False)]
)
def test_files_of_another_model_are_told_of(run: Any, tiny: Path, tmp_path: Path, model: object, warns: bool) -> None:
    named = {} if model is None else {"model": model}
    path = write_json(tmp_path / "b.json", {**bench(bench_run(1, 0, 9.0), bench_run(1, 2, 14.0)), **named})
    probe = write_json(tmp_path / "p.json", {**named, "depths": [{"chained": 0.5}]})
    for options, words in (
        (("--against", path), f"warning: {path} was measured with {model}, and the plan is for tiny: "),
        (("--acceptance", path), f"warning: --acceptance is of {model}, and the plan is for tiny: "),
        (("--acceptance", probe), f"warning: --acceptance is of {model}, and the plan is for tiny: "),
    ):
        ran = run("plan", tiny, *options)
        assert ran.code == 0 and ("warning:" in ran.err) == warns and (words in ran.err) == warns


def table_of_comparison(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.strip()[:1].isdigit()]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "MODEL is missing.*--against alone"),
        (["--hardware", "h100", "--against", "b.json"], "--hardware needs a model"),
        (["{m}", "--hardware", "h900"], "--hardware.*is not known; give h100"),
        (["{m}", "--hardware", "no/such.json"], "is no file; give one that foretell"),
        (["{m}", "--acceptance", "no/such.json"], "is no file; give one that foretell"),
        (["{m}", "--acceptance", "1.2"], "--acceptance"),
        (
            ["{m}", "--acceptance", "0.8,0.7", "--depth", "3"],
            "--depth: 3 is too deep; --acceptance is known for 2 depths",
        ),
        (["{m}", "--unconditional"], "there is none"),
        (["{m}", "--efficiency", "0"], "--efficiency.*> 0 and <= 1"),
        (["{m}", "--efficiency", "nan"], "--efficiency"),
        (["{m}", "--layer-overhead-us", "inf"], "--layer-overhead-us"),
        (["{m}", "--layer-overhead-us", "-1"], "--layer-overhead-us"),
        (["{m}", "--draft-cost", "x"], "--draft-cost"),
        (["{m}", "--batch", "0"], "--batch"),
        (["{m}", "--context", "0"], "--context"),
        (["{m}", "--depth", "0"], "--depth"),
        (["{m}", "--nodes", "4"], "--nodes.*no --depth"),
        (["{m}", "--nodes", "4", "--depth", "4"], "--nodes"),
        (["{m}", "--draft-vocab", "1000"], "--draft-vocab: 1000 is more"),
        (["{m}", "--dtype", "float8", "--hardware", "cpu"], "no float8 arithmetic"),
        (["{m}", "--measure", "--hardware", "h100"], "--measure"),
        (["{m}", "--measure", "--devices", "2"], "--devices"),
        (["{m}", "--measure", "--dtype", "int4"], "int4 do not run here"),
        (["{m}", "--on-busy", "abort"], "--on-busy: nothing is timed without --measure"),
        (["{m}", "--heads", "no/such"], "no such folder"),
        (["{m}", "--heads", "adapters/smollm2-135m-instruct"], "was made for"),
        (["no-such-model"], "presets"),
        (["{m}", "--against", "no/such.json"], "is no file; give one that foretell"),
    ],
)
def test_what_cannot_be_is_one_line(run: Any, tiny: Path, options: list[str], problem: str) -> None:
    ran = run("plan", *(option.replace("{m}", str(tiny)) for option in options))
    assert ran.code in (1, 2) and re.search(problem, ran.err), ran.err
    assert ran.err.count("\n") == 1 and "not expected" not in ran.err


def test_a_measured_machine_is_for_its_own_model(run: Any, tiny: Path, tmp_path: Path) -> None:
    path = write_json(tmp_path / "machine.json", {"machine": MACHINE.as_dict()})
    for options, problem in (
        ((), "measured for the shapes of m, tiny has others"),
        (("--dtype", "float32"), "--dtype"),
        (("--efficiency", "0.5"), "needs neither"),
        (("--devices", "2"), "--devices"),
    ):
        ran = run("plan", tiny, "--hardware", path, *options)
        assert ran.code == 2 and problem in ran.err


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement of few and small kernels and steps."""
    from foretell.planning import kernels, measure, thin

    monkeypatch.setattr(kernels, "_LARGE", 256)
    monkeypatch.setattr(kernels, "_BUSY", 256)
    monkeypatch.setattr(measure, "ROUNDS", 1)
    monkeypatch.setattr(measure, "ROWS", (1, 2, 4))
    monkeypatch.setattr(measure, "BATCHES", (1, 2))
    monkeypatch.setattr(thin, "_STEPS", 2)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("is_busy", [False, True])
def test_measured_here_and_taken_again(
    run: Any, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    monkeypatch.setattr(LoadSnapshot, "cores_of_others", lambda self, end: 7.0 if is_busy else 0.0)
    machine, again = tmp_path / "machine.json", tmp_path / "again.json"
    line = ("plan", tiny, "--dtype", "float32", "--context", 8, "--depth", 2, "--acceptance", "0.7")
    ran = run(*line, "--measure", "--json", machine)
    assert ran.code == 0 and "measured for tiny, context 8" in ran.out, ran.err
    assert ("warning: other processes took 7.00" in ran.err) == is_busy
    ran = run(*line, "--hardware", machine, "--json", again)
    first, second = (json.loads(path.read_text()) for path in (machine, again))
    assert ran.code == 0 and first["plan"] == second["plan"] and second["seconds_are"] == "measured"
    assert first["plan"]["searched_batch"] == 2
    where = first["machine"]["environment"]
    assert {"date", "torch", "foretell", "commit", "threads", "command"} <= where.keys()
    assert where["dtype"] == "float32" and where == second["machine"]["environment"]
    assert ("the machine's seconds are too long" in (where["load"]["note"] or "")) == is_busy
    assert where["load"]["cores_of_others"] == (7.0 if is_busy else 0.0)
    assert all(len(kernel["samples"]) == len(kernel["rows"]) for kernel in first["machine"]["kernels"])


@pytest.mark.usefixtures("quick")
def test_a_busy_machine_is_told_of_while_it_is_measured(
    run: Any, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foretell.planning import measure

    measured = measure.measure

    def late(*args: Any) -> MeasuredMachine:
        time.sleep(0.1)  # a few looks
        return measured(*args)

    monkeypatch.setattr(measure, "measure", late)
    monkeypatch.setattr(load_watch, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(LoadSnapshot, "cores_of_others", lambda self, end: 7.0)
    line = (
        "plan",
        tiny,
        "--dtype",
        "float32",
        "--context",
        8,
        "--depth",
        1,
        "--measure",
        "--json",
        tmp_path / "m.json",
    )
    ran = run(*line, "--on-busy", "abort")
    assert ran.code == 1 and not ran.out and not (tmp_path / "m.json").exists()
    assert ran.err.splitlines()[-1].startswith("error: --on-busy abort: other processes take 7.00 of")
    ran = run(*line)
    assert ran.code == 0 and ran.err.count("warning: other processes take 7.00 of") == 1
    assert "the machine's seconds are too long; measure it again when it is idle; --on-busy abort would" in ran.err


@pytest.mark.parametrize("option", ["--acceptance", "--against", "--hardware"])
def test_a_missing_file_is_said_with_its_option(run: Any, option: str) -> None:
    ran = run("plan", "smollm2-135m", option, "no/such.json")
    assert ran.code == 1 and ran.err.startswith(f"error: {option}: no/such.json is no file; give one that foretell")
