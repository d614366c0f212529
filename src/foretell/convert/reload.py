"""Load what was written, as any user would, and compare what trunk and heads compute with the source's."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from foretell.checkpoints.adapter import StaleHeadsWarning, load_adapter
from foretell.checkpoints.adapter_config import AdapterInfo
from foretell.checkpoints.files import CheckpointWarning, one_line
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads, why_not_native
from foretell.checkpoints.quantisation import quantisation_of
from foretell.checkpoints.stored import StoredModel
from foretell.convert.report import Conversion
from foretell.errors import CheckpointError, UnsupportedModel
from foretell.models.decoder import States, causal_mask, document_positions
from foretell.models.heads import Heads
from foretell.models.sequential import SequentialHeads
from foretell.models.trunk import Trunk

_NUM_TOKENS = 24
_LEAST_AGREEMENT = 0.5
_NEAR = 2e-2
"""Largest relative difference of states where a weight was rounded once more (bf16: 2^-8 a rounding)."""


@torch.no_grad()
def check_reload(
    source: StoredModel, folder: Path, info: AdapterInfo, num_modules: int, report: Conversion, *, folded: bool
) -> None:
    """Compare logits and heads' states of ``folder`` with those of ``source`` and its adapter; note it in ``report``.

    ``folded``: the final norm was folded, so logits were rounded once more, and heads compute nearly the same. Raises
    CheckpointError where they differ. Where memory has no room for both models, they are not loaded, and the answer
    says so.
    """
    needed = 3 * sum(file.stat().st_size for file in source.files)
    if needed > _free_bytes():
        report.checks.append(
            f"names, shapes and bytes alone; loading both models takes about {needed / 1e9:.0f} GB of memory"
        )
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before, after = load_trunk(source.folder), load_trunk(folder)
        adapter, native = load_adapter(before, info.folder), load_native_heads(after)
    report.notes += [str(found.message) for found in caught if issubclass(found.category, StaleHeadsWarning)]
    exact = not folded and quantisation_of(source.config) is None  # such kernels round as they like
    first, second = _states(before), _states(after)
    logits = before.project(first.post_BTD), after.project(second.post_BTD)
    if not (torch.equal(*logits) if exact else _near(*logits)):
        raise CheckpointError(f"{folder}: its trunk computes other logits than {source.folder}; not written")
    agreements = []
    for depth in range(1, num_modules + 1):
        ours, theirs = (_head_states(*pair, depth) for pair in ((adapter, first), (native, second)))
        guesses = before.project(ours).argmax(-1) == after.project(theirs).argmax(-1)
        agreements.append(guesses.float().mean().item())
        if agreements[-1] < _LEAST_AGREEMENT if folded else not _near(ours, theirs):
            raise CheckpointError(f"{folder}: its heads compute something else than {info.folder}; not written")
    same = "the same bits" if exact else f"the same within {_NEAR}"
    heads = "states of the heads equal"
    if folded:
        heads = f"guesses agree at {min(agreements):.0%} of positions (their states' scale is nearly the same)"
    report.checks.append(f"loaded again: logits {same}, {heads}")


@torch.no_grad()
def check_loads(source: StoredModel, folder: Path, *, with_heads: bool) -> str:
    """Load ``folder`` and its heads, where memory has room and Foretell knows the model; say what was done.

    Raises CheckpointError where it does not load though ``source`` would.
    """
    size = 2 * sum(file.stat().st_size for file in source.files)
    if size > _free_bytes():
        return f"names, shapes and bytes alone; loading it takes about {size / 1e9:.0f} GB of memory"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        try:
            trunk = load_trunk(folder, for_training=True)
        except UnsupportedModel as error:
            return f"names, shapes and bytes alone; Foretell does not run this model ({one_line(error)})"
        if not with_heads:
            return "loaded again, without heads"
        if why := why_not_native(trunk):
            return f"its trunk loaded again; {why}"
        heads = load_native_heads(trunk)
    return f"loaded again, with heads of {heads.config.num_modules} module{'s' * (heads.config.num_modules != 1)}"


def _tokens(trunk: Trunk) -> torch.Tensor:
    return (torch.arange(1, _NUM_TOKENS + 1, device=trunk.device) * 7919 % trunk.vocab_size).unsqueeze(0)


def _states(trunk: Trunk) -> States:
    ids_BT = _tokens(trunk)
    return trunk.text_states(ids_BT, torch.zeros_like(ids_BT))


def _head_states(heads: Heads, states: States, depth: int) -> torch.Tensor:
    """States of the module of ``depth`` on the trunk's own; the text's first position is left out (``zero_first``)."""
    assert isinstance(heads, SequentialHeads)
    ids_BT = _tokens(heads.trunk)
    docs_BT = torch.zeros_like(ids_BT)
    positions_BT = document_positions(docs_BT) + 1
    source_BTD = heads.trunk_side(states)
    embeddings_BTD = heads.trunk.embed(ids_BT.roll(-1, dims=1))
    module = heads.module_at(depth)
    return module(source_BTD, embeddings_BTD, positions_BT, causal_mask(docs_BT), positions_BT).post_BTD


def _near(first: torch.Tensor, second: torch.Tensor) -> bool:
    scale = max(1e-6, first.float().abs().max().item())
    return bool((first.float() - second.float()).abs().max() <= _NEAR * scale)


def _free_bytes() -> int:
    """Memory that can be had without swapping; endless where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 2**62
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 2**62)
