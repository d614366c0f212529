"""Greedy equality: every depth must give the token ids of depth 0, and a difference is explained or called a bug.

Two passes of different width may round differently, so where the trunk's two best tokens nearly tie, either may win.
That is the only excuse, and it is checked: logits are computed anew, by a plain pass over the text before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from foretell.analysis.texts import BenchPrompt, first_difference
from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk

NEAR_TIE_GAP_FP32 = 1e-4
NEAR_TIE_GAP_HALF = 0.05
"""Logit gaps below which two tokens nearly tie, in fp32 (and wider) and in 16-bit types."""


@dataclass(frozen=True)
class Difference:
    """Where a text first leaves depth 0's. ``position`` counts output tokens from 0; a token is None past a text's end.

    ``gap``: best minus second-best logit of depth 0 there.
    """

    prompt: int
    domain: str
    depth: int
    position: int
    expected_token: int | None
    got_token: int | None
    expected_text: str
    got_text: str
    gap: float
    verdict: Literal["near tie", "BUG"]


@dataclass
class EqualityReport:
    """``num_texts`` counts (prompt, depth) pairs compared."""

    depths: list[int]
    num_prompts: int = 0
    num_texts: int = 0
    num_tokens: int = 0
    num_accepted_tokens: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True where every difference is a near tie."""
        return all(d.verdict == "near tie" for d in self.differences)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"passed": self.passed, **asdict(self)}


def check_greedy_equality(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    depths: Sequence[int],
    max_tokens: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> EqualityReport:
    """Decode every prompt at depth 0 and at each of ``depths``. ``on_progress(num_done, num_total)`` counts prompts."""
    report = EqualityReport(list(depths))
    params = SamplingParams(max_tokens=max_tokens)
    engine = Engine(model)
    for index, prompt in enumerate(prompts):
        [plain] = engine.generate([prompt.token_ids], params, depth=0)
        report.num_prompts += 1
        report.num_tokens += len(plain.token_ids)
        for depth in depths:
            [done] = engine.generate([prompt.token_ids], params, depth=depth)
            report.num_texts += 1
            report.num_accepted_tokens += done.stats.num_accepted_tokens
            position = first_difference(plain.token_ids, done.token_ids)
            if position is not None:
                report.differences.append(
                    explain(model.trunk, prompt, plain.token_ids, done.token_ids, prompt_index=index, depth=depth)
                )
        if on_progress:
            on_progress(index + 1, len(prompts))
    return report


def near_tie_gap(dtype: torch.dtype) -> float:
    """The gap below which a difference is excused for this type."""
    return NEAR_TIE_GAP_FP32 if dtype in (torch.float32, torch.float64) else NEAR_TIE_GAP_HALF


@torch.inference_mode()
def next_logits(trunk: Trunk, token_ids: list[int]) -> torch.Tensor:
    """Logits (V,) after ``token_ids`` by one plain pass without a cache, in float32 or wider."""
    ids_BT = torch.tensor([token_ids], device=trunk.device)
    states = trunk.text_states(ids_BT, torch.zeros_like(ids_BT))
    logits_V = trunk.project(states.post_BTD[0, -1])
    return logits_V if logits_V.dtype == torch.float64 else logits_V.float()


def explain(
    trunk: Trunk, prompt: BenchPrompt, expected: list[int], got: list[int], prompt_index: int, depth: int
) -> Difference:
    """Judge the first difference between depth 0's output and another's; the two must differ."""
    position = first_difference(expected, got)
    assert position is not None
    logits_V = next_logits(trunk, prompt.token_ids + expected[:position])
    best, second = logits_V.topk(2).values.tolist()
    tokens = [ids[position] if position < len(ids) else None for ids in (expected, got)]
    # Both tokens must be near the top: a third one is not excused by a tie between two others.
    excused = all(t is not None and best - logits_V[t].item() < near_tie_gap(trunk.dtype) for t in tokens)
    return Difference(
        prompt=prompt_index,
        domain=prompt.domain,
        depth=depth,
        position=position,
        expected_token=tokens[0],
        got_token=tokens[1],
        expected_text=_text(trunk, tokens[0]),
        got_text=_text(trunk, tokens[1]),
        gap=best - second,
        verdict="near tie" if excused else "BUG",
    )


def _text(trunk: Trunk, token_id: int | None) -> str:
    if token_id is None:
        return "(end)"
    return str(token_id) if trunk.tokenizer is None else trunk.tokenizer.decode([token_id])
