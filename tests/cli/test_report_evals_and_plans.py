"""foretell report on files that eval and plan themselves wrote, on tiny models."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from foretell.cli.main import main
from foretell.reporting import style
from foretell.reporting.files import read_results
from foretell.reporting.html import to_html
from foretell.reporting.report import build
from tests import fixtures
from tests.cli.test_eval import TASK
from tests.reporting import made
from tests.reporting.test_fuzz import one
from tests.reporting.test_report import lead, page, table

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "_save", lambda paint, width, height: "<svg ><g></g></svg>")


@pytest.fixture(scope="module")
def folder(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """heads, plain (eval), plan, against, bare, tree and published (plan), as JSON files."""
    root = tmp_path_factory.mktemp("written")
    (root / "letters.jsonl").write_text('{"text": "ab", "next": "cdefg"}\n{"text": "d", "next": "x"}\n')
    (root / "letters.yaml").write_text(TASK.format(folder=root, tokens=8))
    (root / "long.txt").write_text(LETTERS * 40)
    (root / "short.txt").write_text("xyz")
    (root / "p.jsonl").write_text('{"prompt": "a"}\n{"prompt": "hij"}\n')
    fixtures.tiny_llama().save_pretrained(root / "tiny")
    asked = ["--tasks", root / "letters.yaml", "--text", root / "long.txt", root / "short.txt"]
    asked += ["--parse", "python", "--prompts", root / "p.jsonl", "--max-tokens", 6]
    prompts = ["--prompts", root / "p.jsonl", "--max-tokens", 8, "--repeats", 1]
    cycle, tiny, bench = folders / "cycle", root / "tiny", root / "bench.json"
    for name, line in {
        "heads": ["eval", cycle, "--heads", folders / "right", *asked],
        "plain": ["eval", cycle, *asked],
        "bench": ["bench", cycle, "--heads", folders / "right", "--depths", "0,1,2", *prompts],
        "plan": ["plan", tiny, "--acceptance", "0.8,0.5", "--batch", 2, "--against", bench],
        "against": ["plan", "--against", bench],
        "bare": ["plan", tiny, "--depth", 2],
        "tree": ["plan", tiny, "--depth", 2, "--nodes", 6, "--acceptance", "0.8,0.6"],
        "published": ["plan", "deepseek-v3", "--hardware", "h200", "--devices", 8, "--dtype", "float8"]
        + ["--acceptance", "0.785", "--depth", 2],
    }.items():
        write(line, root / f"{name}.json")
    return root


def write(line: list[Any], file: Path) -> None:
    assert main([str(word) for word in [*line, "--json", file]]) == 0


@pytest.fixture
def values(folder: Path) -> Any:
    """A file's values, to be changed."""
    return lambda name: copy.deepcopy(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))


def sections(made_page: Any) -> list[str]:
    return [section.title for section in made_page.sections]


