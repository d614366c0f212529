"""``mtp_config.json``: what an adapter's heads are and whom they fit. Read without torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.checkpoints.files import read_json
from foretell.config import HeadsConfig
from foretell.errors import CheckpointError

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk

CONFIG_FILE = "mtp_config.json"
TENSOR_FILE = "mtp.safetensors"
FORMAT_VERSION = 1

_NEUTRAL = (
    "max_positions",
    "block",
    "num_res_blocks",
    "zero_first",
    "block_layer",
    "then_layer",
    "mlp_layer",
    "output_per_module",
    "extra",
)
"""Settings whose defaults change nothing; older adapters lack some."""


@dataclass(frozen=True)
class TrunkInfo:
    """The trunk an adapter was made for."""

    name: str
    architecture: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    fingerprint: str

    @classmethod
    def of(cls, trunk: Trunk) -> TrunkInfo:
        """Describe a loaded trunk."""
        return cls(
            name=trunk.name,
            architecture=type(trunk.model).__name__,
            hidden_size=trunk.hidden_size,
            vocab_size=trunk.vocab_size,
            num_layers=trunk.num_layers,
            fingerprint=trunk.fingerprint(),
        )


@dataclass(frozen=True)
class AdapterInfo:
    """What ``mtp_config.json`` says. ``draft_vocab`` is {size, coverage} where the draft vocabulary is reduced."""

    folder: Path
    heads: HeadsConfig
    trunk: TrunkInfo
    num_tensors: int
    training: dict[str, Any]
    draft_vocab: dict[str, Any] | None


def read_adapter_config(folder: str | PathLike[str]) -> AdapterInfo:
    """Read and check ``mtp_config.json`` alone; no model and no tensor is loaded."""
    target = Path(folder)
    path = target / CONFIG_FILE
    if not path.is_file():
        problem = "no such folder"
        if target.exists():
            problem = f"no {CONFIG_FILE} in it" if target.is_dir() else "is a file"
        raise CheckpointError(
            f"{target}: {problem}; expected an adapter as foretell train writes it, a folder with {CONFIG_FILE} and "
            f"{TENSOR_FILE}"
        )
    values = read_json(path)
    if values.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version is {values.get('format_version')!r}, this version of foretell reads "
            f"{FORMAT_VERSION}; update foretell or train the heads again"
        )
    heads = _checked(path, "heads", values.get("heads"), HeadsConfig)
    trunk = _checked(path, "trunk", values.get("trunk"), TrunkInfo)
    num_tensors, training, draft_vocab = values.get("tensors"), values.get("training", {}), values.get("draft_vocab")
    if not isinstance(num_tensors, int) or not isinstance(training, dict) or not isinstance(draft_vocab, dict | None):
        raise CheckpointError(f"{path}: tensors must be a number, training and draft_vocab objects")
    try:
        config = HeadsConfig.from_dict(heads)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return AdapterInfo(target, config, TrunkInfo(**trunk), num_tensors, training, draft_vocab)


def is_adapter(folder: str | PathLike[str]) -> bool:
    """True where ``folder`` holds heads that ``foretell train`` wrote."""
    return (Path(folder) / CONFIG_FILE).is_file()


def _checked(path: Path, part: str, values: Any, kind: type[HeadsConfig] | type[TrunkInfo]) -> dict[str, Any]:
    """``values`` with every setting that has no neutral default present and of the right type."""
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: no {part!r} object; the file is damaged")
    missing = [f.name for f in fields(kind) if f.name not in values and f.name not in _NEUTRAL]
    known = {f.name: f for f in fields(kind)}
    if kind is TrunkInfo:
        values = {name: value for name, value in values.items() if name in known}
    types = {"str": str, "int": int, "bool": bool, "bool | None": bool, "dict[str, Any]": dict}
    wrong = [
        f"{name} {value!r}"
        for name, value in values.items()
        if name in known and type(value) is not types.get(str(known[name].type), str)
    ]
    for problem, names in (("missing", missing), ("of the wrong type", wrong)):
        if names:
            raise CheckpointError(f"{path}: {part} settings {problem}: {', '.join(names)}; none is guessed")
    return values
