"""Heads of an adapter in place of a model's own: their sizes, and what a depth of them reads."""

from __future__ import annotations

from pathlib import Path

from foretell.checkpoints.adapter_config import TENSOR_FILE, AdapterInfo, read_adapter_config
from foretell.checkpoints.files import read_headers
from foretell.errors import UsageError
from foretell.inspection.adapter import inspect_adapter
from foretell.planning.head_sizes import heads_of
from foretell.planning.model import Linear, PlanModel, linears_of

_FIRST = ("mtp.layers.0.", "mtp.heads.0.")
"""Beginnings of the first module's names."""


def with_adapter(model: PlanModel, folder: str) -> PlanModel:
    """``model`` with the heads of an adapter, of any kind. Raises UsageError where they do not fit it, CheckpointError
    where the adapter is damaged.
    """
    info = read_adapter_config(folder)
    _check(model, info, folder)
    costs = inspect_adapter(Path(folder), experts=model.stack.experts).costs
    assert costs is not None
    return model.with_heads(heads_of(model, info.heads, costs.depths[0], _linears(Path(folder)), folder))


def _check(model: PlanModel, info: AdapterInfo, folder: str) -> None:
    theirs = (info.trunk.hidden_size, info.trunk.vocab_size, info.trunk.num_layers)
    if theirs != (model.hidden_size, model.vocab_size, model.num_layers):
        raise UsageError(
            f"--heads: {folder} was made for {info.trunk.name} ({theirs[2]} layers, {theirs[0]} wide, vocabulary "
            f"{theirs[1]:,}), not for {model.name} ({model.num_layers} layers, {model.hidden_size} wide, vocabulary "
            f"{model.vocab_size:,}); give the model it was made for"
        )


def _linears(folder: Path) -> tuple[Linear, ...]:
    """The first module's matrices, without the output matrix."""
    headers = read_headers(folder / TENSOR_FILE)
    return linears_of(
        {
            name: header.shape
            for name, header in headers.items()
            if name.startswith(_FIRST) and not name.endswith(".output.weight")
        }
    )
