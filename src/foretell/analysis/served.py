"""Probe against served acceptance: what the heads should give on these prompts, and which stage disagrees first.

Stages, in the order in which they are asked: the template (do training and serving encode a prompt alike), the state
that the heads read, the order of eh_proj's halves, the data (is what the heads were probed on like what is served), and
last the serving engine itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from foretell.analysis.measured_texts import reasons_against
from foretell.analysis.rounds import convention, right_guesses, walk
from foretell.analysis.texts import BenchPrompt
from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import UsageError
from foretell.models.heads import Heads
from foretell.models.mtp_model import MTPModel
from foretell.training.documents import Document
from foretell.types import AcceptanceStats

TOLERANCE = 0.02
"""Two figures of acceptance that lie this near agree."""

StageName = Literal["template", "state convention", "order of halves", "data", "engine"]


@dataclass(frozen=True)
class Stage:
    """``acceptance``: unconditional, by depth, as this stage has it; [] where there is nothing to count.

    ``difference``: the largest one from what it is compared with. ``agrees`` None: not checked. ``note`` says what was
    compared.
    """

    name: StageName
    acceptance: list[float]
    difference: float | None
    agrees: bool | None
    note: str


@dataclass
class ServedReport:
    """``predicted``: acceptance by depth, walked over the trunk's own answers. ``served``: what was measured.
    ``warnings``: why these prompts and answers mean little (`meaning`).
    """

    predicted: list[float]
    served: list[float]
    num_rounds: int
    stages: list[Stage] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def difference(self) -> float:
        """The largest over the depths."""
        return difference(self.predicted, self.served)

    @property
    def first(self) -> Stage | None:
        """The first stage that disagrees; None where all agree."""
        return next((stage for stage in self.stages if stage.agrees is False), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        first = self.first
        return {**asdict(self), "difference": self.difference, "first_disagreement": first and first.name}


def difference(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference over the depths that both have. Raises UsageError where there is none."""
    if not one or not other:
        raise UsageError("no depth to compare: no round drafted anything; give more prompts or longer answers")
    return max(abs(a - b) for a, b in zip(one, other, strict=False))


def answers(model: MTPModel, prompts: Sequence[BenchPrompt], max_tokens: int, batch: int = 8) -> list[list[int]]:
    """The trunk's greedy text after every prompt."""
    engine = Engine(MTPModel(model.trunk), max_batch=batch)
    done = engine.generate([prompt.token_ids for prompt in prompts], SamplingParams(max_tokens=max_tokens))
    return [completion.token_ids for completion in done]


def serve(model: MTPModel, prompts: Sequence[BenchPrompt], max_tokens: int, depth: int) -> list[float]:
    """Acceptance by depth as Foretell's own engine counts it."""
    params = SamplingParams(max_tokens=max_tokens)
    done = Engine(model, max_batch=8).generate([prompt.token_ids for prompt in prompts], params, depth)
    return AcceptanceStats.total(completion.stats for completion in done).acceptance_by_depth


def predict(
    heads: Heads, prompts: Sequence[BenchPrompt], texts: Sequence[list[int]], max_tokens: int, depth: int
) -> AcceptanceStats:
    """Counts of all rounds that decode ``texts``, without decoding them (see `rounds`)."""
    return AcceptanceStats.total(
        walk(right_guesses(heads, prompt.token_ids + text, depth), len(prompt.token_ids), max_tokens)
        for prompt, text in zip(prompts, texts, strict=True)
    )


def predict_documents(heads: Heads, documents: Sequence[Document], depth: int) -> list[float]:
    """Acceptance by depth of walking over the targets of each document, which anybody may have written."""
    stats = AcceptanceStats()
    for document in documents:
        if True in document.supervised:
            num_prompt = max(1, document.supervised.index(True))
            right_KT = right_guesses(heads, document.token_ids, depth)
            stats.add(walk(right_KT, num_prompt, len(document.token_ids)))
    return stats.acceptance_by_depth


