"""A text with its tokens marked by origin: guessed by the heads and accepted, or the trunk's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

    from foretell.types import Origin

ACCEPTED_STYLE = "bold green"


def pieces(tokenizer: Any, token_ids: Sequence[int], origins: Sequence[Origin]) -> list[tuple[str, bool]]:
    """(text, accepted) of neighbouring tokens of one origin; together they are the decoded text.

    A character whose bytes come in several tokens goes with the last of them.
    """
    found: list[tuple[str, bool]] = []
    shown = ""
    for count, origin in enumerate(origins, start=1):
        text = tokenizer.decode(token_ids[:count], skip_special_tokens=True)
        if text.endswith("\ufffd") and count < len(token_ids):
            continue
        new, shown = text[len(shown) :], text
        accepted = origin == "accepted"
        if found and found[-1][1] == accepted:
            found[-1] = (found[-1][0] + new, accepted)
        else:
            found.append((new, accepted))
    return found


def marked(parts: Sequence[tuple[str, bool]], colour: bool) -> Text:
    """Accepted tokens in colour; where there is none, in ‹ ›."""
    from rich.text import Text

    text = Text()
    for part, accepted in parts:
        if accepted and not colour:
            text.append(f"‹{part}›")
        else:
            text.append(part, style=ACCEPTED_STYLE if accepted else "")
    return text
