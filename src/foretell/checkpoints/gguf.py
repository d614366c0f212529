"""GGUF files: converted once by transformers into an ordinary folder in a cache, then loaded like any other."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from foretell.cache_folder import cache_folder
from foretell.checkpoints.files import one_line, written_whole
from foretell.checkpoints.quiet import quiet_transformers
from foretell.errors import CheckpointError

_ENDS = 2**20  # bytes hashed at either end of the file


def gguf_to_folder(
    path: str | PathLike[str],
    cache_dir: str | PathLike[str] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Path:
    """Folder with the weights (fp32, dequantised) and tokenizer of a GGUF file; converted on the first call.

    The folder is ``<cache_dir>/<stem>-<hash>``, in ``~/.cache/foretell/gguf`` or, where the environment names one,
    ``$FORETELL_CACHE/gguf``. ``on_progress`` is told of each stage. Raises CheckpointError.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file")
    folder = (cache_folder("gguf") if cache_dir is None else Path(cache_dir)) / f"{file.stem}-{_file_hash(file)}"
    if (folder / "config.json").is_file():
        return folder
    if absent := [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]:
        raise CheckpointError(
            f'{file.name}: reading GGUF files needs {" and ".join(absent)}; run: pip install "foretell[gguf]"'
        )
    say = on_progress or (lambda stage: None)
    say(f"reading {file.name}, once only: about a minute for a small model")
    with quiet_transformers():
        try:
            read = AutoModelForCausalLM.from_pretrained(
                str(file.parent), gguf_file=file.name, dtype=torch.float32, local_files_only=True
            )
            tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, local_files_only=True)
        except Exception as error:  # the reader fails in many ways on a damaged file or an unknown architecture
            raise CheckpointError(f"{file}: transformers cannot read this GGUF file ({one_line(error)})") from error
        say(f"saving to {folder}")
        with written_whole(folder) as fresh:
            _plain_copy(read).save_pretrained(fresh)
            tokenizer.save_pretrained(fresh)
    return folder


def _plain_copy(read: Any) -> Any:
    """The same weights in a model that does not remember its GGUF origin: the one that does refuses to be saved.

    ``quantization_config`` must go too, or the saved folder would be read as packed GGUF.
    """
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        plain = type(read)(config)
    plain.load_state_dict(read.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = read.generation_config
    return plain


def _file_hash(file: Path) -> str:
    """Short hash of the size and both ends: a file of gigabytes is told apart without being read."""
    size = file.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with file.open("rb") as stream:
        digest.update(stream.read(_ENDS))
        stream.seek(max(0, size - _ENDS))
        digest.update(stream.read(_ENDS))
    return digest.hexdigest()[:12]