def test_all_of_them_on_one_page(run: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("heads", "plain", "plan", "against", "bare", "tree", "published")
    ran = run("report", *(folder / f"{name}.json" for name in names), "--html", "r.html", "--markdown", "r.md")
    assert ran.code == 0 and ran.err == "written: r.html\nwritten: r.md\n"
    html, text = (tmp_path / "r.html").read_text(encoding="utf-8"), (tmp_path / "r.md").read_text(encoding="utf-8")
    titles = ("Planned, not measured", "Prediction beside measurement", "Quality")
    assert all(f"<h2>{title}</h2>" in html and f"\n## {title}\n" in text for title in titles)
    assert html.count("<figure") == 4 == len(list((tmp_path / "r_files").iterdir()))
    found = read_results([folder / f"{name}.json" for name in names])
    assert (len(found.evals), len(found.plans), found.problems) == (2, 5, {})


def test_with_heads_and_without_stand_side_by_side(tmp_path: Path, values: Any) -> None:
    made_page = page(tmp_path, values("heads"), values("plain"))
    assert sections(made_page) == ["What was measured", "Quality", "Warnings and notes"]
    assert [row[2:] for row in table(made_page, "What was evaluated").rows][1] == ["none", "0", "8"]
    found = table(made_page, "Bits per byte")
    assert found.columns[4:] == ["trunk", "heads, depth 1", "heads, depth 2", "heads, depth 3"]
    assert [[row[0], *row[2:4]] for row in found.rows] == [
        [file, size, size] for file in ("f0", "f1") for size in ("1,040", "3", "1,043")
    ]
    [whole] = [depth["depths"] for depth in [values("heads")["text"]["all"]]]
    assert found.rows[2][4:] == [f"{depth['bits_per_byte']:.4f}" for depth in whole]
    assert found.rows[5][4:] == [f"{whole[0]['bits_per_byte']:.4f}", "-", "-", "-"]
    rows = table(made_page, "Bits by depth, all texts: f0").rows
    assert [row[:3] for row in rows[:2]] == [["0 (trunk)", "1,043", "-"], ["1", "1,041", "1.000"]]
    assert table(made_page, "Task scores").rows == [
        ["letters", "exact_match", "none", "1", "2", "0", "higher", "0.5000 (0.5000)", "0.5000 (0.5000)"]
    ]
    rows = table(made_page, "What decoding took").rows
    assert [row[:4] + row[5:] for row in rows] == [
        ["f0", "letters", "2", "10", "3.33", "1.00 0.67 1.00"],
        ["f0", "python", "2", "12", "4.00", "1.00 1.00 1.00"],
        ["f1", "letters", "2", "10", "-", "-"],
        ["f1", "python", "2", "12", "-", "-"],
    ]
    assert "f0 (depth 3) and f1 (no drafts)" in lead(made_page)[2]
    assert lead(made_page)[2].endswith("both " + values("plain")["model"] + ": the one shared score is equal.")


def test_answers_that_parse(tmp_path: Path, values: Any) -> None:
    """Two answers of six letters are cut off; were four judged, three of them would parse."""
    heads = values("heads")
    assert table(page(tmp_path, heads), "Answers that parse").rows == [
        ["f0", "python", "2", "0", "0", "0", "2", "0", "-", "6"]
    ]
    assert lead(page(tmp_path, heads))[0].endswith(
        "0 of 0 judged python answers parse; 2 more were cut off and not judged."
    )
    heads["parse"]["num_context_full"] = 1
    assert "2 more were cut off, 1 of them by a full context, and not judged." in lead(page(tmp_path, heads))[0]
    del heads["parse"]["num_context_full"]  # as in files from before it was counted
    heads["parse"] |= {"num_outputs": 4, "num_parsed": 3, "num_failed": 1, "num_cut_off": 0, "share": 0.75}
    made_page = page(tmp_path, heads)
    assert table(made_page, "Answers that parse").rows == [["f0", "python", "4", "3", "1", "0", "0", "-", "0.750", "6"]]
    assert lead(made_page)[0].endswith(" 3 of 4 judged python answers parse.")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "1 of 1 shared score differ: letters exact_match 0.5000 and 0.2500."),
        ({"model": "other"}, None),
        ({"dtype": "float64"}, None),
        ({"command": "foretell eval cycle --chat"}, None),
        ({"n-shot": {"letters": 5}}, None),
        ({"n-samples": {"letters": {"original": 2, "effective": 1}}}, None),
    ],
)
def test_scores_are_compared_where_the_same_was_asked(
    change: dict[str, Any], says: str | None, tmp_path: Path, values: Any
) -> None:
    other = values("plain")
    other["tasks"]["results"]["letters"]["exact_match,none"] = 0.25
    for key, value in change.items():
        place = other if key in other else other["tasks"] if key in other["tasks"] else other["environment"]
        place[key] = value
    made_page = page(tmp_path, values("heads"), other)
    shared = [paragraph for paragraph in made_page.lead if "shared score" in paragraph.text]
    assert [(p.warns, p.text.endswith(str(says))) for p in shared] == ([] if says is None else [(True, True)])
    assert len(table(made_page, "Task scores").rows) == (2 if "n-s" in str(change) else 1)


def test_tokens_without_a_probability_make_bits_infinite(tmp_path: Path, values: Any) -> None:
    heads = values("heads")
    heads["text"]["all"]["depths"][2] |= {"coverage": 0.9, "bits_per_byte": None}
    made_page = page(tmp_path, heads)
    assert table(made_page, "Bits per byte").rows[2][6] == "infinite"
    found = table(made_page, "Bits by depth")
    assert found.rows[2][2::2] == ["0.900", "infinite"] and "draft vocabulary" in found.notes[0]
    assert "infinite at depth 2" in lead(made_page)[0]


