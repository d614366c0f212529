"""Facts about a GGUF file, from its header."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from foretell.checkpoints.native import LOST
from foretell.inspection.costs import Costs, Experts, module_costs, output_matrix, trunk_cost
from foretell.inspection.gguf_engine import gguf_family, gguf_line
from foretell.inspection.gguf_header import GGUFHeader, read_gguf_header
from foretell.inspection.inspection import Inspection

_BLOCK = re.compile(r"blk\.(\d{1,9})\.")
_COPIES = re.compile(r"blk\.\d+\.nextn\.(?:embed_tokens|shared_head_head)\.weight")


def inspect_gguf(path: Path) -> Inspection:
    """Inspect a GGUF file. Raises CheckpointError where it is damaged."""
    header = read_gguf_header(path)
    architecture = str(header.values.get("general.architecture", ""))

    def setting(name: str) -> int:
        value: Any = header.values.get(f"{architecture}.{name}")
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    claimed, num_blocks = setting("nextn_predict_layers"), setting("block_count")
    modules = _modules(header, num_blocks - claimed if claimed else None)
    heads = sorted(name for module in modules.values() for name in module)
    counts = {name: tensor.num_values for name, tensor in header.tensors.items()}
    of_heads = set(heads)
    own = {name: count for name, count in counts.items() if name not in of_heads}
    experts = Experts(setting("expert_count"), setting("expert_used_count"))
    trunk, side = trunk_cost(own, experts)
    copies = [name for name in heads if _COPIES.fullmatch(name)]
    sizes = [{name: counts[name] for name in names} for names in modules.values()]
    dtypes: dict[str, int] = {}
    for tensor in header.tensors.values():
        dtypes[tensor.dtype] = dtypes.get(tensor.dtype, 0) + tensor.num_values
    is_recurrent = any(".ssm_" in name for name in own)
    return Inspection(
        kind="gguf",
        path=str(path),
        num_tensors=len(header.tensors),
        num_parameters=sum(counts.values()),
        num_bytes=path.stat().st_size,
        dtypes=dtypes,
        architecture=architecture,
        family=gguf_family(architecture) if heads or claimed else "",
        num_layers=num_blocks - claimed if num_blocks else None,  # GGUF counts MTP blocks with the others
        hidden_size=setting("embedding_length") or None,
        vocab_size=header.lengths.get("tokenizer.ggml.tokens"),
        tied="output.weight" not in header.tensors,
        claimed_heads=claimed,
        num_modules=len(modules),
        mtp_tensors=heads,
        costs=Costs(trunk, module_costs(sizes, experts, output_matrix(own), trunk, copies=copies), side),
        engines={"llama.cpp": gguf_line(architecture, len(modules), claimed, is_recurrent)},
        problems=_problems(claimed, modules, heads) + _split(header),
    )


def _modules(header: GGUFHeader, num_layers: int | None) -> dict[int, list[str]]:
    """Tensors of heads by block: those behind the trunk's last, and blocks with a ``nextn`` tensor in any case."""
    blocks: dict[int, list[str]] = {}
    for name in header.tensors:
        if found := _BLOCK.match(name):
            blocks.setdefault(int(found[1]), []).append(name)
    return {
        number: names
        for number, names in sorted(blocks.items())
        if any(".nextn." in name for name in names) or (num_layers is not None and number >= num_layers)
    }


def _problems(claimed: int, modules: dict[int, list[str]], heads: list[str]) -> list[str]:
    if claimed and not modules:
        return [f"metadata claims {claimed} native MTP layers, but {LOST}"]
    if heads and not claimed:
        return [f"{len(heads)} MTP tensors are in the file, but metadata claims no native MTP layer"]
    if claimed != len(modules):
        return [f"metadata claims {claimed} native MTP layers, the file holds tensors of {len(modules)}"]
    return [
        f"block {number} is one of the heads', but has no nextn.eh_proj"
        for number, names in modules.items()
        if f"blk.{number}.nextn.eh_proj.weight" not in names
    ]


def _split(header: GGUFHeader) -> list[str]:
    count = header.values.get("split.count")
    return (
        [f"one of {count} files: what is in the others is not counted"] if isinstance(count, int) and count > 1 else []
    )
