"""Bad words: token sequences that the text never completes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from foretell.errors import SamplingError


class BadWords:
    """The last token of a word is banned where the tokens before it have just been written, in the prompt too.

    The law of transformers' NoBadWordsLogitsProcessor; as there, EOS alone is not a bad word (``min_tokens`` bans it).
    A string is banned in both spellings that tokenizers give it: at the start of a text, and after a space.
    """

    def __init__(
        self,
        words: Sequence[str | Sequence[int]],
        tokenizer: Any,
        vocab_size: int,
        eos_token_ids: Collection[int],
    ) -> None:
        self._last_tokens: dict[tuple[int, ...], set[int]] = {}
        for word in words:
            for token_ids in _spellings(word, tokenizer):
                if unknown := [t for t in token_ids if t >= vocab_size]:
                    raise SamplingError(f"{unknown[0]} is not a token; give ids below {vocab_size}", "bad_words")
                if len(token_ids) > 1 or token_ids[0] not in eos_token_ids:
                    self._last_tokens.setdefault(token_ids[:-1], set()).add(token_ids[-1])
        self._lengths = sorted({len(start) for start in self._last_tokens})
        self.reach = max(self._lengths, default=0)
        """How many of the newest tokens decide."""

    def __bool__(self) -> bool:
        return bool(self._last_tokens)

    def after(self, tail: list[int]) -> set[int]:
        """Tokens banned after ``tail``: the newest tokens, at least ``reach`` of them or all there are."""
        banned: set[int] = set()
        for length in self._lengths:
            if length <= len(tail):
                banned |= self._last_tokens.get(tuple(tail[len(tail) - length :]), set())
        return banned


def _spellings(word: str | Sequence[int], tokenizer: Any) -> set[tuple[int, ...]]:
    if not isinstance(word, str):
        return {tuple(word)}
    if tokenizer is None:
        raise SamplingError(f"{word!r} needs a tokenizer, and this model has none; give token ids", "bad_words")
    texts = (word, " " + word.lstrip())
    return {tuple(ids) for text in texts if (ids := tokenizer(text, add_special_tokens=False)["input_ids"])}
