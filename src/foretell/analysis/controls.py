"""Controls: drafters that know the text, through the engine that is being checked, so that its meter can fail.

Plain texts are decoded first. Then a drafter hands them to the engine token by token (right), one place too late
(shifted), or in another order (shuffled). A sound meter says 1, little, and next to nothing, and every text stays.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from foretell.analysis.lossless import Difference, explain
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
_LEAST, _MOST = 0.98, 0.5
"""First guesses accepted: at least of the right drafter, whom rounding may spoil one, and at most of a wrong one, whom
a text that repeats itself forgives some.
"""


@dataclass(frozen=True)
class Control:
    """One drafter. ``acceptance``: of first drafted tokens, None where no round had any. ``differences``: texts that
    are not plain decoding's.
    """

    kind: Kind
    acceptance: float | None
    num_texts: int
    differences: list[Difference] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """The right one is accepted, a wrong one at most half of the time, and no text changes but at near ties."""
        if self.acceptance is None or any(d.verdict != "near tie" for d in self.differences):
            return False
        return self.acceptance >= _LEAST if self.kind == "right" else self.acceptance <= _MOST

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"passed": self.passed, **asdict(self)}


def check_controls(
    model: MTPModel, prompts: Sequence[BenchPrompt], max_tokens: int, depth: int = 2, exact: bool = False
) -> list[Control]:
    """Decode every prompt plainly and with each control, one at a time."""
    params = SamplingParams(max_tokens=max_tokens)
    bare = MTPModel(model.trunk)
    plain_engine = Engine(bare, exact=exact, reuse_prefixes=False)
    texts = [plain_engine.generate([p.token_ids], params)[0].token_ids for p in prompts]
    found = []
    for kind in KINDS:
        scripted = _ScriptedConfig(kind)
        engine = Engine(bare, drafter=scripted, exact=exact, reuse_prefixes=False)
        stats, differences = AcceptanceStats(), []
        for index, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
            scripted.script[:] = prompt.token_ids + _guesses(kind, text)
            [done] = engine.generate([prompt.token_ids], params, depth)
            stats.add(done.stats)
            if done.token_ids != text:
                differences.append(explain(model.trunk, prompt, text, done.token_ids, index, depth, exact=exact))
        shares = stats.acceptance_by_depth
        found.append(Control(kind, shares[0] if shares else None, len(prompts), differences))
    return found


def _guesses(kind: Kind, text: list[int]) -> list[int]:
    """What is guessed at every place of the output."""
    if kind == "shifted":
        return text[1:]
    return text if kind == "right" else random.Random(0).sample(text, len(text))


class _ScriptedConfig(DrafterConfig):
    """A drafter that hands out ``script``: tokens by their place in prompt and output."""

    def __init__(self, kind: Kind) -> None:
        super().__init__("ngram")
        object.__setattr__(self, "script", [])

    script: list[int]

    def build(self, model: MTPModel, pools: dict[str, BlockPool]) -> Drafter:
        """See DrafterConfig."""
        return _ScriptedDrafter(self.script)


class _ScriptedDrafter(NgramDrafter):
    def __init__(self, script: list[int]) -> None:
        super().__init__()
        self._script = script

    def _guess(self, row: Row, depth: int) -> list[int]:
        return self._script[len(row) : len(row) + depth]
