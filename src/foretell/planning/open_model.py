"""From a preset, a config.json or a model folder to a PlanModel. No weight is read: names and shapes are enough.

A model without weights is built by transformers on the meta device, and its tensors are counted as ``inspect`` counts
those of a folder.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.checkpoints.files import TensorHeader, one_line, read_json
from foretell.errors import CheckpointError, UnsupportedModel
from foretell.inspection.costs import embedding_of, experts_of, output_matrix, parameter_counts, trunk_cost
from foretell.inspection.model import inspect_stored
from foretell.inspection.open_folder import open_folder
from foretell.planning.head_sizes import with_native
from foretell.planning.layer_caches import head_cache, layer_caches
from foretell.planning.model import HeadModel, Linear, PlanModel, linears_of
from foretell.planning.presets import PRESETS
from foretell.planning.stack import Stack

Shapes = Mapping[str, tuple[int, ...]]

_LAYER = re.compile(r"(?:.*\.)?(?:layers|h|blocks)\.(\d{1,9})\.")
_FIRST_HALF = re.compile(r".*\.(?:self_attn|mlps|input_layernorm|post_attention_layernorm)\.0\.")
"""What heads take of a layer with two attentions, as models/block_layer does."""


_OF_RESULTS = ("written_by", "environment", "runs")
"""Keys of files that foretell's commands write with --json; no config of a model has them."""


def open_model(model: str) -> PlanModel:
    """A preset's name ("demo" is SmolLM2-135M's), a model folder (weights or config.json alone), or a config file.

    Raises CheckpointError where there is no such thing, UnsupportedModel where transformers or this planner lacks it.
    """
    name = "smollm2-135m" if model == "demo" else model.lower()
    if name in PRESETS:
        return _planned(name, _config(PRESETS[name]), None)
    path = Path(model).expanduser()
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{model:.80}: cannot be read ({one_line(error)})") from error
    if is_folder and (path / "config.json").is_file():
        config = _config(read_json(path / "config.json"), path / "config.json")
        has_weights = any(path.glob("*.safetensors"))
        return _planned(path.resolve().name, config, path if has_weights else None)
    if is_file and path.suffix == ".json":
        return _planned(
            path.stem if path.stem != "config" else path.resolve().parent.name, _config(read_json(path), path)
        )
    if is_folder and (path / "mtp_config.json").is_file():
        raise CheckpointError(f"{model}: an adapter, heads alone; give the trunk, and this folder as --heads")
    meant = difflib.get_close_matches(model.lower(), PRESETS, n=1)
    hint = f'; did you mean "{meant[0]}"?' if meant else ""
    raise CheckpointError(
        f"{model}: no preset, model folder with a config.json, or config file (.json); "
        f"presets: {', '.join(PRESETS)}{hint}"
    )


def _config(values: Mapping[str, Any], path: Path | None = None) -> Any:
    """A config of transformers; no code from the checkpoint is run."""
    from transformers import AutoConfig

    given = dict(values)
    kind = given.pop("model_type", None)
    where = path or "preset"
    if kind is None and path and any(key in given for key in _OF_RESULTS):
        raise CheckpointError(
            f"{path}: results of a command, no model; give the model first, and this file as --acceptance (bench, "
            "probe), --against (bench) or --hardware (what --measure wrote)"
        )
    if not isinstance(kind, str):
        raise CheckpointError(f"{where}: model_type is {kind!r}; expected the name of an architecture, such as llama")
    try:
        return AutoConfig.for_model(kind, **given)
    except Exception as error:  # many kinds: unknown names, settings of another type, its own checks
        raise UnsupportedModel(f"{where}: no config that transformers can read ({one_line(error)})") from error


def _planned(name: str, config: Any, folder: Path | None = None) -> PlanModel:
    from foretell.models.support import block_index, num_decoder_layers

    text = config.get_text_config()
    experts = experts_of(text.to_dict())
    caches = layer_caches(text, name)
    if not caches:
        raise CheckpointError(f"{name}: num_hidden_layers is 0; give the config of a model with layers")
    stored, found = None, None
    if folder is None:
        shapes = _skeleton_shapes(name, config)
        counts = {tensor: math.prod(shape) for tensor, shape in shapes.items()}
    else:
        stored = open_folder(folder)
        found = inspect_stored(stored)
        of_heads = set(found.mtp_tensors)
        headers: dict[str, TensorHeader] = {k: v for k, v in stored.headers.items() if k not in of_heads}
        shapes = {tensor: header.shape for tensor, header in headers.items()}
        counts = parameter_counts(headers, found.quantisation.bits if found.quantisation else None)
    cost, _ = trunk_cost(counts, experts)
    if cost is None or embedding_of(counts) is None:
        raise CheckpointError(f"{name}: no trunk in it, only heads or another model; give the trunk")
    stack = Stack.of(counts, experts)
    like = block_index(text, -1, name)
    block = {tensor: n for tensor, n in counts.items() if _index_of(tensor) == like}
    block = {tensor: n for tensor, n in block.items() if _FIRST_HALF.match(tensor)} or block
    hidden, num_layers = int(text.hidden_size), num_decoder_layers(text)
    inner = Linear(hidden, 2 * hidden, 1)
    built = HeadModel(
        stack=replace(_with_projection(Stack.of(block, experts), hidden), output=stack.output),
        parameters=sum(block.values()) + 2 * hidden * hidden + 3 * hidden,
        cache=head_cache(caches),
        origin="one layer of the trunk's kind and a projection",
        linears=(inner, *linears_of({t: shapes[t] for t in block})),
    )
    model = PlanModel(
        name=name,
        hidden_size=hidden,
        vocab_size=output_matrix(counts) // hidden,
        num_layers=num_layers,
        parameters=cost.parameters,
        stack=stack,
        caches=tuple(caches),
        heads=built,
        linears=linears_of({t: s for t, s in shapes.items() if _index_of(t) is not None}),
        config=text,
    )
    return with_native(model, found, stored) if stored and found and found.mtp_tensors else model


def _with_projection(block: Stack, hidden: int) -> Stack:
    """A block behind the projection of [embedding, state], with norms for both and a final one (DeepSeek-V3, 2.2)."""
    return replace(block, dense=block.dense + 2 * hidden * hidden + 3 * hidden)


def _skeleton_shapes(name: str, config: Any) -> Shapes:
    from foretell.convert.skeleton import skeleton_of

    return {tensor: tuple(part.shape) for tensor, part in skeleton_of(config, name).named_parameters()}


def _index_of(tensor: str) -> int | None:
    found = _LAYER.match(tensor)
    return int(found[1]) if found else None
