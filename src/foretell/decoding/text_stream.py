"""TextStream: the part of a row's text that later tokens cannot change any more."""

from __future__ import annotations

from foretell.decoding.sequence import Sequence

_REPLACEMENT = "\ufffd"


class TextStream:
    """Gives a row's text piece by piece. Held back: bytes of an unfinished character, and what may begin a stop string.

    Each piece decodes the last tokens alone, behind those of the piece before, since a token's text may depend on the
    one before it. At the row's end its whole text is decoded once, so that the pieces join to the completion's text.
    """

    def __init__(self, row: Sequence) -> None:
        self._row = row
        self._num_sent = 0
        self._text = ""  # of the tokens before ``_stop``
        self._start = self._stop = 0  # the tokens that the next ones are decoded behind

    def take(self) -> str:
        """The text that has become certain since the last call."""
        if self._row.finish_reason is None:
            text = self._read().rstrip(_REPLACEMENT)
            text = text[: len(text) - _held_back(text, self._row.params.stop or ())]
        else:
            text = self._row.text()
        piece = text[self._num_sent :]
        self._num_sent = max(self._num_sent, len(text))
        return piece

    def _read(self) -> str:
        """The text of all tokens, the last of which may have a character's first bytes alone."""
        token_ids = self._row.token_ids
        before = self._row.decode(token_ids[self._start : self._stop])
        now = self._row.decode(token_ids[self._start :])
        text = self._text + now[len(before) :]
        if len(now) > len(before) and not now.endswith(_REPLACEMENT):
            self._text, self._start, self._stop = text, self._stop, len(token_ids)
        return text


def _held_back(text: str, stops: tuple[str, ...] | list[str] | str) -> int:
    """Length of the longest end of ``text`` that a stop string begins with."""
    longest = 0
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:size]):
                longest = size
                break
    return longest
