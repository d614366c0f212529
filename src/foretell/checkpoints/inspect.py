"""What a checkpoint holds, read from configs and file headers alone; no tensor is loaded, torch is not imported."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from foretell.checkpoints.adapter_config import CONFIG_FILE, TENSOR_FILE, read_adapter_config
from foretell.checkpoints.files import TensorHeader, one_line, read_headers, read_json, weight_files
from foretell.checkpoints.native import LOST, claimed_heads, native_tensors
from foretell.checkpoints.source import DEMO, find_source
from foretell.errors import CheckpointError

_HEAD_NAMES = ("lm_head.weight", "embed_out.weight", "output.weight")


@dataclass
class Inspection:
    """Facts about one checkpoint; a field that its kind does not have is None or empty.

    ``heads``: conventions of an adapter's heads. ``made_for``: the trunk it was trained against. ``claimed_heads``:
    native MTP layers that a trunk's config announces; ``mtp_tensors``: those found. ``problems``: what does not fit
    together. ``dtypes``: number of parameters by storage type.
    """

    kind: Literal["adapter", "trunk", "gguf"]
    path: str
    num_tensors: int
    num_parameters: int
    num_bytes: int
    dtypes: dict[str, int]
    architecture: str = ""
    num_layers: int | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    tied: bool | None = None
    claimed_heads: int | None = None
    mtp_tensors: list[str] = field(default_factory=list)
    heads: dict[str, Any] | None = None
    made_for: dict[str, Any] | None = None
    draft_vocab: dict[str, Any] | None = None
    training: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def max_depth(self) -> int | None:
        """Depths an adapter's heads were trained for; None for other kinds."""
        return self.heads["num_depths"] if self.heads else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the fields that this kind does not have."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def inspect_checkpoint(path: str | PathLike[str]) -> Inspection:
    """Inspect an adapter folder, a trunk folder, a GGUF file or "demo". Raises CheckpointError."""
    if path != DEMO and (Path(path).expanduser() / CONFIG_FILE).is_file():
        return _adapter(Path(path).expanduser())
    source = find_source(path)
    if source.kind == "hub":
        raise CheckpointError(f"{path}: no such file or folder; only local checkpoints can be inspected")
    return _trunk(Path(source.where)) if source.kind == "folder" else _gguf(Path(source.where))


def _adapter(folder: Path) -> Inspection:
    info = read_adapter_config(folder)
    headers = read_headers(folder / TENSOR_FILE)
    problems = []
    if info.num_tensors != len(headers):
        problems.append(f"{CONFIG_FILE} announces {info.num_tensors} tensors, {TENSOR_FILE} holds {len(headers)}")
    return Inspection(
        kind="adapter",
        path=str(folder),
        **_sizes(headers, [folder / TENSOR_FILE]),
        mtp_tensors=sorted(headers),
        heads=info.heads.conventions(),
        made_for=asdict(info.trunk),
        draft_vocab=info.draft_vocab,
        training=info.training,
        problems=problems,
    )


def _trunk(folder: Path) -> Inspection:
    config = read_json(folder / "config.json")
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    text = config | (text or {})
    files = weight_files(folder)
    headers = {name: header for file in files for name, header in read_headers(file).items()}
    num_layers = text.get("num_hidden_layers")
    mtp = native_tensors(headers, num_layers)
    tied = text.get("tie_word_embeddings")
    has_head = any(name.endswith(_HEAD_NAMES) for name in headers if name not in mtp)
    problems = _heads_problems(config, mtp, num_layers)
    if tied is False and not has_head:
        problems.append("config says the output head is not tied to the embedding, but no output head is in the files")
    return Inspection(
        kind="trunk",
        path=str(folder),
        **_sizes(headers, files),
        architecture=", ".join(config.get("architectures") or []) or str(config.get("model_type", "")),
        num_layers=num_layers,
        hidden_size=text.get("hidden_size"),
        vocab_size=text.get("vocab_size"),
        tied=(not has_head) if tied is None else bool(tied),
        claimed_heads=claimed_heads(config).num_layers,
        mtp_tensors=mtp,
        problems=problems,
    )


def _heads_problems(config: dict[str, Any], mtp: list[str], num_layers: int | None) -> list[str]:
    """The usual load and save drops MTP tensors, and the saved config still announces them."""
    claim = claimed_heads(config)
    if claim.num_layers and not mtp:
        return [f"{claim} ({claim.key}), but {LOST}"]
    if mtp and not claim.num_layers:
        return [f"{len(mtp)} MTP tensors are in the files ({mtp[0]}, ...), but config claims no native MTP layer"]
    layers = {name.split("layers.", 1)[1].split(".")[0] for name in mtp if "layers." in name}
    if mtp and layers and len(layers) != claim.num_layers:
        return [f"{claim} ({claim.key}), the files hold tensors of {len(layers)}"]
    return []


def _sizes(headers: dict[str, TensorHeader], files: list[Path]) -> dict[str, Any]:
    """``dtypes`` counts parameters by storage type; the ids of a draft vocabulary are a tensor, but no parameters."""
    dtypes: dict[str, int] = {}
    for name, (shape, dtype) in headers.items():
        if name != "mtp.draft_ids":
            dtypes[dtype] = dtypes.get(dtype, 0) + math.prod(shape)
    return {
        "num_tensors": len(headers),
        "num_parameters": sum(dtypes.values()),
        "num_bytes": sum(file.stat().st_size for file in files),
        "dtypes": dtypes,
    }


def _gguf(file: Path) -> Inspection:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise CheckpointError(
            f'{file.name}: reading GGUF files needs gguf; run: pip install "foretell[gguf]"'
        ) from error
    try:
        reader = GGUFReader(file)
        architecture = str(_gguf_value(reader, "general.architecture") or "")
        tokens = reader.get_field("tokenizer.ggml.tokens")
        dtypes: dict[str, int] = {}
        for tensor in reader.tensors:
            dtypes[tensor.tensor_type.name] = dtypes.get(tensor.tensor_type.name, 0) + int(tensor.n_elements)
        names = [str(tensor.name) for tensor in reader.tensors]
        num_blocks = _gguf_value(reader, f"{architecture}.block_count")
        claimed = _gguf_value(reader, f"{architecture}.nextn_predict_layers") or 0
        hidden_size = _gguf_value(reader, f"{architecture}.embedding_length")
    except Exception as error:  # the reader fails in many ways on a damaged file
        raise CheckpointError(f"{file}: not a readable GGUF file ({one_line(error)})") from error
    mtp = native_tensors(names, None)
    problems = []
    if claimed and not mtp:
        problems.append(f"metadata claims {claimed} native MTP layers, but {LOST}")
    elif mtp and not claimed:
        problems.append(f"{len(mtp)} MTP tensors are in the file, but metadata claims no native MTP layer")
    return Inspection(
        kind="gguf",
        path=str(file),
        num_tensors=len(names),
        num_parameters=sum(dtypes.values()),
        num_bytes=file.stat().st_size,
        dtypes=dtypes,
        architecture=architecture,
        num_layers=None if num_blocks is None else num_blocks - claimed,  # GGUF counts MTP blocks with the others
        hidden_size=hidden_size,
        vocab_size=None if tokens is None else len(tokens.data),
        tied="output.weight" not in names,
        claimed_heads=claimed,
        mtp_tensors=mtp,
        problems=problems,
    )


def _gguf_value(reader: Any, key: str) -> Any:
    found = reader.get_field(key)
    return None if found is None else found.contents()