def test_each_measurement_alone_is_known_and_warnings_reach_the_page(tmp_path: Path, values: Any) -> None:
    heads = values("heads")
    heads["warnings"] = ["3 bytes of text are few"]
    heads["environment"]["load"]["note"] = "other processes took 0.70 of 2 cores"
    for part, caption in (("text", "Bits per byte"), ("tasks", "Task scores"), ("parse", "Answers that parse")):
        alone = {key: value for key, value in heads.items() if key not in {"text", "tasks", "parse"} - {part}}
        made_page = page(tmp_path, alone)
        assert table(made_page, caption).rows
        said = [b.text for s in made_page.sections for b in s.blocks if getattr(b, "warns", False)]
        assert not any("interrupted" in text for text in said)
        assert "f0: 3 bytes of text are few" in said and "f0: other processes took 0.70 of 2 cores." in said


def test_a_part_of_an_evaluation_says_so(tmp_path: Path, values: Any) -> None:
    made_page = page(tmp_path, values("heads") | {"incomplete": True})
    said = [b.text for s in made_page.sections for b in s.blocks if getattr(b, "warns", False)]
    assert "f0: interrupted: what was not measured to the end is missing." in said
    assert lead(made_page)[0].startswith("Stopped early. Bits per byte")


def test_a_plan_has_its_depths_and_what_it_stands_on(tmp_path: Path, values: Any) -> None:
    plan = values("plan")
    del plan["against"]
    made_page = page(tmp_path, plan)
    assert sections(made_page) == ["Planned, not measured"]
    own = plan["plan"]["depths"]
    best = max(own, key=lambda depth: depth["tokens_per_s"])
    assert lead(made_page) == [
        f"Planned, not measured: tiny on H100 SXM at batch 2: best depth {best['depth']}, {best['speedup']:.2f}x plain "
        "decoding. By this prediction drafting pays at every batch size looked at: up to 4,096."
    ]
    found = table(made_page, "Plan: ")
    assert found.columns == ["depth", "bytes", "FLOPs", "FLOP/byte", "idle", "pass", "draft", "tokens a pass",
                             "tokens/s", "speed-up", "simple", "break-even"]  # fmt: skip
    assert [row[7] for row in found.rows] == ["1.00", "1.80", "2.20"]
    assert [row[9] for row in found.rows] == [f"{depth['speedup']:.2f}" for depth in own]
    assert [row[5] for row in found.rows] == [f"{1e6 * depth['pass_s']:.3g} us" for depth in own]
    assert found.rows[0][-1] == "-" and found.rows[1][-1] == f"{own[1]['break_even_acceptance']:.3f}"
    assert found.notes[0].startswith("Seconds are bounds")
    facts = dict(table(made_page, "What was planned").rows)
    assert (facts["acceptance"], facts["context, tokens"], facts["machine"]) == ("0.8 0.5", "1,024", "H100 SXM")
    assert facts["peak arithmetic a second"] == "989 TFLOP" and facts["parameters of the trunk"] == "95 K"


def test_what_a_plan_leaves_open_is_left_out(tmp_path: Path, values: Any) -> None:
    made_page = page(tmp_path, values("bare"))
    assert lead(made_page)[0].endswith("no acceptance was given, so there is no speed-up.")
    columns = table(made_page, "Plan: ").columns
    assert "speed-up" not in columns and "experts" not in columns and columns[-1] == "break-even"
    assert "nodes" in table(page(tmp_path, values("tree")), "Plan: ").columns
    published = page(tmp_path, values("published"))
    assert dict(table(published, "What was planned").rows)["peak arithmetic a second"] == "15831 TFLOP"  # 8 x 1978.9
    found = table(published, "Plan: ")
    assert "experts" in found.columns and "Published by others: 1.80x at batch 1, 1.50x at batch 32" in found.notes[-1]


def test_a_machine_that_was_measured_has_its_environment_on_the_page(tmp_path: Path, values: Any) -> None:
    plan = values("bare") | {"seconds_are": "measured", "machine": {"environment": made.ENVIRONMENT}}
    made_page = page(tmp_path, plan)
    assert sections(made_page) == ["What was measured", "Planned, not measured"]
    assert ["CPU", "Some CPU"] in table(made_page, "Where and how").rows
    assert "measured on the machine" in table(made_page, "Plan: ").notes[0]


