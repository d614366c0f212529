"""Compare files: a table a domain, lines over batch sizes, warnings, and what "tokens a pass" means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reporting import made
from tests.reporting.test_report import lead, page, table

pytestmark = pytest.mark.usefixtures("undrawn")


def texts(made_page: Any) -> list[tuple[str, bool]]:
    blocks = [block for section in made_page.sections for block in section.blocks]
    return [(block.text, block.warns) for block in blocks if hasattr(block, "warns")]


def test_every_domain_has_a_table(tmp_path: Path) -> None:
    made_page = page(tmp_path, made.compare_batches())
    found = table(made_page, "Systems on code: f0")
    assert found.columns == ["system", "batch", "speed-up", "tokens a pass", "drafted", "acceptance by depth"]
    assert len(found.rows) == len(table(made_page, "Systems on chat: f0").rows) == 12
    assert found.rows[0] == ["plain (depth 0)", "1", "1.00", "1.00", "0.0 %", "-"]
    assert found.rows[2] == ["Parallel heads, depth 3", "1", "1.85 (1.75-1.95)", "1.25", "50 %", "0.50 0.25"]
    assert found.rows[-2][:3] == ["Prompt look-up", "4", "1.05 (0.95-1.15)"]
    assert table(made_page, "Systems on chat").rows[2][2] == "1.35 (1.25-1.45)"


def test_one_domain_is_named_and_not_shown_twice(tmp_path: Path) -> None:
    values = made.compare_batches()
    values["runs"] = [run for run in values["runs"] if run["domain"] != "code"]
    made_page = page(tmp_path, values)
    assert table(made_page, "Systems").notes[-1] == "All prompts are of one domain, chat."
    values["runs"] = [run for run in values["runs"] if run["domain"] != "all"]
    assert len(table(page(tmp_path, values), "Systems on chat").rows) == 12


def test_a_line_a_system_over_batch_sizes(tmp_path: Path) -> None:
    [figure] = [f for f in page(tmp_path, made.compare_batches()).figures if "against batch size" in f.title]
    assert figure.alt == (
        "3 lines over batch sizes 1 and 4: Parallel heads, depth 3 1.60 at 1, 1.50 at 4; "
        "Prompt look-up, depth 3 0.85 at 1, 0.80 at 4; Medusa, depth auto 1.20 at 1, 1.10 at 4."
    )
    one = made.compare_batches()
    one["runs"] = [run for run in one["runs"] if run["batch"] == 1]
    assert not [f for f in page(tmp_path, one).figures if "against batch size" in f.title]


def test_a_chain_that_was_measured_at_fewer_batch_sizes_is_not_the_best(tmp_path: Path) -> None:
    values = made.compare_batches()
    drop = ("parallel", 3, 0, 4)
    values["runs"] = [r for r in values["runs"] if (r["name"], r["depth"], r["num_nodes"], r["batch"]) != drop]
    [figure] = [f for f in page(tmp_path, values).figures if "against batch size" in f.title]
    assert "Parallel heads, depth 1 1.70 at 1, 0.90 at 4" in figure.alt


@pytest.mark.parametrize("kind", ["bench", "compare"])
def test_warnings_of_the_file_are_warnings_of_the_page(kind: str, tmp_path: Path) -> None:
    values = made.compare_batches() if kind == "compare" else made.bench(warnings=made.compare_batches()["warnings"])
    made_page = page(tmp_path, values)
    assert made_page.sections[-1].title == "Warnings and notes"
    assert ("f0: " + made.compare_batches()["warnings"][0], True) in texts(made_page)


def test_what_else_ran_is_said_once(tmp_path: Path) -> None:
    """Commands write it beside their warnings, and as one of them."""
    values = made.bench(warnings=["took 0.70 of 2 cores", "another"])
    values["environment"]["load"] = {"note": "took 0.70 of 2 cores"}
    assert [text for text, warns in texts(page(tmp_path, values)) if warns] == [
        "f0: took 0.70 of 2 cores.",
        "f0: another",
    ]


def test_tokens_a_pass_counts_every_pass_where_the_file_does(tmp_path: Path) -> None:
    def lengths(change: dict[str, Any], most: int) -> tuple[list[str], str]:
        values = made.compare_batches()
        for run in [run for run in values["runs"] if run["domain"] == "all" and run["depth"] != 0][:most]:
            run |= change
        found = table(page(tmp_path, values), "Systems: ")
        place = found.columns.index("tokens a pass")
        [note] = [note for note in found.notes if note.startswith("Tokens a pass")]
        return [row[place] for row in found.rows if row[1] == "1"], note

    assert lengths({}, 0) == (["1.00", *["1.25"] * 5], "Tokens a pass: output tokens over all passes of the trunk.")
    old, note = lengths({"tokens_per_pass": None}, 99)
    assert old == ["1.00", *["1.50"] * 5] and "mean acceptance length" in note and "left out" in note
    mixed, note = lengths({"tokens_per_pass": None}, 1)
    assert mixed == ["1.00", "1.50", *["1.25"] * 4] and "for parallel at batch 1 the file has" in note


def test_a_tree_that_differs_is_told_from_a_chain(tmp_path: Path) -> None:
    values = made.compare_batches() | {"differences": [made.difference(name="parallel", num_nodes=8, depth=3)]}
    assert [row[2] for row in table(page(tmp_path, values), "Texts that parted").rows] == ["3, tree of 8"]
    assert lead(page(tmp_path, values))[0].startswith("Fastest is Parallel heads, depth 3, tree of 8 at batch 1: 1.90x")


def test_costs_of_steps_are_told_apart_by_system(tmp_path: Path) -> None:
    """Of full steps: the deepest chain, and the tree; a system, or a batch size, that was not seen has no row."""

    def cost(batch: int, rows: int, nodes: int, ms: float, steps: int = 9, **more: int) -> dict[str, Any]:
        return {
            "batch": batch,
            "rows": rows,
            "nodes": nodes,
            "num_steps": steps,
            "seconds": made.spread(ms / 1000),
        } | more

    passes = [cost(1, 1, 4, 25), cost(1, 1, 9, 40), cost(1, 1, 3, 99), cost(4, 3, 16, 99), cost(4, 4, 16, 99, steps=4)]
    drafts = [cost(1, 1, 3, 5, depth=3), cost(1, 1, 8, 7, depth=2), cost(4, 4, 12, 8, depth=3)]
    plain = [cost(1, 1, 1, 20), cost(4, 4, 4, 30), cost(4, 3, 3, 99)]
    costs = {"plain": {"pass": plain, "draft": []}, "parallel": {"pass": passes, "draft": drafts}}
    made_page = page(tmp_path, made.compare_batches() | {"step_costs": costs})
    found = table(made_page, "Cost of a step by system: f0")
    assert found.rows == [
        ["plain", "1", "1", "9", "20.0", "1.00", "-", "-"],
        ["Parallel heads, depth 3", "1", "4", "9", "25.0", "1.25", "5.0", "0.25"],
        ["Parallel heads, depth 3, tree of 8", "1", "9", "9", "40.0", "2.00", "-", "-"],
        ["plain", "4", "1", "9", "30.0", "1.00", "-", "-"],
    ]
    titles = [section.title for section in page(tmp_path, made.compare_batches()).sections]
    assert "Cost of a step, by system" not in titles
