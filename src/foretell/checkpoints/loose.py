"""Heads that come without a trunk: a folder with their tensors alone, or a file that torch saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from foretell.checkpoints.families import Family, detect_family
from foretell.checkpoints.files import TensorHeader, one_line, read_headers, read_json
from foretell.checkpoints.native import NativeClaim
from foretell.checkpoints.stored import StoredModel, float_types
from foretell.errors import CheckpointError

_EAGLE_3 = "EAGLE-3 heads, which read three layers' states"
_FOREIGN = (
    (("d2t",), _EAGLE_3),
    (("midlayer.",), _EAGLE_3),
    (("layers.0.hidden_norm.",), _EAGLE_3),
    (("layers.0.", "fc."), "EAGLE-1 heads, which have no norms before their projection"),
    (("pre_projection.",), "a Gemma-4 assistant, which reads its target's keys"),
)
_TYPES = {dtype: name for name, dtype in float_types().items()}
_SHOWN = 3


@dataclass(frozen=True)
class LooseHeads(StoredModel):
    """Tensors of heads for a trunk of ``trunk_layers`` layers; where torch saved them, they are in memory."""

    trunk_layers: int = 0
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def num_layers(self) -> int:
        """See StoredModel."""
        return self.trunk_layers

    @cached_property
    def head_names(self) -> list[str]:
        """See StoredModel; every tensor of a family's is a head's."""
        family = self.family
        return [name for name in self.headers if family is None or family.place(name, self.trunk_layers)]

    @cached_property
    def family(self) -> Family | None:
        """See StoredModel."""
        return detect_family(self.config, self.headers, self.trunk_layers)

    @property
    def claim(self) -> NativeClaim:
        """What a config beside the heads announces is not checked: they may have been cut out of another one."""
        return NativeClaim(0, "")

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """See StoredModel."""
        if not self.tensors:
            yield from super().read(names)
            return
        for name in names:
            yield name, self.tensors[name]


def open_heads(path: Path, architecture: str, trunk_layers: int, *, has_kinds: bool = False) -> LooseHeads:
    """Heads in ``path``: a folder or *.safetensors file, or one that torch saved (medusa_lm_head.pt, *.pth).

    ``architecture``: the trunk's class, which decides between families of one layout. ``has_kinds``: its config says
    of what kind each layer is; of a config.json beside the heads those of their layers are read then, and nothing else.
    No code in a file is run. Raises CheckpointError for what is damaged or no heads' file.
    """
    heads = _opened(path, {"architectures": [architecture]}, trunk_layers)
    if not has_kinds or heads.family is None or heads.family.conventions.get("kind", "sequential") != "sequential":
        return heads
    return replace(heads, config=heads.config | _kinds_beside(heads.folder, trunk_layers))


def _opened(path: Path, config: dict[str, Any], trunk_layers: int) -> LooseHeads:
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        saved = [file for pattern in ("*.pt", "*.pth") for file in sorted(path.glob(pattern))]
        if files:
            return _of_safetensors(path, config, files, trunk_layers)
        if len(saved) != 1:
            raise CheckpointError(f"{path}: no *.safetensors in it, and not one *.pt or *.pth; give the heads' file")
        return _of_torch(saved[0], config, trunk_layers)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file or folder; give the heads' folder or file")
    if path.suffix == ".safetensors":
        return _of_safetensors(path.parent, config, [path], trunk_layers)
    return _of_torch(path, config, trunk_layers)


def _kinds_beside(folder: Path, trunk_layers: int) -> dict[str, Any]:
    """Kinds of layers; a list that goes on behind the trunk's only where it was written for as many layers."""
    path = folder / "config.json"
    if not path.is_file():
        return {}
    config = read_json(path)
    nested = config.get("text_config")
    config = config | nested if isinstance(nested, dict) else config
    keys = ["mtp_layer_types", *(["layer_types"] if config.get("num_hidden_layers") == trunk_layers else [])]
    return {key: config[key] for key in keys if key in config}


def refuse_odd(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise CheckpointError naming tensors of heads that are no dense floating-point numbers."""
    odd = [
        f"{name} ({tensor.dtype if tensor.layout == torch.strided else tensor.layout})".replace("torch.", "")
        for name, tensor in tensors.items()
        if tensor.layout != torch.strided or tensor.dtype not in _TYPES
    ]
    if odd:
        shown = ", ".join(odd[:_SHOWN]) + (", ..." if len(odd) > _SHOWN else "")
        raise CheckpointError(f"heads are stored as {', '.join(_TYPES.values())}, and these tensors are not: {shown}")


def why_foreign(names: Iterable[str]) -> str:
    """What heads of no known layout are, where they can be told; else the beginning of their names."""
    names = list(names)
    for marks, what in _FOREIGN:
        if all(any(name.startswith(mark) for name in names) for mark in marks):
            return f"{what}: not supported"
    return f"in no layout that is known ({', '.join(sorted(names)[:3])}, ...)"


def _of_safetensors(folder: Path, config: dict[str, Any], files: list[Path], trunk_layers: int) -> LooseHeads:
    headers, places = {}, {}
    for file in files:
        for name, header in read_headers(file).items():
            headers[name], places[name] = header, file
    return LooseHeads(folder, config, files, headers, places, trunk_layers)


def _of_torch(file: Path, config: dict[str, Any], trunk_layers: int) -> LooseHeads:
    try:
        values = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged zip, a pickle of something else than tensors, ...
        raise CheckpointError(
            f"{file}: not a file of tensors alone, as torch saves them ({one_line(error)})"
        ) from error
    if not isinstance(values, dict) or not all(isinstance(value, torch.Tensor) for value in values.values()):
        raise CheckpointError(f"{file}: holds no tensors by name; give the heads' file")
    tensors = {str(name).removeprefix("model."): tensor for name, tensor in values.items()}
    headers = {
        name: TensorHeader(tuple(tensor.shape), _TYPES.get(tensor.dtype, str(tensor.dtype)))
        for name, tensor in tensors.items()
    }
    return LooseHeads(file.parent, config, [file], headers, dict.fromkeys(tensors, file), trunk_layers, tensors)