@pytest.mark.slow
def test_a_plan_on_this_machine(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    write(
        [
            "plan",
            folder / "tiny",
            "--measure",
            "--dtype",
            "float32",
            "--context",
            16,
            "--depth",
            1,
            "--acceptance",
            "0.9",
        ],
        file,
    )
    found = read_results([file])
    assert found.problems == {}
    made_page = build(found, "T", "1")
    assert sections(made_page) == ["What was measured", "Planned, not measured"]
    assert "measured on the machine" in table(made_page, "Plan: ").notes[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"best_depth": 0}, ": drafting does not pay."),
        ({"break_even_batch": 9}, "x plain decoding. By this prediction drafting stops paying at batch 9."),
        ({"memory": {"max_batch": 0}}, "up to 4,096. The weights do not fit; this is as if they did."),
    ],
)
def test_what_follows_from_a_plan(change: dict[str, Any], says: str, tmp_path: Path, values: Any) -> None:
    plan = values("plan")
    plan["plan"] |= change
    assert lead(page(tmp_path, plan))[0].endswith(says)


def test_a_depth_that_never_pays_is_told_from_one_without_a_figure(tmp_path: Path, values: Any) -> None:
    plan = values("plan")
    plan["plan"]["depths"][1]["break_even_acceptance"] = None
    del plan["plan"]["depths"][2]["break_even_acceptance"]
    assert [row[-1] for row in table(page(tmp_path, plan), "Plan: ").rows] == ["-", "never", "-"]


def test_prediction_beside_measurement(tmp_path: Path, values: Any) -> None:
    plan = values("plan")
    own = plan["against"]["step_costs"]
    made_page = page(tmp_path, plan)
    assert sections(made_page) == ["Planned, not measured", "Prediction beside measurement"]
    found = table(made_page, "Predicted from the file's own step costs: ")
    assert [row[3] for row in found.rows] == [f"{row['predicted_tokens_per_s']:,.1f}" for row in own]
    assert [row[4] for row in found.rows] == [f"{row['measured_tokens_per_s']:,.1f}" for row in own]
    assert len(table(made_page, "Predicted from the machine of the plan: ").rows) == len(own) == 3
    figures = [figure.alt for figure in made_page.figures]
    assert len(figures) == 2 and all("batch 1, depth 2 predicted " in alt and "depth 0" not in alt for alt in figures)


def test_the_largest_error_and_the_best_that_was_missed(tmp_path: Path, values: Any) -> None:
    against = values("against")
    for row, (predicted, measured, error) in zip(
        against["against"]["step_costs"], [(1.0, 1.0, 0.1), (1.5, 0.9, -0.4), (1.2, 1.3, 0.1)], strict=True
    ):
        row |= {"predicted_speedup": predicted, "measured_speedup": measured, "error": error}
    made_page = page(tmp_path, against)
    errors, missed = lead(made_page)
    assert errors.endswith("bench.json, predicted from the file's own step costs: tokens/s are off by -40.0 % at most "
                           "(batch 1, depth 1), 20.0 % in the mean of 3 settings.")  # fmt: skip
    assert missed == (
        "From the file's own step costs the best was missed: at batch 1 depth 1 was predicted best, which ran at "
        "0.90x; depth 2 ran at 1.30x."
    )
    assert [paragraph.warns for paragraph in made_page.lead] == [False, True]
    against["against"]["step_costs"][2]["predicted_speedup"] = 1.6
    assert len(lead(page(tmp_path, against))) == 1


@pytest.mark.parametrize("name", ["heads", "plain", "plan", "published", "against"])
def test_changed_files(name: str, folder: Path, tmp_path: Path) -> None:
    whole, source = json.loads((folder / f"{name}.json").read_text(encoding="utf-8")), random.Random(name)
    assert sum(one(whole, source, tmp_path) for _ in range(60)) > 10


def test_what_comes_from_files_is_only_text(tmp_path: Path, values: Any) -> None:
    evil = "</svg><script>alert(1)</script>"
    heads, plan = values("heads"), values("plan")
    heads |= {"model": evil, "heads": evil, "warnings": [evil]}
    heads["tasks"]["results"] = {evil: {f"{evil},none": 1.0}}
    heads["parse"]["language"] = heads["text"]["files"][0]["file"] = evil
    plan["model"]["name"] = plan["hardware"]["name"] = plan["against"]["file"] = evil
    plan["published"] = {"speedups": {evil: 1.5}, "source": evil}
    html = to_html(page(tmp_path, heads, plan))
    assert "<script>" not in html and html.count("&lt;script&gt;") > 10
    assert build(read_results([]), "T", "1").sections == []
