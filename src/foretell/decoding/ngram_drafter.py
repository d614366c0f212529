"""NgramDrafter: prompt look-up (Saxena 2023): what followed the same n-gram earlier in the row is guessed again."""

from __future__ import annotations

import sys

from foretell.decoding.cache import KVCache
from foretell.decoding.drafter import NO_CACHE
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.models.decoder import States
from foretell.types import Draft


class NgramDrafter:
    """Copies what followed the latest earlier occurrence of the row's longest suffix, ``max_n`` to ``min_n`` tokens.

    The copy may run into itself, as in LZ77: after "ab ab " it goes on "ab ab ab" as deep as is asked. Where no suffix
    occurred before, the draft is empty. A guess is certain, so it draws no random number and has no distribution.
    """

    def __init__(self, max_n: int = 3, min_n: int = 1) -> None:
        self._sizes = range(max_n, min_n - 1, -1)
        self._rows: dict[Sequence, _Index] = {}
        self._peak_bytes = 0

    def admit(self, row: Sequence) -> None:
        """A new row."""
        self._rows[row] = _Index(self._sizes)

    def forget(self, row: Sequence) -> None:
        """The row has ended, or must start anew."""
        self._peak_bytes = max(self._peak_bytes, self.num_bytes)
        self._rows.pop(row, None)

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """Nothing: the tokens are read when a draft is asked for, and the states never."""

    def depth_for(self, row: Sequence) -> int:
        """Look-up goes as far as is asked."""
        return NO_CACHE

    def num_final(self, row: Sequence) -> int:
        """There is no cache."""
        return NO_CACHE

    def draft(self, rows: list[Sequence], shapes: list[Shape]) -> list[Draft]:
        """One chain a row, as deep as is asked or empty."""
        return [
            Draft.chain(self._guess(row, shape.depth) if shape.depth else [])
            for row, shape in zip(rows, shapes, strict=True)
        ]

    @property
    def caches(self) -> list[KVCache]:
        """None: it looks at tokens."""
        return []

    @property
    def num_bytes(self) -> int:
        """Memory of the indices at their largest."""
        return max(self._peak_bytes, sum(index.num_bytes for index in self._rows.values()))

    def _guess(self, row: Sequence, depth: int) -> list[int]:
        index = self._rows[row]
        index.extend(row.tokens_from(len(index.token_ids)))
        return index.look_up(depth)


class _Index:
    """Tokens of a row, and for every n-gram before the last token where its latest occurrence ends."""

    def __init__(self, sizes: range) -> None:
        self.token_ids: list[int] = []
        self._ends: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in sizes}

    def extend(self, token_ids: list[int]) -> None:
        """Read new tokens; work and memory are proportional to their number."""
        first = max(1, len(self.token_ids))
        self.token_ids += token_ids
        # An n-gram is entered once a token follows it, so that the suffix never finds itself.
        for n, ends in self._ends.items():
            for end in range(max(first, n), len(self.token_ids)):
                ends[tuple(self.token_ids[end - n : end])] = end

    def look_up(self, depth: int) -> list[int]:
        """``depth`` tokens, or none."""
        text = self.token_ids
        for n, ends in self._ends.items():
            if (end := ends.get(tuple(text[-n:]))) is not None:
                copied = text[end : end + depth]
                while len(copied) < depth:  # the period from ``end`` to the text's end once more
                    copied.append(copied[len(copied) - (len(text) - end)])
                return copied
        return []

    @property
    def num_bytes(self) -> int:
        """Token list, tables, keys and positions, as Python counts them; the ids themselves are shared."""
        integer = sys.getsizeof(2**20)
        tables = (
            sys.getsizeof(ends) + len(ends) * (sys.getsizeof((0,) * n) + integer) for n, ends in self._ends.items()
        )
        return sys.getsizeof(self.token_ids) + sum(tables)
