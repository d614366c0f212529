"""What stands on the page: sentences and tables that follow from the figures, nothing where nothing was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretell.reporting.files import read_results
from foretell.reporting.page import Page, Table
from foretell.reporting.report import build
from tests.reporting import made

pytestmark = pytest.mark.usefixtures("undrawn")


def page(tmp_path: Path, *files: Any) -> Page:
    paths = [made.write(tmp_path, f"f{index}.json", values) for index, values in enumerate(files)]
    return build(read_results(paths), "Title", "1.2.3")


def lead(made_page: Page) -> list[str]:
    return [paragraph.text for paragraph in made_page.lead]


def table(made_page: Page, caption: str) -> Table:
    blocks = [block for section in made_page.sections for block in section.blocks]
    [found] = [block for block in blocks if isinstance(block, Table) and block.caption.startswith(caption)]
    assert all(len(row) == len(found.columns) for row in found.rows)
    return found


def test_the_lead_names_the_best_and_everything_that_loses(tmp_path: Path) -> None:
    best, lost = lead(page(tmp_path, made.bench((1, 8))))
    assert best == (
        "Fastest is depth 1 at batch 1: 1.40x (1.10-1.70) plain decoding, over all prompts. In 3 of 6 settings the "
        "10th percentile lies below 1."
    )
    assert lost == (
        "Slower than plain decoding in 3 of 6 settings: depth 1 at batch 8 (0.90x), depth 2 at batch 1 on chat "
        "(0.95x), depth 2 at batch 8 on chat (0.95x)."
    )


def test_where_nothing_gains_the_lead_says_so(tmp_path: Path) -> None:
    runs = [made.run(0), made.run(1, speedup=made.spread(0.9996, 0.9, 1.1))]
    assert lead(page(tmp_path, made.bench(runs=runs))) == [
        "Drafting does not pay here: the best, depth 1 at batch 1, runs at 0.9996x (0.90-1.10) of plain decoding. "
        "In 1 of 1 setting the 10th percentile lies below 1.",
        "Slower than plain decoding in 1 of 1 setting: depth 1 at batch 1 (0.9996x).",
    ]


def test_where_nothing_loses_the_lead_says_so_too(tmp_path: Path) -> None:
    runs = [made.run(0), made.run(1, speedup=made.spread(1.25))]
    found = lead(page(tmp_path, made.bench(runs=runs)))
    assert found == [
        "Fastest is depth 1 at batch 1: 1.25x (one pair, no range) plain decoding, over all prompts.",
        "No median is below plain decoding's.",
    ]


def test_what_was_not_measured_is_a_dash_and_not_zero(tmp_path: Path) -> None:
    made_page = page(
        tmp_path, made.bench(runs=[made.run(0, speedup=made.spread(1)), made.run(1, decode_tokens_per_s=None)])
    )
    rows = table(made_page, "Speed: ").rows
    assert rows[0][2:] == ["plain (depth 0)", "30.0 (25.0-35.0)", "1.00"] and rows[1][3] == "-"
    assert [row[2] for row in table(made_page, "Acceptance: ").rows] == ["depth 1"]


def test_sections_without_data_are_left_out(tmp_path: Path) -> None:
    assert [section.title for section in page(tmp_path, made.verify()).sections] == ["Is the text unchanged?"]
    bare = made.bench(
        step_costs={}, runs=[made.run(0, time_share=None), made.run(1, time_share=None, acceptance_by_depth=[])]
    )
    assert [s.title for s in page(tmp_path, bare).sections] == ["What was measured", "Speed-up and tokens/s"]


def test_c_of_n_is_over_the_plain_pass_of_the_same_batch(tmp_path: Path) -> None:
    values = made.bench((1, 4))
    values["step_costs"]["pass"] += [
        {"batch": 4, "rows": 3, "nodes": 9, "num_steps": 50, "seconds": made.spread(9.0)},  # a place is empty
        {"batch": 4, "rows": 4, "nodes": 20, "num_steps": 4, "seconds": made.spread(9.0)},  # seen too seldom
    ]
    made_page = page(tmp_path, values)
    [figure] = [figure for figure in made_page.figures if figure.title.startswith("Cost")]
    line = "1.00 at 1, 2.00 at 2, 3.00 at 3"
    assert figure.alt == f"Cost of a pass: batch 1: {line}; batch 4: {line}."
    rows = table(made_page, "Passes: ").rows
    assert [row[:3] + [row[5]] for row in rows] == [
        ["1", "1", "1", "1.00"],
        ["1", "2", "2", "2.00"],
        ["1", "3", "3", "3.00"],
        ["4", "4", "1", "1.00"],
        ["4", "8", "2", "2.00"],
        ["4", "12", "3", "3.00"],
    ]


def test_time_split_and_memory(tmp_path: Path) -> None:
    [_, row, *_] = table(page(tmp_path, made.bench()), "Time of a step").rows
    assert row == ["1", "depth 1", "12 %", "75 %", "12 %", "40.0", "1.10", "1.36", "36.0"]


OTHER = "foretell bench demo --heads adapters/x --batch 8,16 --depths 0,1 --num-prompts 9 --json other.json"


@pytest.mark.parametrize(
    ("change", "num_figures"),
    [
        ({}, 1),
        ({"command": OTHER.replace("adapters/x", "adapters/y")}, 2),
        ({"command": OTHER.replace("0,1", "0,2")}, 2),
        ({"batches": (1, 16)}, 2),
        ({"environment": {**made.ENVIRONMENT, "cpu": "Other CPU", "command": OTHER}}, 2),
        ({"environment": {}}, 2),
    ],
)
def test_files_share_a_figure_only_where_they_belong_together(
    change: dict[str, Any], num_figures: int, tmp_path: Path
) -> None:
    second = made.bench(**{"batches": (8, 16), "command": OTHER, **change})
    figures = [f for f in page(tmp_path, made.bench((1, 2)), second).figures if f.title.startswith("Speed-up against")]
    assert len(figures) == num_figures
    assert figures[0].title == "Speed-up against batch size: " + ("f0 and f1" if num_figures == 1 else "f0")
    if num_figures == 1:
        assert "differ in --num-prompts 2 / 9." in figures[0].notes[-1]
        assert "depth 1 1.40 at 1, 1.40 at 2, 0.90 at 8, 0.90 at 16" in figures[0].alt


def test_verify_lists_bugs_first_and_all_of_them(tmp_path: Path) -> None:
    ties = [made.difference(prompt=n) for n in range(30)]
    bugs = [made.difference("BUG", prompt=n) for n in (77, 78)]
    made_page = page(tmp_path, made.verify(False, [*ties, *bugs]))
    assert lead(made_page)[0].startswith("Verify FAILED: 0 of 10 texts equal") and made_page.lead[0].warns
    found = table(made_page, "Differences: ")
    assert [row[1] for row in found.rows][:3] == ["77", "78", "0"] and len(found.rows) == 25
    assert "7 more near ties" in found.notes[-1]


def test_warnings_in_a_file_reach_the_page(tmp_path: Path) -> None:
    values = made.bench(incomplete=True, differences=[made.difference(), made.difference(depth="auto")])
    values["environment"]["load"] = {"note": "other processes took 0.70 of 2 cores"}
    values["batches"][0] |= {"notes": ["generate_batch: not here"], "num_texts_unlike_depth_0": {"transformers": 3}}
    made_page = page(tmp_path, values)
    texts = [b.text for s in made_page.sections for b in s.blocks if hasattr(b, "text")]
    for words in ("took 0.70 of 2 cores", "f0: interrupted: figures are of", "batch 1: generate_batch: not here"):
        assert any(words in text for text in texts), words
    assert [row[2] for row in table(made_page, "Texts that parted").rows] == ["2", "auto"]
    assert table(made_page, "Texts of other systems").rows == [["f0", "1", "transformers", "3"]]


@pytest.mark.parametrize("kind", ["bench", "compare"])
def test_a_stopped_run_says_how_far_it_came(kind: str, tmp_path: Path) -> None:
    """Of a batch size that was finished nothing is said."""
    batches = [{"batch": 1}, {"batch": 4, "incomplete": True, "num_measured": 1007, "num_planned": 1200}]
    values = (made.bench((1, 4)) if kind == "bench" else made.compare_batches()) | {"incomplete": True}
    made_page = page(tmp_path, values | {"batches": batches})
    texts = [b.text for s in made_page.sections for b in s.blocks if hasattr(b, "text")]
    assert (
        "f0: interrupted after 1,007 of 1,200 measurements at batch 4: figures are of whole turns, and batch sizes may "
        "be missing."
    ) in texts
    assert lead(made_page)[0].startswith("Stopped after 1,007 of 1,200 measurements at batch 4. Fastest is ")


def test_systems_side_by_side(tmp_path: Path) -> None:
    made_page = page(tmp_path, made.compare())
    rows = table(made_page, "Systems: ").rows
    assert [row[0] for row in rows] == ["plain (depth 0)", "Parallel heads", "Prompt look-up", "Medusa"]
    assert rows[1][1:] == [
        "1", "heads", "3", "30.0 (25.0-35.0)", "1.60 (1.30-1.90)", "25.5 / 41.2", "1.50", "-", "0.50 0.25",
        "12 % / 75 % / 12 %", "0.142", "12.0", "36.0", "adapters/p",
    ]  # fmt: skip
    assert rows[3][1:] == ["-", "heads", *["-"] * 9, "7.0", "14.0", "-"]
    assert made_page.figures[0].alt == "Bars: plain (depth 0) 1.00; Parallel heads 1.60; Prompt look-up 0.85."
    assert "Prompt look-up at batch 1 (0.85x)" in lead(made_page)[1]


def test_training_and_probe(tmp_path: Path) -> None:
    made_page = build(read_results(made.everything(tmp_path)), "All", "1")
    assert table(made_page, "Where training ended").rows[0][:5] == ["run", "30", "0.300", "0.300", "2.000"]
    assert table(made_page, "Probe: probe").rows[1] == ["2", "990", "0.550", "0.450", "-"]
    assert ["mean loss", "1.500"] in [list(row) for row in table(made_page, "Heads and their training").rows]
    titles = [section.title for section in made_page.sections]
    assert titles == [
        "What was measured", "Systems side by side", "Speed-up and tokens/s", "Acceptance by depth and domain",
        "Cost of a pass", "Where the time goes", "Is the text unchanged?", "Guesses on held-out text",
        "Learning curves", "Warnings and notes",
    ]  # fmt: skip
