"""Contenders: everything that can draft for one trunk, side by side. They share the trunk's weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretell.checkpoints.adapter import load_adapter
from foretell.decoding.drafter_config import DrafterConfig
from foretell.errors import UsageError
from foretell.models.heads import Heads
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.reporting.files import short_names

PLAIN = "plain"
"""Name of depth 0, which every comparison has."""


@dataclass(frozen=True)
class Contender:
    """A way to draft. ``source``: the folder of the heads, or the draft model's name; "" where nothing is loaded.

    ``parameters``: of heads and draft model, beside the trunk's.
    """

    name: str
    label: str
    model: MTPModel
    drafter: DrafterConfig
    source: str = ""
    parameters: int = 0

    def max_depth(self) -> int | None:
        """Deepest draft there can be; None = any."""
        return self.drafter.max_depth(self.model)


def contenders_of(
    trunk: Trunk,
    heads: Iterable[tuple[str, Heads]] = (),
    draft_model: MTPModel | None = None,
    look_up: bool = True,
    stacks: bool = True,
) -> list[Contender]:
    """One contender for each of ``heads`` (source, heads), the draft model, n-gram look-up, and look-up before each.

    Names are those of the systems, with the source where two share one. Raises UsageError for a draft model of another
    vocabulary.
    """
    bare = MTPModel(trunk).eval()
    single = [
        Contender(_kind(h), _label(h), MTPModel(trunk, h).eval(), DrafterConfig("heads"), source, _num_parameters(h))
        for source, h in heads
    ]
    if draft_model is not None:
        config = DrafterConfig("model", draft_model)
        config.check(bare)
        name, size = draft_model.trunk.name, _num_parameters(draft_model)
        single.append(Contender("draft-model", "separate draft model", bare, config, name, size))
    stacked = [_stack(contender) for contender in single] if look_up and stacks else []
    alone = [Contender("ngram", "n-gram look-up", bare, DrafterConfig("ngram"))] if look_up else []
    return _with_own_names([*single, *alone, *stacked])


def load_heads(trunk: Trunk, adapters: Sequence[str]) -> list[tuple[str, Heads]]:
    """Every adapter's heads on ``trunk``, with its folder. Raises UsageError where one is named twice."""
    twice = [name for name in adapters if sum(Path(name).resolve() == Path(other).resolve() for other in adapters) > 1]
    if twice:
        raise UsageError(f"{twice[0]} is given twice; name each adapter once")
    return [(name, load_adapter(trunk, name)) for name in adapters]


def _stack(contender: Contender) -> Contender:
    """Look-up first, and the contender where that finds nothing."""
    inner = contender.drafter
    drafter = DrafterConfig("ngram+model" if inner.kind == "model" else "ngram+heads", inner.draft_model)
    return replace(contender, name=f"ngram+{contender.name}", label=f"look-up + {contender.label}", drafter=drafter)


def _kind(heads: Heads) -> str:
    config = heads.config
    if config.kind != "sequential":
        return config.kind
    return "sequential" if config.unrolled else "sequential-distinct"


def _label(heads: Heads) -> str:
    config = heads.config
    if config.kind == "sequential":
        return "sequential, one module" if config.unrolled else f"sequential, {config.num_modules} modules"
    return f"{config.kind}, {config.num_modules} heads"


def _num_parameters(module: Heads | MTPModel) -> int:
    return sum(p.numel() for p in module.parameters())


def _with_own_names(contenders: list[Contender]) -> list[Contender]:
    """Those that share a name get so much of their folder's behind it that no two are alike."""
    found = list(contenders)
    for name in dict.fromkeys(contender.name for contender in contenders):
        alike = [index for index, contender in enumerate(contenders) if contender.name == name]
        folders = short_names([Path(contenders[index].source) for index in alike])
        if len(alike) > 1:
            for index, folder in zip(alike, folders, strict=True):
                contender = contenders[index]
                found[index] = replace(contender, name=f"{name}:{folder}", label=f"{contender.label} ({folder})")
    return found
