from __future__ import annotations

import pytest

from foretell.reporting import style


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures without strokes, for tests that read what stands around them: drawing one takes a third of a second."""
    monkeypatch.setattr(style, "_save", lambda paint, width, height: f'<svg width="{72 * width}pt"><g></g></svg>')