def compare_served(
    heads: Heads,
    prompts: Sequence[BenchPrompt],
    texts: Sequence[list[int]],
    max_tokens: int,
    served: Sequence[float],
    template: Stage,
    probed: Sequence[float] = (),
    on_stage: Callable[[str], None] | None = None,
) -> ServedReport:
    """All stages. ``served``: acceptance by depth, unconditional, as far as it was served. ``template``: see
    `check_template`. ``probed``: what walking over other data gives, by depth (`predict_documents`).
    """
    depth = len(served)
    if not depth:
        raise UsageError("no depth to compare: nothing was served; give a share for each depth")

    def predicted(name: str) -> AcceptanceStats:
        if on_stage:
            on_stage(name)
        return predict(heads, prompts, texts, max_tokens, depth)

    stats = predicted("heads as they are")
    own = stats.acceptance_by_depth
    against = reasons_against(heads.trunk, [prompt.token_ids for prompt in prompts], texts)
    report = ServedReport(own, list(served), stats.num_drafts, [template], against)
    config = heads.config
    sources = {"post": "pre", "pre": "post"}
    variants: list[tuple[StageName, str, dict[str, Any]]] = []
    if config.hidden_source in sources:
        other = sources[config.hidden_source]
        side = {"pre": "before", "post": "after"}[other]
        variants.append(("state convention", f"the state {side} the final norm", {"hidden_source": other}))
    if config.kind == "sequential":
        other = {"embedding_first": "hidden_first", "hidden_first": "embedding_first"}[config.concat]
        variants.append(("order of halves", f"{other.replace('_', ' ')}", {"concat": other}))
    for name, words, changed in variants:
        with convention(heads, **changed):
            found = predicted(words).acceptance_by_depth
        report.stages.append(_variant(name, words, own, found, served, stats.num_drafts))
    report.stages.append(_data(own, probed))
    gap = difference(own, served)
    report.stages.append(
        Stage("engine", list(served), gap, gap <= TOLERANCE, "what was served, against what these heads give")
    )
    return report


def _variant(
    name: StageName,
    words: str,
    own: Sequence[float],
    found: Sequence[float],
    served: Sequence[float],
    num_rounds: int,
) -> Stage:
    """A convention is wrong where the other one is better, or is what was served and this one is not.

    Better: at depth 1 by more than chance explains of so many rounds (three standard errors, and the tolerance).
    """
    noise = 3 * math.sqrt((own[0] * (1 - own[0]) + found[0] * (1 - found[0])) / num_rounds) if own and found else 0.0
    better = bool(own and found) and found[0] - own[0] > TOLERANCE + noise
    serves = difference(found, served) <= TOLERANCE < difference(own, served)
    note = f"with {words} instead"
    alike = difference(found, own) <= TOLERANCE
    if better:
        note += ", which is right more often: the heads were trained for that"
    elif serves:
        note += ", which is what was served: the engine reads them that way"
    elif alike:
        note += ", which fits as well: not decided here"
    return Stage(name, list(found), None, False if better or serves else None if alike else True, note)


def _data(own: Sequence[float], probed: Sequence[float]) -> Stage:
    if not probed:
        return Stage("data", [], None, None, "no --data to compare with")
    gap = difference(own, probed)
    words = "is" if gap <= TOLERANCE else "is not"
    return Stage("data", list(probed), gap, gap <= TOLERANCE, f"the probed text {words} like what is served")


def check_template(pairs: Sequence[tuple[list[int], list[int]]]) -> Stage:
    """``pairs``: a prompt as training encodes it, and as serving does; of as many prompts as can be compared."""
    unlike = [(a, b) for a, b in pairs if a != b]
    if not pairs:
        return Stage("template", [], None, None, "no prompt is encoded in two ways")
    note = f"{len(pairs) - len(unlike)} of {len(pairs)} prompts are encoded alike by training and serving"
    if unlike:
        ours, theirs = unlike[0]
        place = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(map(len, unlike[0]))
        )
        note += f"; the first parts at token {place} ({ours[place : place + 3]} and {theirs[place : place + 3]})"
    return Stage("template", [], None, not unlike, note)
