"""A file that is to be continued, and files that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.errors import DataError, UsageError
from foretell.training.answers import read_answers

ONE = b'{"id": "1", "token_ids": [5], "seed": 0}\n'
TWO = '{"id": 2, "token_ids": [], "text": "😀"}\n'.encode()


@pytest.mark.parametrize(
    ("before", "after", "ids"),
    [
        (ONE + TWO, ONE + TWO, {"1", "2"}),
        (ONE + TWO[:-8], ONE, {"1"}),
        (ONE + TWO[:-5], ONE, {"1"}),  # within a character
        (ONE + TWO[:-1], ONE + TWO, {"1", "2"}),  # whole but for the newline
        (ONE + b"\n" + TWO, ONE + b"\n" + TWO, {"1", "2"}),
        (ONE[:12], b"", set()),
        (ONE[:-1], ONE, {"1"}),
        (b"", b"", set()),
    ],
)
def test_a_half_written_line_is_cut(tmp_path: Path, before: bytes, after: bytes, ids: set[str]) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(before)
    answers = read_answers(tmp_path / "p.jsonl", path)
    assert path.read_bytes() == before
    answers.repair()
    assert path.read_bytes() == after
    assert answers.ids == ids


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"My thesis, first line", 1),
        (b"My thesis\nsecond line", 1),
        (b"[1, 2", 1),
        (b'{"text": "mine"}', 1),
        (ONE + b'{"id": 2, "text": "mine"}\n', 2),
        (ONE + b'{"id": 2, "token_ids": "mine"}', 2),
        (ONE + b"torn in the middle\n" + TWO, 2),
        (ONE + b"[3]", 2),
    ],
)
def test_another_file_is_left_as_it_is(tmp_path: Path, content: bytes, line: int) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"mine\.txt:{line}: "):
        read_answers(tmp_path / "p.jsonl", path)
    assert path.read_bytes() == content


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_bytes(ONE)
    (tmp_path / "link.jsonl").symlink_to(prompts)
    for output in (prompts, tmp_path / "link.jsonl"):
        with pytest.raises(UsageError, match="is the prompts file"):
            read_answers(prompts, output)
    with pytest.raises(UsageError, match="is not a file"):
        read_answers(prompts, tmp_path)
    with pytest.raises(UsageError, match="without .gz"):
        read_answers(prompts, tmp_path / "new.jsonl.gz")
