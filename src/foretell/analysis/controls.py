"""Controls: drafters that know the text, through the engine that is being checked, so that its meter can fail.

Plain texts are decoded first. Then a drafter hands them to the engine token by token (right), each token one place too
early (shifted), or in another order (shuffled). What the meter has to say of each follows from the text alone
(`rounds`), and every text stays as it is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from foretell.analysis.lossless import Difference, explain
from foretell.analysis.rounds import walk
from foretell.analysis.texts import BenchPrompt
from foretell.config import SamplingParams
from foretell.decoding.blocks import BlockPool
from foretell.decoding.drafter import Drafter
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.ngram_drafter import NgramDrafter
from foretell.decoding.sequence import Sequence as Row
from foretell.models.mtp_model import MTPModel
from foretell.types import AcceptanceStats

Kind = Literal["right", "shifted", "shuffled"]
KINDS: tuple[Kind, ...] = ("right", "shifted", "shuffled")
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Control:
    """One drafter. ``acceptance``: of first drafted tokens, as the engine counts it, and ``expected`` from the text;
    None where no round drafts. Texts that part from plain decoding's are among ``differences`` and not counted.
    """

    kind: Kind
    acceptance: float | None
    expected: float | None
    num_texts: int
    differences: list[Difference] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """The meter says what is true, and no text changes but at near ties. Nothing drafted is no pass."""
        if self.acceptance is None or self.expected is None:
            return False
        sound = all(d.verdict == "near tie" for d in self.differences)
        return sound and abs(self.acceptance - self.expected) < _TOLERANCE

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"passed": self.passed, **asdict(self)}


def check_controls(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    max_tokens: int,
    depth: int = 2,
    exact: bool = False,
    batch: int = 1,
    params: SamplingParams | None = None,
) -> list[Control]:
    """Decode every prompt plainly and with each control, ``batch`` rows at a time, greedily under the rules of
    ``params``.
    """
    params = SamplingParams(max_tokens=max_tokens) if params is None else params
    bare, ids = MTPModel(model.trunk), [prompt.token_ids for prompt in prompts]
    plain = Engine(bare, batch, exact=exact, reuse_prefixes=False).generate(ids, params)
    texts = [completion.token_ids for completion in plain]
    found = []
    for kind in KINDS:
        guesses = [_guesses(kind, text) for text in texts]
        scripts = {tuple(p): p + guess for p, guess in zip(ids, guesses, strict=True)}
        engine = Engine(bare, batch, _ScriptedConfig(scripts), exact=exact, reuse_prefixes=False)
        counted, expected, differences = AcceptanceStats(), AcceptanceStats(), []
        for index, done in enumerate(engine.generate(ids, params, depth)):
            if done.token_ids != texts[index]:
                found_there = explain(
                    model.trunk, prompts[index], texts[index], done.token_ids, index, depth, batch, exact, params
                )
                differences.append(found_there)
                continue
            counted.add(done.stats)
            right_KT = _right(len(ids[index]), texts[index], guesses[index], depth)
            expected.add(walk(right_KT, len(ids[index]), max_tokens))
        found.append(Control(kind, _first(counted), _first(expected), len(prompts), differences))
    return found


def _first(stats: AcceptanceStats) -> float | None:
    return stats.acceptance_by_depth[0] if stats.acceptance_by_depth else None


def _guesses(kind: Kind, text: list[int]) -> list[int]:
    """What is guessed at every place of the output."""
    if kind == "shifted":
        return text[1:]
    return text if kind == "right" else random.Random(0).sample(text, len(text))


def _right(num_prompt: int, text: list[int], guesses: list[int], depth: int) -> torch.Tensor:
    """(K, T): as ``rounds.right_guesses``, of a script."""
    is_right = [a == b for a, b in zip(text, guesses, strict=False)]
    right_KT = torch.zeros(depth, num_prompt + len(text), dtype=torch.bool)
    for k in range(1, depth + 1):
        for place, hit in enumerate(is_right):
            if (first := num_prompt + place - k - 1) >= 0:
                right_KT[k - 1, first] = hit
    return right_KT


class _ScriptedConfig(DrafterConfig):
    """A drafter that hands out ``scripts``: by prompt, tokens by their place in prompt and output."""

    scripts: dict[tuple[int, ...], list[int]]

    def __init__(self, scripts: dict[tuple[int, ...], list[int]]) -> None:
        super().__init__("ngram")
        object.__setattr__(self, "scripts", scripts)

    def build(self, model: MTPModel, pools: dict[str, BlockPool]) -> Drafter:
        """See DrafterConfig."""
        return _ScriptedDrafter(self.scripts)


class _ScriptedDrafter(NgramDrafter):
    def __init__(self, scripts: dict[tuple[int, ...], list[int]]) -> None:
        super().__init__()
        self._scripts = scripts

    def _guess(self, row: Row, depth: int) -> list[int]:
        script = self._scripts[tuple(row.prompt_token_ids)]
        return script[len(row) : len(row) + depth]
