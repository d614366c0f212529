"""Draft heads of other kinds than MTP that lie in a folder of their own: what they are, and who serves them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from foretell.checkpoints.families import ENGINES


class Drafter(NamedTuple):
    """``name`` for the reader; ``engines``: what each of ``ENGINES`` does with it."""

    name: str
    engines: dict[str, str]


_KINDS = (
    (
        r"d2t|t2d|midlayer\..+",
        "an EAGLE-3 draft head: it reads states of three layers, which MTP heads do not",
        ("cannot read it", "drafts with it (method eagle3)", "drafts with it (EAGLE3)", "drafts with it, converted"),
    ),
    (
        r"(?:pre|post)_projection\.weight",
        "a Gemma 4 assistant: it reads the trunk's keys and values",
        (
            "drafts with it (assistant_model)",
            "drafts with it (method mtp)",
            "drafts with it",
            "drafts with it, converted",
        ),
    ),
    (
        r"fc\.(?:weight|bias)",
        "an EAGLE draft head: a layer without norms in front",
        ("cannot read it", "drafts with it (method eagle)", "drafts with it (EAGLE)", "cannot convert it"),
    ),
)
"""A tensor's name that gives the kind away, the kind, and what engines do. Sources: as for the table of families."""


def drafter_of(names: Collection[str]) -> Drafter | None:
    """The kind of draft head that has these tensors; None where it is none of the known ones."""
    for pattern, name, engines in _KINDS:
        if any(re.fullmatch(pattern, tensor) for tensor in names):
            return Drafter(name, dict(zip(ENGINES, engines, strict=True)))
    return None
