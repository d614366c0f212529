"""How a checkpoint is quantised: what its config says, and how its tensors are stored. Headers alone are read."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from foretell.checkpoints.files import TensorHeader

_KEYS = ("quantization_config", "compression_config")
_EXEMPT = ("modules_to_not_convert", "llm_int8_skip_modules", "ignore", "ignored_layers", "exclude_modules", "exclude")
_COMPRESSED = "compressed-tensors"
_USUAL_EXEMPT = {_COMPRESSED: "ignore", "modelopt": "ignore", "bitsandbytes": "llm_int8_skip_modules"}
_ON_LOAD = ("bitsandbytes", "torchao", "quanto", "hqq", "eetq", "fbgemm_fp8")
"""Methods that also quantise plain weights when they are loaded."""
_BITS = ("bits", "w_bit", "num_bits", "weight_bits", "wbits")
_BITS_BY_NAME = {"fp8": 8, "float8": 8, "int8": 8, "nvfp4": 4, "mxfp4": 4, "fp4": 4, "int4": 4, "w4a16": 4, "w8a8": 8}
_SMALL_TYPES = ("F8_", "I8", "U8", "F6_", "F4")
_PACKED = ("qweight", "weight_packed", "weight_qdata", "_weight_qdata")
_SCALES = ("weight_scale_inv", "weight_scale", "weight_scale_2", "SCB", "scales", "weight.absmax")
_LAYER = re.compile(r"(?:.*\.)?layers\.\d+\.(?P<rest>.+)")
_SHOWN = 3
_WHOLE_NAMES = ("fp8", "fbgemm_fp8", "mxfp4")
"""Methods whose exceptions vLLM compares with a module's whole name; transformers takes them for beginnings too."""


@dataclass(frozen=True)
class Quantisation:
    """``method`` and ``bits`` of a weight, None where they are not said; ``exempt``: modules that the config leaves
    out, under the setting ``exempt_key``. ``heads``: how the matrices in the heads' layers are stored, None without
    heads.
    """

    method: str
    bits: int | None
    exempt: list[str]
    exempt_key: str
    heads: Literal["quantised", "plain", "mixed"] | None = None


def quantisation_of(config: Mapping[str, Any]) -> Quantisation | None:
    """What ``config.json``, or its ``text_config``, says; None where it says nothing."""
    settings = _settings(config)
    if not settings:
        return None
    method = str(settings.get("quant_method") or settings.get("quant_algo") or settings.get("format") or "unnamed")
    used = [key for key in _EXEMPT if isinstance(settings.get(key), list)]
    exempt = [str(entry) for key in used for entry in settings[key]]
    usual = _USUAL_EXEMPT.get(method, "modules_to_not_convert")
    return Quantisation(method, _bits(settings, method), exempt, used[0] if used else usual)


def quantised_matrices(headers: Mapping[str, TensorHeader]) -> dict[str, bool]:
    """Module -> whether its matrix is stored in fewer bits, or packed. Norms and biases are left out."""
    found = {}
    for name, header in headers.items():
        module, _, kind = name.rpartition(".")
        if kind in _PACKED:
            found[module] = True
        elif kind == "weight" and len(header.shape) > 1:
            is_small = header.dtype.startswith(_SMALL_TYPES)
            found[module] = is_small or any(f"{module}.{scale}" in headers for scale in _SCALES)
    return found


def stored_as(
    trunk: Mapping[str, bool], heads: Mapping[str, bool], head_layers: Mapping[str, str]
) -> Literal["quantised", "plain", "mixed"] | None:
    """One word for how the matrices in the heads' layers are stored; None where there are none.

    Those that the trunk never quantises, routers and the like, do not count.
    """
    kinds = _kinds(trunk)
    found = {heads[module] for module, rest in head_layers.items() if kinds.get(_kind(rest)) != {False}}
    return None if not head_layers else "mixed" if len(found) == 2 else "quantised" if True in found else "plain"


