"""The texts of a run's training documents, for what comes before there is a tokenizer: training one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from foretell.errors import DataError
from foretell.training.held_out import set_apart_by
from foretell.training.recipe import DataConfig
from foretell.training.sources import Record, check_files, file_records, text_records


def corpus_texts(config: DataConfig, max_bytes: int = 100_000_000) -> Iterator[str]:
    """Texts of the training documents, in order, until ``max_bytes`` are read; nothing that is held out.

    Raises DataError for what holds no text; token ids are another tokenizer's.
    """
    check_files(config.files)
    num_bytes = 0
    for record in set_apart_by(config, _records(config), []):
        text = _text_of(record, config.text_field)
        yield text
        num_bytes += _num_bytes(text)
        if num_bytes >= max_bytes:
            break


def _records(config: DataConfig) -> Iterator[Record]:
    """As ``documents_of`` takes them; ``max_text_tokens`` counts bytes here, of which every token has one or more."""
    yield from islice(file_records(config.files, config.text_field), config.max_documents or None)
    num_bytes = 0
    for record in text_records(config):
        if config.max_text_tokens and num_bytes >= config.max_text_tokens:
            break
        num_bytes += _num_bytes(record.values[config.text_field])
        yield record


def _text_of(record: Record, text_field: str) -> str:
    values = record.values
    if isinstance(values.get("token_ids"), list):
        raise DataError("holds token ids of another tokenizer; a trunk from scratch needs text", *record.place)
    if isinstance(messages := values.get("messages"), list):
        found = [m.get("content") for m in messages if isinstance(m, dict)]
    elif "completion" in values:
        found = [values.get("prompt"), values["completion"]]
    else:
        found = [values.get(text_field)]
    if not any(isinstance(text, str) for text in found):
        raise DataError(f'has no text: needs "messages", "prompt" and "completion", or "{text_field}"', *record.place)
    return "\n".join(text for text in found if isinstance(text, str))


def _num_bytes(text: str) -> int:
    return len(text.encode("utf-8", errors="replace"))
