"""Grammars: which tokens may follow, by llguidance; looks along drafted paths and comes back to where it was.

The matcher holds exactly the committed tokens. A drafted path is consumed, its mask is read, and it is rolled back, so
a rejected draft leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from foretell.checkpoints.files import one_line
from foretell.errors import SamplingError
from foretell.sampling_params import SamplingParams

_TOKENIZERS: WeakKeyDictionary[Any, dict[tuple[int, tuple[int, ...]], Any]] = WeakKeyDictionary()
"""llguidance's view of a tokenizer takes up to a second to make; kept as long as the tokenizer itself."""


class GrammarState:
    """Where one row is in its grammar. EOS is allowed only where the text may end; after EOS only EOS follows.

    Raises SamplingError, which names the field, for a grammar that cannot be compiled, a tokenizer that is not a fast
    one, a model without EOS, or where llguidance is missing.
    """

    def __init__(self, params: SamplingParams, tokenizer: Any, vocab_size: int, eos_token_ids: Iterable[int]) -> None:
        assert params.grammar_field is not None
        self._field = params.grammar_field
        self._vocab_size = vocab_size
        self._eos_token_ids = tuple(sorted(eos_token_ids))
        self._ended = False
        if not self._eos_token_ids:
            raise SamplingError("the model has no EOS token, so a text that is complete could not end", self._field)
        try:
            from llguidance import LLMatcher
        except ImportError as error:
            raise SamplingError("needs llguidance; pip install 'foretell[serve]'", self._field) from error
        matcher = LLMatcher(self._tokenizer(tokenizer), _compiled(params, LLMatcher), log_level=0)
        if matcher.is_error():
            raise SamplingError(f"cannot be compiled: {_quoted(matcher)}; correct it", self._field)
        self._matcher = matcher

    def allowed(self, prefixes: list[list[int]]) -> torch.Tensor:
        """(N, V) bool: what may follow the committed tokens plus ``prefixes[i]``.

        A path that leaves the grammar is never accepted, so nothing depends on its row: there everything is allowed.
        """
        masks: list[bytes] = []
        path: list[int] = []
        try:
            for prefix in prefixes:
                text, ended = self._before_eos(prefix)
                # Neighbours in a tree share most of their path: step back to where they part, then on.
                num_shared = 0
                while num_shared < min(len(path), len(text)) and path[num_shared] == text[num_shared]:
                    num_shared += 1
                self._rewind(len(path) - num_shared)
                path = text[: num_shared + self._matcher.try_consume_tokens(text[num_shared:])]
                if len(path) < len(text):
                    masks.append(_EVERYTHING)
                else:
                    masks.append(b"" if ended else self._mask())
        except SamplingError:
            self._matcher.rollback(len(path))  # as far as it can
            raise
        self._rewind(len(path))
        return torch.stack([self._row(mask) for mask in masks])

    def commit(self, token_ids: list[int]) -> None:
        """Advance for good. Raises SamplingError for a token that the grammar does not allow."""
        text, ended = self._before_eos(token_ids)
        fits = self._matcher.consume_tokens(text)
        if not fits or (ended and not self._ended and not self._matcher.is_accepting()):
            raise SamplingError(
                f"the text left the grammar at token ids {token_ids}; {_quoted(self._matcher)}", self._field
            )
        self._ended = ended

    def forced(self, limit: int) -> list[int]:
        """Up to ``limit`` next tokens that the grammar leaves no choice about, in the tokenizer's own spelling; EOS too
        where the text is complete. They are drafts like others: the trunk may still spell the same text otherwise."""
        forced: list[int] = [] if self._ended else self._matcher.compute_ff_tokens()[:limit]
        num_taken = self._matcher.try_consume_tokens(forced) if forced else 0
        complete = self._ended or self._matcher.is_stopped()
        self._rewind(num_taken)
        if complete and num_taken < limit and len(self._eos_token_ids) == 1:
            return [*forced[:num_taken], *self._eos_token_ids]
        return forced[:num_taken]

    def _before_eos(self, token_ids: list[int]) -> tuple[list[int], bool]:
        """Tokens up to EOS, and whether the text has ended. The matcher is never given EOS: it does not count it
        where it could only have been EOS, so a rollback over it would go one token too far."""
        if self._ended:
            return [], True
        ends = [i for i, token_id in enumerate(token_ids) if token_id in self._eos_token_ids]
        return (token_ids[: ends[0]], True) if ends else (token_ids, False)

    def _rewind(self, num_tokens: int) -> None:
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise SamplingError(f"cannot be rewound: {_quoted(self._matcher)}", self._field)

    def _mask(self) -> bytes:
        mask: bytes = self._matcher.compute_bitmask()
        # At a limit on its work llguidance stops and allows EOS, in the middle of a text too.
        if self._matcher.stop_reason() not in _ENDS:
            raise SamplingError(f"is too complex: llguidance stopped with {self._matcher.stop_reason()}", self._field)
        return mask

    def _row(self, mask: bytes) -> torch.Tensor:
        if mask is _EVERYTHING:
            return torch.ones(self._vocab_size, dtype=torch.bool)
        if not mask:
            row = torch.zeros(self._vocab_size, dtype=torch.bool)
            row[list(self._eos_token_ids)] = True
            return row
        values = torch.frombuffer(bytearray(mask), dtype=torch.uint8)
        return _BITS_OF_BYTE.index_select(0, values.int()).flatten()[: self._vocab_size]

    def _tokenizer(self, tokenizer: Any) -> Any:
        from llguidance.hf import from_tokenizer
        from transformers import PreTrainedTokenizerFast

        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            kind = "no tokenizer" if tokenizer is None else type(tokenizer).__name__
            raise SamplingError(f"needs a fast tokenizer (tokenizer.json); this model has {kind}", self._field)
        known = _TOKENIZERS.setdefault(tokenizer, {})
        # Output rows beyond the tokenizer's are padding: never allowed. Fewer rows than tokens: cut off in _row.
        key = max(self._vocab_size, len(tokenizer)), self._eos_token_ids
        if key not in known:
            known[key] = from_tokenizer(tokenizer, n_vocab=key[0], eos_token=list(key[1]))
        return known[key]


_EVERYTHING = b"everything"
_BITS_OF_BYTE = (torch.arange(256).unsqueeze(-1) & 2 ** torch.arange(8)).bool()
"""(256, 8), lowest bit first."""
_ENDS = ("NotStopped", "NoExtension", "NoExtensionBias", "EndOfSentence")
"""Reasons to stop that are a complete text."""


def _quoted(matcher: Any) -> str:
    return one_line(ValueError(matcher.get_error().split("<state>")[0]))


def _compiled(params: SamplingParams, compiler: Any) -> Any:
    """llguidance's form of whichever of the five fields is given."""
    if params.json_schema is not None:
        schema = params.json_schema
        return compiler.grammar_from_json_schema(schema if isinstance(schema, str) else json.dumps(schema))
    if params.json_object:
        return compiler.grammar_from_json_schema('{"type": "object"}')
    if params.regex is not None:
        return compiler.grammar_from_regex(params.regex)
    if params.choice is not None:
        return compiler.grammar_from_lark("start: " + " | ".join(map(json.dumps, params.choice)))
    return compiler.grammar_from_lark(params.grammar)
