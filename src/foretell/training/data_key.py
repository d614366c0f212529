"""What rows are made of, as one hash: the same files, settings and tokenizer give the same rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foretell.training.documents import DocumentReader
from foretell.training.recipe import DataConfig
from foretell.training.sources import text_files

_FORMAT = 1
"""Raised when reading or packing changes what rows hold."""

_WITHOUT_EFFECT = ("files", "texts", "held_out_files", "storage", "shuffle_buffer", "draft_vocab_size", "append_eos")


def data_key(config: DataConfig, reader: DocumentReader) -> str:
    """16 hex digits. A file counts by its name, size and time of change."""
    settings = {name: value for name, value in asdict(config).items() if name not in _WITHOUT_EFFECT}
    made_of = [
        _FORMAT,
        settings,
        reader.vocab_size,
        reader.append_eos,
        _tokenizer(reader.tokenizer),
        list(_files(config)),
    ]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _files(config: DataConfig) -> Iterator[tuple[str, str, int, int]]:
    for part, files in (
        ("files", map(Path, config.files)),
        ("texts", text_files(config)),
        ("held_out_files", map(Path, config.held_out_files)),
    ):
        for file in files:
            stat = file.stat()
            yield part, str(file.resolve()), stat.st_size, stat.st_mtime_ns


def _tokenizer(tokenizer: Any) -> list[str]:
    if tokenizer is None:
        return []
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocab = backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
    return [type(tokenizer).__name__, vocab, str(tokenizer.special_tokens_map), str(tokenizer.chat_template)]
