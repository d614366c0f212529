"""What a chat shows: answers on stdout, every token by its origin where somebody looks on, all else on stderr."""

from __future__ import annotations

import re
import sys

from rich.console import Console
from rich.text import Text

from foretell.cli.origins import marked

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that steer a terminal; a model may write them, and they must not."""


class Screen:
    """``is_live``: somebody sits at a terminal. Then accepted tokens are coloured, or stand in ‹ › where there are no
    colours; otherwise answers are plain text.
    """

    def __init__(self, is_live: bool, answers: Console | None = None, notes: Console | None = None) -> None:
        self.is_live = is_live
        self._answers = answers or Console(highlight=False)
        self._notes = notes or Console(stderr=True, highlight=False)
        self._is_coloured = self._answers.color_system is not None and not self._answers.no_color

    @classmethod
    def here(cls) -> Screen:
        """Live where standard input and output are a terminal."""
        return cls(all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)))

    def part(self, text: str, is_accepted: bool) -> None:
        """Some more of an answer."""
        if not self.is_live:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
        self._answers.print(marked([(shown, is_accepted)], self._is_coloured), end="", soft_wrap=True)

    def end(self) -> None:
        """The answer's last line ends."""
        self.part("\n", False)

    def say(self, *lines: str) -> None:
        """Lines that are no answer, dim on a terminal."""
        for line in lines:
            self._notes.print(Text(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", line), style="dim"), soft_wrap=True)

    def legend(self) -> str:
        """How guessed tokens look."""
        return "green" if self._is_coloured else "in ‹ ›"
