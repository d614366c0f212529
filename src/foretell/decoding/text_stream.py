"""TextStream: the part of a row's text that later tokens cannot change any more."""

from __future__ import annotations

from foretell.decoding.sequence import Sequence

_REPLACEMENT = "\ufffd"


class TextStream:
    """Gives a row's text piece by piece. Held back: bytes of an unfinished character, and what may begin a stop string.

    At the row's end everything comes, so that the pieces join to the completion's text.
    """

    def __init__(self, row: Sequence) -> None:
        self._row = row
        self._num_sent = 0

    def take(self) -> str:
        """The text that has become certain since the last call."""
        text = self._row.text()
        if self._row.finish_reason is None:
            text = text.rstrip(_REPLACEMENT)
            text = text[: len(text) - _held_back(text, self._row.params.stop or ())]
        piece = text[self._num_sent :]
        self._num_sent = max(self._num_sent, len(text))
        return piece


def _held_back(text: str, stops: tuple[str, ...] | list[str] | str) -> int:
    """Length of the longest end of ``text`` that a stop string begins with."""
    longest = 0
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:size]):
                longest = size
                break
    return longest
