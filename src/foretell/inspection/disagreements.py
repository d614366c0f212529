"""What does not fit together in a model folder: its config against its tensors, and modules against each other."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from foretell.checkpoints.families import Family
from foretell.checkpoints.files import TensorHeader
from foretell.checkpoints.head_modules import StoredModule, lacking_parts
from foretell.checkpoints.native import NativeClaim, misnamed, misnamed_tensors, why_lost
from foretell.inspection.costs import embedding_of
from foretell.inspection.engines import UNANNOUNCED

_LAYER = re.compile(r"(?:model\.|language_model\.|transformer\.|decoder\.|gpt_neox\.)*(?:layers|h|blocks)\.(\d{1,9})\.")
_COUNTS = ("hidden_size", "vocab_size", "num_experts_per_tok", "n_routed_experts", "num_experts")


def head_problems(
    claim: NativeClaim,
    family: Family | None,
    modules: Sequence[StoredModule],
    names: list[str],
    strange: list[str],
    trunk: Collection[str],
    num_layers: int,
    *,
    is_alone: bool = False,
) -> list[str]:
    """Heads by config against heads by tensors. The usual load and save drops tensors and keeps the announcement.

    ``trunk``: names of all other tensors. ``is_alone``: without their trunk, whose config would announce them.
    """
    if not names:
        return [f"{claim} ({claim.key}), but {why_lost(trunk, num_layers)}"] if claim.num_layers else []
    if family is None:
        return [f"{len(names)} tensors look like native heads, in no layout that is known ({names[0]}, ...)"]
    problems = []
    if not is_alone and (others := misnamed_tensors(trunk, num_layers)):
        problems.append(f"beside the heads {misnamed(others)}: nobody reads them")
    if not claim.num_layers and family.name not in UNANNOUNCED and not is_alone:
        problems.append(
            f"{len(names)} MTP tensors are in the files ({names[0]}, ...), but config claims no native MTP "
            f"layer: engines that ask it ({family.count_keys[0]}) do not see them"
        )
    elif claim.num_layers and claim.num_layers != len(modules):
        problems.append(f"{claim} ({claim.key}), the files hold tensors of {len(modules)}")
    for number, missing in lacking_parts(family, modules):
        problems.append(f"module {number} of the heads is incomplete: no {', '.join(missing)} in the files")
    for index, module in enumerate(modules[1:], 2):
        if odd := sorted(module.rests ^ modules[0].rests):
            problems.append(f"modules 1 and {index} of the heads differ in {len(odd)} tensors ({', '.join(odd[:3])})")
    if strange:
        problems.append(
            f"{len(strange)} tensors behind the trunk are no part of {family.name} heads ({strange[0]}, ...)"
        )
    return problems


def trunk_problems(config: Mapping[str, Any], headers: Mapping[str, TensorHeader], num_layers: int) -> list[str]:
    """The trunk's config against its tensors; ``config`` holds the settings of the language model."""
    problems = []
    for key in _COUNTS:
        value = config.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            problems.append(f"config's {key} is {value!r}; expected a positive number")
    layers = {int(found[1]) for name in headers if (found := _LAYER.match(name))}
    num_missing = num_layers - len([layer for layer in layers if layer < num_layers])
    if layers and num_missing:
        first = itertools.islice((layer for layer in range(num_layers) if layer not in layers), 5)
        shown = ", ".join(map(str, first)) + (", ..." if num_missing > 5 else "")
        problems.append(f"config says {num_layers} layers, but the files hold no tensor of {num_missing} ({shown})")
    name = embedding_of(headers)
    wanted = (config.get("vocab_size"), config.get("hidden_size"))
    is_plain = name is not None and headers[name].dtype in ("F32", "F16", "BF16")
    if name and is_plain and all(isinstance(size, int) for size in wanted) and headers[name].shape != wanted:
        problems.append(f"{name} is {list(headers[name].shape)}, config says vocab_size, hidden_size {list(wanted)}")
    return problems
