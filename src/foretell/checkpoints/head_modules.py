"""Tensors of native heads, module by module and part by part. No torch import."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from foretell.checkpoints.families import LAYERS, Family

COPIES = ("embedding", "output")
"""Parts that repeat the trunk's, but where a family has output matrices of its own."""


def copies_of(family: Family) -> tuple[str, ...]:
    """Parts that this family's modules repeat of the trunk's."""
    return tuple(part for part in COPIES if part != "output" or not family.conventions.get("own_output"))


@dataclass
class StoredModule:
    """``parts``: stored names by part. ``rests``: names within its layers, those of a second one behind ``then.``."""

    parts: dict[str, list[str]] = field(default_factory=dict)
    rests: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """Every tensor of the module."""
        return [name for names in self.parts.values() for name in names]


@dataclass(frozen=True)
class HeadLayout:
    """Where the heads' tensors belong; ``strange``: those that belong nowhere."""

    family: Family | None
    modules: list[StoredModule]
    strange: list[str]

    @classmethod
    def of(cls, family: Family | None, names: list[str], num_layers: int) -> HeadLayout:
        """Sort ``names``; without a family none of them belongs anywhere."""
        return cls(family, *(stored_modules(family, names, num_layers) if family else ([], names)))

    def parts(self, *wanted: str) -> list[str]:
        """Tensors of these parts, of all modules."""
        return [name for module in self.modules for part in wanted for name in module.parts.get(part, [])]

    @property
    def own_outputs(self) -> list[str]:
        """Output matrices that are the modules' own, not copies."""
        if self.family is None:
            return []
        if self.family.name == "medusa":
            return [name for name in self.parts("layer") if re.fullmatch(r".*\d+\.\d+\.weight", name)]
        return self.parts("output") if self.family.conventions.get("own_output") else []


def stored_modules(family: Family, names: Iterable[str], num_layers: int) -> tuple[list[StoredModule], list[str]]:
    """Modules in order, and the names that belong to none.

    What stands once for all modules, as ``mtp.fc`` does, counts with the first.
    """
    found: dict[int, StoredModule] = {}
    strange = []
    for name in names:
        place = family.place(name, num_layers)
        if place is None:
            strange.append(name)
            continue
        module = found.setdefault(place.module, StoredModule())
        module.parts.setdefault(place.part, []).append(name)
        if place.part in LAYERS:
            module.rests.add(place.rest if place.part == "layer" else f"{place.part}.{place.rest}")
    return [found[index] for index in sorted(found)], strange


def missing_parts(family: Family, module: StoredModule) -> list[str]:
    """Parts that every module of the family has and this one lacks."""
    return [part for part in family.parts if part not in copies_of(family) and part not in module.parts]


def lacking_parts(family: Family, modules: Sequence[StoredModule]) -> list[tuple[int, list[str]]]:
    """(module, from 1, and the parts it lacks) of those that are not whole; what is stored once is the first one's."""
    shared = {part for part, prefix in family.parts.items() if "{" not in prefix}
    found = []
    for number, module in enumerate(modules, start=1):
        parts = [part for part in missing_parts(family, module) if number == 1 or part not in shared]
        if parts:
            found.append((number, parts))
    return found
