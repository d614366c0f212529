"""Facts about an adapter: heads of ours, alone or beside their trunk."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from foretell.checkpoints.adapter_config import CONFIG_FILE, TENSOR_FILE, AdapterInfo, read_adapter_config
from foretell.checkpoints.families import ENGINES
from foretell.checkpoints.files import read_headers
from foretell.checkpoints.source import demo_path
from foretell.errors import CheckpointError
from foretell.inspection.costs import Cost, Costs, Experts, module_costs, parameter_counts
from foretell.inspection.gguf import inspect_gguf
from foretell.inspection.inspection import Inspection
from foretell.inspection.tallies import stored_numbers

_MODULE = re.compile(r"mtp\.(?:layers|heads)\.(\d{1,9})\.")
_OWN_OUTPUT = re.compile(r"mtp\.(?:(?:layers|heads)\.\d+\.)?output\.weight")
_UNREAD = "does not read an adapter; foretell convert export writes what it reads"


def inspect_adapter(folder: Path, trunk: Cost | None = None, experts: Experts | None = None) -> Inspection:
    """Inspect the adapter in ``folder``. ``trunk`` and ``experts``: of the trunk beside it, where there is one.

    Raises CheckpointError where it is damaged.
    """
    info = read_adapter_config(folder)
    headers = read_headers(folder / TENSOR_FILE)
    counts = parameter_counts(headers, None)
    problems = []
    if info.num_tensors != len(headers):
        problems.append(f"{CONFIG_FILE} announces {info.num_tensors} tensors, {TENSOR_FILE} holds {len(headers)}")
    trunk = trunk or _trunk_of(info)
    depths = _costs(info, counts, experts or Experts(), trunk)
    if len(depths) != info.heads.num_modules:
        problems.append(f"{CONFIG_FILE} announces {info.heads.num_modules} modules, {TENSOR_FILE} holds {len(depths)}")
    return Inspection(
        kind="adapter",
        path=str(folder),
        num_tensors=len(headers),
        num_parameters=sum(counts.values()),
        num_bytes=(folder / TENSOR_FILE).stat().st_size,
        dtypes=stored_numbers({name: header for name, header in headers.items() if counts[name]}),
        num_modules=len(depths),
        mtp_tensors=sorted(headers),
        heads=info.heads.conventions(),
        costs=Costs(trunk, depths),
        engines=dict.fromkeys(ENGINES, _UNREAD),
        made_for=asdict(info.trunk),
        draft_vocab=info.draft_vocab,
        training=info.training,
        problems=problems,
    )


def _costs(info: AdapterInfo, counts: dict[str, int], experts: Experts, trunk: Cost | None) -> list[Cost]:
    modules: dict[int, dict[str, int]] = {}
    for name, count in counts.items():
        found = _MODULE.match(name)
        modules.setdefault(int(found[1]) if found else 0, {})[name] = count
    rows = info.heads.draft_vocab_size or info.trunk.vocab_size
    shared = counts.get("mtp.output.weight", rows * info.trunk.hidden_size)
    own = [name for name in counts if _OWN_OUTPUT.fullmatch(name)]
    return module_costs([modules[k] for k in sorted(modules)], experts, shared, trunk, own_outputs=own)


def _trunk_of(info: AdapterInfo) -> Cost | None:
    """Cost of the trunk, where its name is that of the demo weights; an adapter says no more of where it is."""
    try:
        path = demo_path()
        if path.is_file() and path.stem == info.trunk.name:
            costs = inspect_gguf(path).costs
            return costs.trunk if costs else None
    except CheckpointError:
        pass
    return None