def matrices_in(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Modules that hold a matrix, from shapes by stored name; experts in one tensor are one module."""
    return list(dict.fromkeys(name.rpartition(".")[0] for name, shape in shapes.items() if len(shape) > 1))


def exceptions(method: str, modules: Iterable[str]) -> list[str]:
    """Entries with which a config of this method leaves out ``modules``, all those of the heads that hold a matrix.

    Whole names where the method compares those. Others get the layers around them: they would not find the parts of
    matrices that an engine joins.
    """
    if method in (*_WHOLE_NAMES, _COMPRESSED):
        return list(modules)
    return list(dict.fromkeys(re.sub(r"^(.*?\.\d+)\..*", r"\1", module) for module in modules))


def is_exempt(module: str, entries: Iterable[str], method: str) -> bool:
    """True where an entry of the config leaves ``module`` out, as the engines read it for this method.

    compressed-tensors compares whole names, or matches ``re:`` expressions. fp8 compares whole names; of experts one
    name speaks for all of its layer. Other methods take runs of a name's components too, and asterisks (modelopt).
    """
    return any(_names(entry, module, method) for entry in entries)


def _names(entry: str, module: str, method: str) -> bool:
    if method in _WHOLE_NAMES:
        experts, found, _ = module.partition(".experts.")
        return entry == module or (bool(found) and f"{experts}.experts" in entry)
    if entry.startswith("re:"):
        try:
            return re.match(entry[3:], module) is not None
        except re.error:
            return False
    if method == _COMPRESSED:
        return entry == module
    if "*" in entry:
        return fnmatch.fnmatchcase(module, entry) or fnmatch.fnmatchcase(module, f"{entry}.*")
    return f".{entry}." in f".{module}."


def quantisation_problems(
    said: Quantisation | None, trunk: Mapping[str, bool], heads: Mapping[str, bool], head_layers: Mapping[str, str]
) -> list[str]:
    """Where config and tensors disagree. ``head_layers``: matrix in a head's decoder layer -> its name in that layer.

    A head's matrix is held against the trunk's of the same name, as routers and the like are never quantised.
    """
    stored = [module for module, small in {**trunk, **heads}.items() if small]
    if said is None:
        if stored:
            return [f"{len(stored)} matrices are quantised ({stored[0]}, ...), but config has no quantization_config"]
        return []
    if not stored and said.method not in _ON_LOAD:
        return [f"config says {said.method}, but no matrix in the files is quantised"]
    if not stored:
        return []
    plain, small = [], []
    kinds = _kinds(trunk)
    for module, rest in head_layers.items():
        expected = kinds.get(_kind(rest), set())
        exempt = is_exempt(module, said.exempt, said.method)
        if not heads[module] and expected == {True} and not exempt:
            plain.append(module)
        elif heads[module] and exempt:
            small.append(module)
    problems = []
    if plain:
        problems.append(
            f"config says {said.method} for all layers, but {len(plain)} matrices of the heads are stored plain "
            f"({_shown(plain)}): engines read them wrongly or skip them; name them in {said.exempt_key}"
        )
    if small:
        problems.append(
            f"{said.exempt_key} leaves out {len(small)} matrices of the heads that are stored quantised "
            f"({_shown(small)}): engines read them as plain numbers"
        )
    return problems


def _kinds(modules: Mapping[str, bool]) -> dict[str, set[bool]]:
    kinds: dict[str, set[bool]] = {}
    for module, small in modules.items():
        if ".experts." in module and ".experts.0." not in module:  # thousands, all stored as the first
            continue
        if found := _LAYER.fullmatch(module):
            kinds.setdefault(_kind(found["rest"]), set()).add(small)
    return kinds


def _kind(rest: str) -> str:
    return re.sub(r"\.\d+\.", ".N.", rest)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, Mapping) else {}):
        for key in _KEYS:
            settings: Any = part.get(key)
            if isinstance(settings, Mapping) and settings:
                return settings
    return {}


def _bits(settings: Mapping[str, Any], method: str) -> int | None:
    for part in _parts(settings):
        for key in _BITS:
            value = part.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 16:
                return value
    for flag, bits in (("load_in_4bit", 4), ("load_in_8bit", 8), ("_load_in_4bit", 4), ("_load_in_8bit", 8)):
        if settings.get(flag) is True:
            return bits
    words = f"{method} {settings.get('quant_algo', '')} {settings.get('fmt', '')} {settings.get('quant_type', '')}"
    return next((bits for name, bits in _BITS_BY_NAME.items() if name in words.lower()), None)


def _parts(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The settings, and those of weights within groups (compressed-tensors)."""
    yield settings
    groups = settings.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping):
            yield group["weights"]
