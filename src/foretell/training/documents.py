"""From a record to a document: its token ids, and which of them are targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from foretell.errors import DataError, UsageError
from foretell.training.chat import Chat, chat_targets, check_messages
from foretell.training.sources import Record


@dataclass(frozen=True)
class Document:
    """One text: its tokens, and which of them are targets.

    ``num_bytes``: UTF-8 bytes of the text, without special tokens. ``undecodable``: some of its bytes were not UTF-8.
    """

    token_ids: list[int]
    supervised: list[bool]
    num_bytes: int = field(default=0, compare=False)
    undecodable: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class DocumentReader:
    """Makes documents of records for one tokenizer (None: token ids alone can be read) and vocabulary.

    A record holds, in this order of precedence,

    - ``token_ids`` and ``prompt_token_ids``: an answer made by foretell distill;
    - ``messages`` (role and content, with ``tools`` where there are any): a chat, through the tokenizer's template;
    - ``prompt`` and ``completion``: two texts, the second ending with the tokenizer's EOS;
    - ``text_field``: a text, ending with EOS where ``append_eos`` is set.

    ``supervise``: "answer" = targets are answers, assistant turns and completions alone; "all" = what is before them
    too. Every token of a text is a target.
    """

    tokenizer: Any
    vocab_size: int
    supervise: Literal["answer", "all"] = "all"
    text_field: str = "text"
    append_eos: bool = False

    def read(self, record: Record) -> Document:
        """The document; raises DataError, with file and line, for a record that is none."""
        values = record.values
        if isinstance(values.get("token_ids"), list):
            return self._answer(record)
        if "messages" in values:
            return self._chat(record)
        if "completion" in values:
            return self._completion(record)
        if isinstance(text := values.get(self.text_field), str):
            token_ids = self._encode(text, record)
            eos = self._eos(record) if self.append_eos and text else []
            return self._document(token_ids + eos, [True] * len(token_ids + eos), record, text)
        has = f"it has {', '.join(map(repr, values))}" if values else "it is empty"
        raise DataError(
            'needs "token_ids" (made by foretell distill), "messages", "prompt" and "completion", or '
            f'"{self.text_field}" (text); {has} ([data] text_field names the text)',
            *record.place,
        )

    def _answer(self, record: Record) -> Document:
        prompt, answer = record.values.get("prompt_token_ids", []), record.values["token_ids"]
        if not isinstance(prompt, list) or not all(map(self._is_token, [*prompt, *answer])):
            raise DataError(
                f"token ids must be integers from 0 to {self.vocab_size - 1}, those of the trunk", *record.place
            )
        return self._document([*prompt, *answer], [False] * len(prompt) + [True] * len(answer), record)

    def _chat(self, record: Record) -> Document:
        tokenizer = self._tokenizer(record, "a chat")
        try:
            check_messages(record.values["messages"], record.values.get("tools"))
            chat = Chat(record.values["messages"], record.values.get("tools"))
            token_ids, flags = chat_targets(tokenizer, chat, self.supervise == "answer")
        except UsageError as error:
            raise DataError(str(error), *record.place) from error
        return self._document(token_ids, flags, record)

    def _completion(self, record: Record) -> Document:
        prompt, completion = record.values.get("prompt"), record.values["completion"]
        if not isinstance(prompt, str) or not isinstance(completion, str):
            raise DataError('"prompt" and "completion" must both be text', *record.place)
        # Apart, as when serving: the prompt is encoded alone, and what follows is added to it.
        before = self._encode(prompt, record)
        after = list(self.tokenizer(completion, add_special_tokens=False)["input_ids"]) + self._eos(record)
        flags = [False] * len(before) + [True] * len(after)
        return self._document(before + after, flags, record, prompt + completion)

    def _document(self, token_ids: list[int], flags: list[bool], record: Record, text: str | None = None) -> Document:
        if max(token_ids, default=0) >= self.vocab_size:
            raise DataError(
                f"the tokenizer gives token {max(token_ids)}, and the trunk's vocabulary ends at {self.vocab_size - 1}",
                *record.place,
            )
        if text is None and self.tokenizer is not None:
            text = self.tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        flags = flags if self.supervise == "answer" else [True] * len(flags)
        num_bytes = len((text or "").encode("utf-8", errors="replace"))
        return Document(token_ids, flags, num_bytes, record.undecodable)

    def _encode(self, text: str, record: Record) -> list[int]:
        return list(self._tokenizer(record, "text")(text)["input_ids"])

    def _tokenizer(self, record: Record, what: str) -> Any:
        if self.tokenizer is None:
            raise DataError(
                f"is {what}, and the trunk's folder has no tokenizer; give records with token_ids", *record.place
            )
        return self.tokenizer

    def _eos(self, record: Record) -> list[int]:
        """EOS as a list, empty for a tokenizer without one."""
        eos = self._tokenizer(record, "text").eos_token_id
        return [] if eos is None else [eos]

    def _is_token(self, value: object) -> bool:
        return type(value) is int and 0 <= value < self.vocab_size
