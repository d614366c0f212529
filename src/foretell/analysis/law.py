"""Sampling law: a built-in model whose next-token distribution is known, sampled through the engine and counted.

The expected distribution is worked out here in plain Python, apart from the sampling code that is being tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from foretell.config import DrafterKind, HeadsConfig, SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.models.sequential import SequentialHeads
from foretell.models.trunk import Trunk

TRUNK_PROBS = (0.50, 0.30, 0.15, 0.05)
HEAD_PROBS = (0.40, 0.10, 0.30, 0.20)
"""Laws of the four tokens for the trunk (p) and for the drafts (q), the same at every position."""

LIMIT_AT_20000 = 0.02
"""Total variation allowed at 20,000 samples, about four times its noise; it grows as samples get fewer."""

SETTINGS: tuple[dict[str, float], ...] = (
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 1.0, "top_p": 0.85},
    {"temperature": 1.0, "top_k": 3, "top_p": 0.83},
    {"temperature": 1.0, "min_p": 0.2},
)

_VOCAB_SIZE = 8
_TOKENS_PER_TEXT = 26


@dataclass(frozen=True)
class LawResult:
    """One setting at one depth: expected and counted shares of the tokens after the first."""

    settings: dict[str, float]
    depth: int
    num_nodes: int
    num_samples: int
    expected: list[float]
    counted: list[float]
    total_variation: float
    limit: float
    acceptance_rate: float | None

    @property
    def passed(self) -> bool:
        """True where the difference is within the noise."""
        return self.total_variation < self.limit

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"passed": self.passed, **asdict(self)}


def check_sampling_law(
    num_samples: int,
    depths: Sequence[int] = (0, 1, 3),
    trees: Sequence[tuple[int, int]] = (),
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    drafter: DrafterKind = "heads",
) -> list[LawResult]:
    """Sample about ``num_samples`` tokens for every setting and depth, and for each of ``trees`` (depth, nodes).

    ``on_progress(num_done, num_total)``. ``drafter``: who drafts; heads and draft model are built in.
    """
    model = known_model()
    draft_model = MTPModel(known_trunk(HEAD_PROBS, "known draft")) if "model" in drafter else None
    engine = Engine(model, max_batch=64, drafter=DrafterConfig(drafter, draft_model))
    results: list[LawResult] = []
    shapes = [*((depth, 0) for depth in depths), *trees]
    num_total = len(SETTINGS) * len(shapes)
    for settings in SETTINGS:
        for depth, num_nodes in shapes:
            results.append(_measure(engine, settings, depth, num_nodes, num_samples, seed))
            if on_progress:
                on_progress(len(results), num_total)
    return results


def known_model() -> MTPModel:
    """A trunk with ``TRUNK_PROBS`` for its law, and heads with ``HEAD_PROBS``."""
    trunk = known_trunk(TRUNK_PROBS, "known law")
    heads = SequentialHeads(trunk, HeadsConfig(own_output=True))
    with torch.no_grad():
        for module in heads.modules_by_depth:
            _blank(module)
            module.eh_proj.weight[:, :_VOCAB_SIZE] = torch.eye(_VOCAB_SIZE)  # type: ignore[union-attr, operator]
        assert heads.output is not None
        heads.output.weight.copy_(_rows(HEAD_PROBS))
    return MTPModel(trunk, heads.eval().requires_grad_(False))


def known_trunk(probs: Sequence[float], name: str) -> Trunk:
    """A one-layer Llama whose block adds nothing and whose output rows are log-probabilities."""
    size = _VOCAB_SIZE
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=size,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        _blank(model)
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.lm_head.weight.copy_(_rows(probs))
    return Trunk(model, name=name)


def expected_law(
    probs: Sequence[float], temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> list[float]:
    """Temperature, top-k, top-p on the re-normalised rest, min-p against the largest; ``probs`` in descending order."""
    powered = [p ** (1 / temperature) for p in probs]
    kept = powered[: top_k or None]
    total, mass, nucleus = sum(kept), 0.0, []
    for p in kept:
        if mass >= top_p * total:
            break
        nucleus.append(p)
        mass += p
    kept = [p for p in nucleus if p >= min_p * nucleus[0]]
    return [p / sum(kept) for p in kept] + [0.0] * (len(probs) - len(kept))


def _measure(
    engine: Engine, settings: dict[str, float], depth: int, num_nodes: int, num_samples: int, seed: int
) -> LawResult:
    num_texts = math.ceil(num_samples / (_TOKENS_PER_TEXT - 1))
    common: dict[str, Any] = {"max_tokens": _TOKENS_PER_TEXT, **settings}
    params = [SamplingParams(seed=seed * 1_000_003 + i, **common) for i in range(num_texts)]
    completions = engine.generate([[0]] * num_texts, params, depth=depth, num_nodes=num_nodes)
    # The first token comes from the prefill and is never drafted, so it is not counted.
    tokens = [t for done in completions for t in done.token_ids[1:]]
    counted = [tokens.count(t) / len(tokens) for t in range(_VOCAB_SIZE)]
    expected = expected_law(TRUNK_PROBS, **settings)  # type: ignore[arg-type]
    expected += [0.0] * (_VOCAB_SIZE - len(expected))
    drafted = sum(done.stats.num_draft_tokens for done in completions)
    accepted = sum(done.stats.num_accepted_tokens for done in completions)
    return LawResult(
        settings=settings,
        depth=depth,
        num_nodes=num_nodes,
        num_samples=len(tokens),
        expected=expected,
        counted=counted,
        total_variation=sum(abs(a - b) for a, b in zip(expected, counted, strict=True)) / 2,
        limit=LIMIT_AT_20000 * max(1.0, math.sqrt(20_000 / len(tokens))),
        acceptance_rate=accepted / drafted if drafted else None,
    )


def _blank(module: torch.nn.Module) -> None:
    """Every weight 0, every norm gain 1."""
    for name, parameter in module.named_parameters():
        parameter.fill_(1.0 if "norm" in name else 0.0)


def _rows(probs: Sequence[float]) -> torch.Tensor:
    """Output rows that give ``probs`` for every state: a normed one-hot state has one entry of sqrt(size)."""
    logits_V = torch.full((_VOCAB_SIZE,), -30.0)
    logits_V[: len(probs)] = torch.tensor(probs).log()
    return (logits_V / _VOCAB_SIZE**0.5).unsqueeze(1).expand(-1, _VOCAB_SIZE)
