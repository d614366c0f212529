"""read_tokenizer: the tokenizer that a model folder's files describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from foretell.checkpoints.files import one_line, read_json
from foretell.errors import CheckpointError

_GENERIC = ("TokenizersBackend", "PreTrainedTokenizerFast")


def read_tokenizer(where: str | Path, local: bool = True) -> Any:
    """The tokenizer of a folder or, unless ``local``, of a hub name. No code from there is run.

    Raises CheckpointError; its cause is an OSError where there are no such files.
    """
    try:
        if _says_all(Path(where)):
            return PreTrainedTokenizerFast.from_pretrained(where, local_files_only=local)
        return AutoTokenizer.from_pretrained(where, trust_remote_code=False, local_files_only=local)
    except Exception as error:  # files break in many ways, and transformers raises a dozen kinds
        raise CheckpointError(f"{where}: the tokenizer cannot be loaded ({one_line(error)})") from error


def _says_all(folder: Path) -> bool:
    """True where tokenizer.json is all there is to know; AutoTokenizer takes another for model type qwen2 even so."""
    settings = folder / "tokenizer_config.json"
    if not (settings.is_file() and (folder / "tokenizer.json").is_file()):
        return False
    return read_json(settings).get("tokenizer_class") in _GENERIC
