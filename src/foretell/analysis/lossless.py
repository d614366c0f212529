"""Greedy equality: every depth must give the token ids of depth 0, and a difference is explained or called a bug.

Two passes of different width may round differently, so where the trunk's two best tokens nearly tie, either may win.
That is the only excuse, and it is checked: a plain pass over the text before it gives the state anew; its logits are
projected from it in fp32. Both tokens must lie within ``near_tie_gap`` of the best one: 1e-4 in fp32; in a 16-bit type
0.05, or two steps of that type at the best logit where that is more (bf16 logits from 8 to 16 lie 1/16 apart).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from foretell.analysis.texts import BenchPrompt, first_difference
from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk

NEAR_TIE_GAP_FP32 = 1e-4
NEAR_TIE_GAP_HALF = 0.05
"""Logit gaps below which two tokens nearly tie, in fp32 (and wider) and, at the least, in 16-bit types."""
_NUM_STEPS = 2
"""Steps (ulp) of a 16-bit type that are excused: either logit may have been rounded up or down."""
_NUM_ROWS = 8192
"""Rows of the output head that are widened at a time."""


@dataclass(frozen=True)
class Difference:
    """Where a text first leaves depth 0's. ``position`` counts output tokens from 0; a token is None past a text's end.

    ``gap``: best minus second-best logit of depth 0 there, projected in fp32; ``limit``: smaller gaps are excused.
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
    limit: float
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
    drafter: DrafterConfig | None = None,
) -> EqualityReport:
    """Decode every prompt at depth 0 and at each of ``depths``. ``on_progress(num_done, num_total)`` counts prompts.

    ``drafter`` as for Engine.
    """
    report = EqualityReport(list(depths))
    params = SamplingParams(max_tokens=max_tokens)
    engine = Engine(model, drafter=drafter)
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


def near_tie_gap(dtype: torch.dtype, best_logit: float) -> float:
    """The gap below which a difference is excused for this type, where ``best_logit`` is the largest logit."""
    if dtype in (torch.float32, torch.float64):
        return NEAR_TIE_GAP_FP32
    step = torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(abs(best_logit))) if best_logit else 0.0
    return max(NEAR_TIE_GAP_HALF, _NUM_STEPS * step)


@torch.inference_mode()
def next_logits(trunk: Trunk, token_ids: list[int]) -> torch.Tensor:
    """Logits (V,) after ``token_ids`` by one plain pass without a cache, projected in float32 or wider.

    In bf16 the projection alone would round two tokens onto one value, or a step apart, and hide how near they are.
    """
    ids_BT = torch.tensor([token_ids], device=trunk.device)
    states = trunk.text_states(ids_BT, torch.zeros_like(ids_BT))
    state_D, head = states.post_BTD[0, -1], trunk.output_head
    wide = torch.promote_types(state_D.dtype, torch.float32)
    logits_V = torch.cat([rows.to(wide) @ state_D.to(wide) for rows in head.weight.split(_NUM_ROWS)])
    return trunk.scale_logits(logits_V if head.bias is None else logits_V + head.bias)


def explain(
    trunk: Trunk, prompt: BenchPrompt, expected: list[int], got: list[int], prompt_index: int, depth: int
) -> Difference:
    """Judge the first difference between depth 0's output and another's; the two must differ."""
    position = first_difference(expected, got)
    assert position is not None
    logits_V = next_logits(trunk, prompt.token_ids + expected[:position])
    best, second = logits_V.topk(2).values.tolist()
    limit = near_tie_gap(trunk.dtype, best)
    tokens = [ids[position] if position < len(ids) else None for ids in (expected, got)]
    # Both tokens must be near the top: a third one is not excused by a tie between two others.
    excused = all(t is not None and best - logits_V[t].item() < limit for t in tokens)
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
        limit=limit,
        verdict="near tie" if excused else "BUG",
    )


def _text(trunk: Trunk, token_id: int | None) -> str:
    if token_id is None:
        return "(end)"
    return str(token_id) if trunk.tokenizer is None else trunk.tokenizer.decode([token_id])
