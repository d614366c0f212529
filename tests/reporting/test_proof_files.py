"""Verify and probe files: every check has a table, and what failed says why."""

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


def test_controls_and_laws_of_a_model_have_tables(tmp_path: Path) -> None:
    made_page = page(tmp_path, made.verify_all())
    assert lead(made_page) == [
        "Verify PASSED: 10 of 10 texts equal plain decoding's; 2 of 2 controls as expected; 2 of 2 sampling laws of "
        "the model as expected."
    ]
    assert table(made_page, "Controls: ").rows == [
        ["right", "1.000", "1.000", "5", "0", "ok"],
        ["shifted", "0.125", "0.125", "5", "0", "ok"],
    ]
    assert table(made_page, "Sampling law of the model").rows == [
        ["0", "2,000", "0.0123", "0.0498", "0", "-", "ok"],
        ["3, tree of 8", "2,000", "0.0234", "0.0498", "0", "0.40", "ok"],
    ]
    assert not [text for text, warns in texts(made_page) if warns]


LAWS = made.verify()["sampling"]


@pytest.mark.parametrize(
    ("change", "counts", "why"),
    [
        (
            {"controls": [made.control("right", 1.0, 1.0, True), made.control("shifted", 0.5, 0.125, False)]},
            "1 of 2 controls as expected",
            "Control shifted failed: share of first guesses accepted 0.5, expected 0.125.",
        ),
        (
            {"controls": [made.control("right", None, None, False)]},
            "0 of 1 controls as expected",
            "Control right failed: no first guess was counted.",
        ),
        (
            {"controls": [made.control("right", 1.0, 1.0, False, differences=[made.difference("BUG", prompt=42)])]},
            "0 of 1 controls as expected",
            "Control right failed: share of first guesses accepted 1, expected 1; 1 text parted at no near tie.",
        ),
        (
            {"model_law": [made.model_law(0, 0.01), made.model_law("auto", 0.09, False, num_outside=7)]},
            "1 of 2 sampling laws of the model as expected",
            "Sampling law of the model failed at depth auto: distance 0.0900 (limit 0.0498), 7 of 2,000 tokens outside "
            "the law.",
        ),
        (
            {"sampling": [LAWS[0] | {"passed": False, "total_variation": 0.2, "num_nodes": 4}]},
            "0 of 1 sampling laws as expected",
            "Sampling law failed at depth 3, tree of 4, temperature=0.5: total variation 0.2000 (limit 0.0630).",
        ),
    ],
)
def test_a_file_that_fails_in_one_check_says_why(change: dict[str, Any], counts: str, why: str, tmp_path: Path) -> None:
    made_page = page(tmp_path, made.verify_all(passed=False, **change))
    assert lead(made_page)[0].startswith("Verify FAILED: ") and counts in lead(made_page)[0]
    assert (f"f0: {why}", True) in texts(made_page)


def test_texts_that_a_control_changed_are_listed_with_their_cause(tmp_path: Path) -> None:
    differences = [made.difference("BUG", prompt=42, cause="its cache is wrong")]
    values = made.verify_all(passed=False, controls=[made.control("right", 1.0, 1.0, False, differences=differences)])
    values["greedy"]["differences"] = [made.difference(cause="rounding"), made.difference()]
    made_page = page(tmp_path, values)
    listed = table(made_page, "Differences: f0, control right")
    assert (listed.rows[0][1], listed.columns[-1], listed.rows[0][-1]) == ("42", "likely cause", "its cache is wrong")
    values["controls"] = []
    assert [row[-1] for row in table(page(tmp_path, values), "Differences: f0").rows] == ["rounding", "-"]


@pytest.mark.parametrize("values", [made.verify_all(), made.served()])
def test_where_and_with_which_command(values: dict[str, Any], tmp_path: Path) -> None:
    values["environment"] |= {"load": {"note": "other processes took 0.70 of 2 cores"}}
    made_page = page(tmp_path, made.bench(), values)
    found = table(made_page, "Where and how")
    assert found.columns == ["", "f0", "f1"] and ["CPU", "Some CPU", "Some CPU"] in found.rows
    assert ("f1: other processes took 0.70 of 2 cores.", True) in texts(made_page)
    codes = [b.text for section in made_page.sections for b in section.blocks if type(b).__name__ == "Code"]
    assert values["environment"]["command"] in codes
    commits = [row[1:] for row in found.rows if row[0] == "commit"]
    assert commits == ([["-", "abc1234"]] if "controls" in values else [])


def test_served_stands_beside_predicted(tmp_path: Path) -> None:
    made_page = page(tmp_path, made.served())
    assert [section.title for section in made_page.sections] == ["What was measured", "Predicted and served acceptance"]
    said = (
        "Served acceptance by depth 0.50 0.30, predicted 0.60 0.38: the first stage that disagrees is order of halves. "
        "Undecided: data."
    )
    assert lead(made_page) == [said] and made_page.lead[0].warns and (f"f0: {said}", True) in texts(made_page)
    found = table(made_page, "Served: ")
    assert found.rows == [["1", "0.600", "0.500"], ["2", "0.375", "0.300"]]
    assert "125 rounds. Largest difference: 0.100." in found.notes[0]
    rows = table(made_page, "Stages: ").rows
    assert [row[3] for row in rows] == ["yes", "yes", "NO", "undecided", "yes"]
    assert rows[2] == ["order of halves", "0.50 0.25", "0.125", "NO", "about order of halves"]
    assert rows[3] == ["data", "-", "-", "undecided", "no --data to compare with"]
    [figure] = made_page.figures
    assert "predicted 0.60 0.38; served 0.50 0.30" in figure.alt


def test_served_that_agrees_warns_of_nothing(tmp_path: Path) -> None:
    both = page(tmp_path, {**made.probe(), **made.served(None)})
    assert lead(both)[0].endswith(": no stage disagrees. Undecided: data.") and not both.lead[0].warns
    assert table(both, "Probe: f0").rows and table(both, "Served: f0").rows


def test_a_first_disagreement_that_is_not_named_is_read_off_the_stages(tmp_path: Path) -> None:
    values = made.served()
    del values["served"]["first_disagreement"]
    assert "disagrees is order of halves" in lead(page(tmp_path, values))[0]
