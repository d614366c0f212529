"""A model folder on disk: its config, and which file holds which tensor. Nothing is loaded before it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from foretell.checkpoints.families import Family, detect_family
from foretell.checkpoints.files import INDEX_FILE, TensorHeader, one_line, read_headers, read_json, weight_files
from foretell.checkpoints.head_modules import stored_modules
from foretell.checkpoints.native import NativeClaim, claimed_heads, native_tensors
from foretell.errors import CheckpointError

if TYPE_CHECKING:
    import torch

FLOATS = ("F32", "BF16", "F16", "F64")
"""Types of plain numbers, as safetensors names them."""


@dataclass(frozen=True)
class StoredModel:
    """``headers``: shape and type by tensor name; ``places``: the file that holds each."""

    folder: Path
    config: dict[str, Any]
    files: list[Path]
    headers: dict[str, TensorHeader]
    places: dict[str, Path]

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> StoredModel:
        """Read config and headers. Raises CheckpointError for what is damaged, and for an index that is wrong."""
        target = Path(folder).expanduser()
        if not (target / "config.json").is_file():
            what = "no config.json in it" if target.is_dir() else "no such folder"
            raise CheckpointError(f"{target}: {what}; expected a model folder as save_pretrained writes it")
        config = read_json(target / "config.json")
        files = weight_files(target)
        headers: dict[str, TensorHeader] = {}
        places: dict[str, Path] = {}
        for file in files:
            for name, header in read_headers(file).items():
                if name in headers:
                    raise CheckpointError(f"{target}: {name} is in {places[name].name} and in {file.name}; keep one")
                headers[name], places[name] = header, file
        _check_index(target, places)
        return cls(target, config, files, headers, places)

    @cached_property
    def text_config(self) -> dict[str, Any]:
        """The settings of the language model, also where a model with images nests them."""
        nested = self.config.get("text_config")
        return self.config | nested if isinstance(nested, dict) else self.config

    @property
    def num_layers(self) -> int:
        """Layers of the trunk; raises CheckpointError where the config does not say."""
        for key in ("num_hidden_layers", "num_layers", "n_layer"):
            count = self.text_config.get(key)
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                return count
        kinds = self.text_config.get("layers_block_type")  # Nemotron-H says no number
        if isinstance(kinds, list) and kinds:
            return len(kinds)
        raise CheckpointError(
            f"{self.folder / 'config.json'}: num_hidden_layers is {self.text_config.get('num_hidden_layers')!r}; "
            "expected the number of the trunk's layers"
        )

    @cached_property
    def head_names(self) -> list[str]:
        """Names of native heads' tensors, in any layout."""
        return native_tensors(self.headers, self.num_layers)

    @cached_property
    def family(self) -> Family | None:
        """Whose layout the native heads have; None where there are none, or none known."""
        return detect_family(self.config, self.head_names, self.num_layers)

    @property
    def claim(self) -> NativeClaim:
        """Heads that the config announces."""
        return claimed_heads(self.config)

    @cached_property
    def num_modules(self) -> int:
        """Modules of native heads by their tensors; 0 where there are none in a known layout."""
        if self.family is None:
            return 0
        return len(stored_modules(self.family, self.head_names, self.num_layers)[0])

    def find(self, name: str) -> str:
        """The name under which a tensor of the language model is stored: a model with images nests it deeper.

        Raises CheckpointError where none, or several, could be meant.
        """
        if name in self.headers:
            return name
        nested = re.compile(
            rf"([A-Za-z_]+\.)*{re.escape(name.removeprefix('model.'))}"
        )  # no numbers: not within a layer
        heads = set(self.head_names)
        found = [other for other in self.headers if nested.fullmatch(other) and other not in heads]
        found = [other for other in found if "language_model." in other] or found
        if len(found) != 1:
            raise CheckpointError(f"{self.folder}: no tensor {name} in its files; its names are not those of its class")
        return found[0]

    def layer_types(self, index: int) -> dict[str, torch.dtype]:
        """Torch types of the trunk's layer ``index`` by their names within it, those of plain numbers."""
        where = re.compile(rf".*?layers\.{index}\.(.+)")
        found = {match[1]: name for name in self.headers if (match := where.fullmatch(name))}
        return {rest: self.dtype(name) for rest, name in found.items() if self.headers[name].dtype in FLOATS}

    def dtype(self, name: str) -> torch.dtype:
        """The torch type of a stored tensor. Raises CheckpointError for a type that torch has no name for here."""
        types = float_types()
        if (stored := self.headers[name].dtype) not in types:
            raise CheckpointError(
                f"{self.folder}: {name} is stored as {stored}; heads are stored beside one of {', '.join(types)}"
            )
        return types[stored]

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors one by one, file by file; only the one at hand is in memory. Raises CheckpointError."""
        by_file: dict[Path, list[str]] = {}
        for name in names:
            by_file.setdefault(self.places[name], []).append(name)
        for path, wanted in by_file.items():
            try:
                with safe_open(path, framework="pt") as file:
                    for name in wanted:
                        yield name, file.get_tensor(name)
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path}: cannot be read ({one_line(error)})") from error


def float_types() -> dict[str, torch.dtype]:
    """Torch's types of plain numbers, by their names in ``FLOATS``; torch is imported for it."""
    import torch

    return dict(zip(FLOATS, (torch.float32, torch.bfloat16, torch.float16, torch.float64), strict=True))


def _check_index(folder: Path, places: dict[str, Path]) -> None:
    """The index, where there is one, must say of every tensor where it is, and of no other."""
    index = folder / INDEX_FILE
    if not index.is_file():
        return
    announced = read_json(index)["weight_map"]
    wrong = sorted(name for name in announced.keys() | places.keys() if announced.get(name) != _name(places, name))
    if wrong:
        shown = ", ".join(wrong[:8]) + (", ..." if len(wrong) > 8 else "")
        raise CheckpointError(
            f"{index}: {len(wrong)} tensors are not where it says: {shown}; the files do not belong together"
        )


def _name(places: dict[str, Path], name: str) -> str | None:
    return places[name].name if name in places else None
