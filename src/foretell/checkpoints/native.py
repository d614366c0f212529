"""Native MTP heads: how many a trunk's config claims, and which tensors in its files are theirs. No torch import."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

LOST = (
    "no MTP tensor is in its files: they were lost when it was saved, as the usual load and save does; "
    "to get them back, take the original checkpoint: foretell convert graft MODEL OUT --original ORIGINAL"
)
"""What became of the heads where a config claims them and no file holds them, and what to do."""

_MISNAMED = (
    "no MTP tensor is in its files under a name that anyone reads; {}: rename them as the original has them, or put "
    "its heads back: foretell convert graft MODEL OUT --original ORIGINAL"
)

DEPTHS_KEY = "foretell_num_depths"
"""Setting of exports: the depth that a module which serves every depth was trained for."""

CLAIMS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
_PREFIX = re.compile(r"(?:model\.|language_model\.)*(?:mtp\b|mtp_|nextn\b|extra_heads\.|medusa_head\.\d).*")
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d{1,9})\.")
_ANYWHERE = re.compile(
    r"(?:^|\.)(?:(?:mtp\w*|nextn\w*|extra_heads|medusa_head)\.|(?:layers|h|blocks)\.(?P<layer>\d{1,9})\.)"
)
"""Where a name begins to speak of heads, or of a layer, whatever stands before it."""
_TOWER = re.compile(r"(?:^|\.)(?:vis|audio|image|speech|vit|encoder)\w*\.")
_SHOWN = 3
_GGUF = re.compile(r"blk\.\d+\.nextn\.")


class NativeClaim(NamedTuple):
    """MTP layers announced by the config under ``key``; (0, "") where none are."""

    num_layers: int
    key: str

    def __str__(self) -> str:
        return f"config claims {self.num_layers} native MTP layer{'s' * (self.num_layers != 1)}"


def claimed_heads(config: Mapping[str, Any]) -> NativeClaim:
    """What a ``config.json`` (or its ``text_config``) says of native MTP layers."""
    for values in (config, config.get("text_config")):
        for key in CLAIMS:
            count = values.get(key) if isinstance(values, Mapping) else None
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                return NativeClaim(count, key)
    return NativeClaim(0, "")


def native_tensors(names: Iterable[str], num_layers: int | None) -> list[str]:
    """Names of native heads: ``mtp.``, ``model.mtp``, layers behind the trunk's last, GGUF ``nextn``, ``medusa_head``,
    ``extra_heads``.
    """
    found = []
    for name in names:
        layer = _LAYER.match(name)
        behind = layer is not None and num_layers is not None and int(layer[1]) >= num_layers
        if behind or _PREFIX.fullmatch(name) or _GGUF.match(name):
            found.append(name)
    return sorted(found)


def misnamed_tensors(names: Iterable[str], num_layers: int) -> list[str]:
    """Of ``names``, in which no heads are known, those that speak of heads under a prefix that no layout has."""
    found = []
    for name in names:
        at = _ANYWHERE.search(name)
        if at and (at["layer"] is None or int(at["layer"]) >= num_layers) and not _TOWER.search(name):
            found.append(name)
    return sorted(found)


def misnamed(found: list[str]) -> str:
    """``misnamed_tensors`` in words."""
    shown = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
    return f"{len(found)} tensor{'s' * (len(found) != 1)} under other names: {shown}"


def why_lost(names: Iterable[str], num_layers: int) -> str:
    """What became of heads that a config claims, where ``names``, all that is in the files, are no heads."""
    found = misnamed_tensors(names, num_layers)
    return _MISNAMED.format(misnamed(found)) if found else LOST


def without_claims(config: Any) -> Any:
    """``config`` (a transformers config, changed in place) with every claim of native MTP layers set to 0."""
    for part in (config, getattr(config, "text_config", None)):
        for key in CLAIMS:
            if part is not None and getattr(part, key, None):
                setattr(part, key, 0)
    return config
