"""What counts as parsed, as failed, and as not judged."""

from __future__ import annotations

from typing import Any

import pytest

from foretell.evaluation.parse import judge, report

CODE = "def f():\n    return 1\n"


@pytest.mark.parametrize(
    ("text", "finish", "outcome"),
    [
        (CODE, "stop", "parses"),
        ("def f(:\n", "stop", "fails"),
        (f"Sure!\n```python\n{CODE}```\nThat is it, isn't it?", "stop", "parses"),
        (f"Sure!\n~~~py\n{CODE}~~~\nDone :-)", "stop", "parses"),
        (f"```json\nnot: json\n```\n```Python\n{CODE}```", "stop", "parses"),
        (f"Isn't it?\n```\n{CODE}```", "stop", "parses"),
        (f"```\nisn't\n```\n```python\n{CODE}```", "stop", "parses"),  # one that names the language comes first
        (f"```python\n{CODE}```\n```python\ndef g(:\n```", "stop", "parses"),  # the first alone
        (f"```python\ndef g(:\n```\n```python\n{CODE}```", "stop", "fails"),
        ("Sure, isn't it:\n```bash\nls\n```", "stop", "fails"),  # no Python: the whole text is judged
        (f"Sure!\n```python\n{CODE}", "stop", "parses"),  # never closed, but ended
        (f"Sure!\n```python\n{CODE}", "length", "cut off"),
        (f"Sure!\n```python\n{CODE}```\nNow, what this d", "length", "parses"),  # the block was closed before
        (CODE, "length", "cut off"),
        ("", "stop", "empty"),
        (" \n", "stop", "empty"),
        ("```python\n```", "stop", "empty"),
        ("x = '\\d'\n", "stop", "parses"),  # a warning, no error
        ("x = '\0'", "stop", "fails"),
        ("(" * 5000, "stop", "fails"),
        ("1. Do:\n   ```python\n   x = 1\n   ```\n", "stop", "parses"),  # indented as a list is
        ("- Do:\n\t```\n\tif x:\n\t\ty = 1\n\t```\n", "stop", "parses"),
        ("1. Do:\n   ```python\n   x = 1\n     y = 2\n   ```\n", "stop", "fails"),  # beyond the fence's indent
        ("1. Do:\n   ```python\n   x = 1\n", "length", "cut off"),
    ],
)
def test_python(text: str, finish: Any, outcome: str) -> None:
    found = judge(None, text, finish, "python")
    assert found.outcome == outcome, found
    assert bool(found.message) == (outcome in ("fails", "cut off"))


def test_a_block_loses_no_more_than_the_indent_of_its_fence() -> None:
    text = "1. Do:\n   ```python\n   def f():\n\n       return 1\n g = 2\n   ```\n"
    assert judge(None, text, "stop", "python").code == "def f():\n\n    return 1\ng = 2\n"
    assert judge(None, "```python\n  x\n```", "stop", "python").code == "  x\n"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"a": [1, 2]}', "parses"),
        ('Here:\n```json\n{"a": 1}\n```', "parses"),
        ('Here: {"a": 1}', "fails"),
        ("{'a': 1}", "fails"),
        ('{"a": NaN}', "fails"),
        ("-Infinity", "fails"),
        ("[" * 100_000, "fails"),
        ("", "empty"),
        ("null", "parses"),
    ],
)
def test_json(text: str, outcome: str) -> None:
    found = judge(None, text, "stop", "json")
    assert found.outcome == outcome and "\n" not in found.message


def test_a_text_prompt_is_judged_with_what_continues_it() -> None:
    assert judge("def f():", "\n    return 1\n", "stop", "python").outcome == "parses"
    assert judge(None, "\n    return 1\n", "stop", "python").outcome == "fails"
    assert judge("def f():", f"\n```python\n{CODE}```", "stop", "python").code == CODE
    assert judge("x = 1\n", "", "stop", "python").outcome == "empty"  # the prompt alone is no answer
    assert judge('{"a": ', "1}", "stop", "json").outcome == "parses"


def test_the_share_leaves_out_what_was_cut_off() -> None:
    texts = [(CODE, "stop"), ("def f(:", "stop"), ("", "stop"), (CODE, "length"), (CODE, "stop")]
    found = report([judge(None, text, finish, "python") for text, finish in texts], "python")  # type: ignore[arg-type]
    assert found.as_dict() == {
        "language": "python",
        "num_outputs": 5,
        "num_parsed": 2,
        "num_failed": 1,
        "num_empty": 1,
        "num_cut_off": 1,
        "num_context_full": 0,
        "share": 0.5,
    }
    assert report([judge(None, CODE, "length", "python")], "python").share is None
    assert report([], "json").share is None


def test_a_full_context_is_told_from_too_few_tokens() -> None:
    """Both are cut off and not judged; what ended on its own, or closed its block, is judged in a full context too."""
    few, full = (judge(None, CODE, "length", "python", is_full) for is_full in (False, True))
    assert few.outcome == full.outcome == "cut off"
    assert few.message == "it had all the tokens that an answer may have"
    assert full.message == "the model's context was full"
    judged = [few, full, full, judge(None, CODE, "stop", "python", True)]
    judged.append(judge(None, f"```python\n{CODE}```\nNow", "length", "python", True))
    found = report(judged, "python")
    assert (found.num_cut_off, found.num_context_full, found.num_parsed, found.share) == (3, 2, 2, 1.0)
