"""What bytes a token stands for: a token may be a part of a character, so its text alone says too little."""

from __future__ import annotations

from typing import Any


class TokenBytes:
    """Bytes and names of a tokenizer's tokens; special ones, EOS among them, have no bytes in a text."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        from llguidance.hf import from_tokenizer
        from transformers import PreTrainedTokenizerFast

        self._tokenizer = tokenizer
        named, added = getattr(tokenizer, "all_special_ids", ()), getattr(tokenizer, "added_tokens_decoder", {})
        self._special = frozenset(named) | {token_id for token_id, token in added.items() if token.special}
        is_fast = isinstance(tokenizer, PreTrainedTokenizerFast)
        self._view = from_tokenizer(tokenizer, n_vocab=max(vocab_size, len(tokenizer))) if is_fast else None

    def of(self, token_id: int) -> bytes:
        """Bytes of a token in a text."""
        if token_id in self._special or self._tokenizer is None:
            return b""
        if self._view is None:
            return str(self._tokenizer.decode([token_id])).encode()
        return bytes(self._view.decode_bytes([token_id]))

    def name(self, token_id: int) -> str:
        """Its text, that of special tokens included; "bytes:\\xf0" where it is no whole text."""
        found = self.of(token_id)
        if not found:
            return "" if self._tokenizer is None else str(self._tokenizer.decode([token_id]))
        try:
            return found.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in found)
