"""Figures as words: a share is never rounded up to all of it."""

from __future__ import annotations

import pytest

from foretell.reporting.labels import percent


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "1.2 %"), (0.12, "12 %"), (0.994, "99 %"), (0.997, "99.7 %"), (0.99999, "> 99.9 %"), (1.0, "100 %")],
)
def test_a_share_below_all_is_not_100(value: float, text: str) -> None:
    assert percent(value) == text
