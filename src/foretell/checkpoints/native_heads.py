"""Native heads of families whose MTP layers transformers itself can read (DeepSeek-V3, GLM-4.5, Mellum), as ours.

transformers' MtpModel knows their names, shards and fused experts; what it read is copied into SequentialHeads, module
by module. Conventions of all of them: embedding first, the trunk's state after its final norm, an own final norm, whose
output is fed back.
"""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import torch
from transformers.modeling_layers import MtpModel

from foretell.checkpoints.files import one_line, read_headers, weight_files
from foretell.checkpoints.quiet import quiet_transformers
from foretell.config import HeadsConfig
from foretell.errors import CheckpointError
from foretell.models.heads import Heads
from foretell.models.sequential import SequentialHeads
from foretell.models.trunk import Trunk

_GO_ON = 'Nothing was loaded. To run without these heads, give heads="none" (--heads none)'
_PARTS = {"mtp_block": "layer", "post_norm": "norm"}
"""What a part of a transformers MtpLayer is called here, where the names differ."""


def can_load_native(trunk: Trunk) -> bool:
    """True where transformers knows how to read this family's MTP layers, and the config claims some."""
    return bool(getattr(trunk.config, "num_mtp_layers", 0)) and not getattr(
        trunk.config, "mtp_hidden_states_first", False
    )


def native_config(trunk: Trunk) -> HeadsConfig:
    """What the native heads are; raises CheckpointError where there are none that can be read."""
    if not can_load_native(trunk):
        raise CheckpointError(
            f"{trunk.name}: no native MTP layers that transformers can read (it reads DeepSeek-V3, GLM-4.5, Mellum and "
            "their kin); write [heads] in place of init_from, for fresh ones"
        )
    return HeadsConfig(unrolled=False, num_depths=trunk.config.num_mtp_layers)


def load_native_heads(trunk: Trunk, dtype: torch.dtype | None = None) -> Heads:
    """The heads that lie in the trunk's own folder, in ``dtype`` or the trunk's; eval mode, no gradients.

    Raises CheckpointError naming tensors that are missing or misshapen.
    """
    num_layers = trunk.config.num_hidden_layers
    _refuse_misshapen(trunk)
    names = [rf"^model\.layers\.{k}\." for k in range(num_layers, num_layers + trunk.config.num_mtp_layers)]
    try:
        # transformers lists the layer numbers of released checkpoints; this model may have another number of layers.
        with quiet_transformers(), patch.object(trunk.model, "_keys_to_ignore_on_load_unexpected", [*names, r"^mtp\."]):
            theirs = MtpModel.from_pretrained(trunk.model)
    except Exception as error:  # as in load: many kinds
        raise CheckpointError(
            f"{trunk.name}: its native MTP layers cannot be read ({one_line(error)}). {_GO_ON}"
        ) from error
    heads = SequentialHeads(trunk, native_config(trunk)).to(dtype or trunk.dtype)
    found = {_our_name(name): tensor for name, tensor in theirs.layers.state_dict().items()}
    wanted = heads.modules_by_depth.state_dict()
    wrong = sorted(found.keys() ^ wanted.keys())
    wrong += [name for name in found.keys() & wanted.keys() if found[name].shape != wanted[name].shape]
    if wrong:
        raise CheckpointError(
            f"{trunk.name}: native MTP layers that are not built as its last layer: {', '.join(wrong)}"
        )
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(found[name])
    return heads.eval().requires_grad_(False)


def _refuse_misshapen(trunk: Trunk) -> None:
    """Compare the headers of layers.L+k with those of the trunk's last layer, and of the parts beside the block."""
    folder = Path(trunk.model.config.name_or_path)
    if not folder.is_dir():  # a hub name: transformers finds the files itself
        return
    headers = {name: header for file in weight_files(folder) for name, header in read_headers(file).items()}
    size, last = trunk.hidden_size, trunk.config.num_hidden_layers - 1
    parts: dict[str, tuple[int, ...]] = {"eh_proj.weight": (size, 2 * size)}
    parts |= {f"{name}.weight": (size,) for name in ("enorm", "hnorm", "shared_head.norm")}
    wrong = []
    for name, (shape, _) in headers.items():
        found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", name)
        if found and int(found[1]) > last:
            twin = headers.get(f"model.layers.{last}.{found[2]}")
            expected = parts.get(found[2]) or (twin.shape if twin else shape)
            wrong += [f"{name} {list(shape)} instead of {list(expected)}"] if shape != expected else []
    if wrong:
        raise CheckpointError(f"{trunk.name}: {len(wrong)} misshapen native MTP tensors: {', '.join(wrong)}. {_GO_ON}")


def _our_name(name: str) -> str:
    index, part, rest = name.split(".", 2)
    return f"{index}.{_PARTS.get(part, part)}.{rest}"
