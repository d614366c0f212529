"""The sampling law of any model: are drafted samples draws from the trunk's own distribution?

No table of expected shares exists for a vocabulary of 50,000, but the probability integral transform needs none: order
the tokens by the law p of their position, likeliest first; then U = (mass before the token) + V p(token), V uniform, is
uniform on [0, 1] if, and only if up to that order, the token was drawn from p (Rosenblatt 1952; Smith 1985 for the
discrete case). The law is worked out anew by a plain pass over the finished text, with the request's own rules, and the
distance of the U's from uniform is Kolmogorov's. A verifier that keeps too many drafts has too many small or large U.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from foretell.analysis.texts import BenchPrompt
from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.rules import LogitRules
from foretell.decoding.sampling import filtered_probs
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import AcceptanceStats, Completion, Depth

_FALSE_ALARMS = 1e-4
"""Share of sound samplers that the limit calls broken, for each setting."""
_OUTSIDE = 0.002
"""Share of tokens that the law worked out anew may rule out: rounding moves the edge of a nucleus."""
_TOKENS_PER_TEXT = 48


@dataclass(frozen=True)
class ModelLaw:
    """One depth. ``distance``: the largest gap between the share of U's below x and x; ``limit`` at this number of
    tokens. ``num_outside``: tokens to which the law gives nothing. ``acceptance_rate``: None where nothing was drafted.
    """

    depth: Depth
    num_nodes: int
    num_samples: int
    distance: float
    limit: float
    num_outside: int
    acceptance_rate: float | None

    @property
    def passed(self) -> bool:
        """True where the tokens are draws from the law as far as so many can show."""
        return self.distance < self.limit and self.num_outside <= max(1, _OUTSIDE * self.num_samples)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"passed": self.passed, **asdict(self)}


def check_model_law(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    depths: Sequence[Depth],
    params: SamplingParams,
    num_samples: int = 2000,
    drafter: DrafterConfig | None = None,
    num_nodes: int = 0,
    batch: int = 8,
    exact: bool = False,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[ModelLaw]:
    """Sample about ``num_samples`` tokens at depth 0 and at each of ``depths``; ``params``: anything but greedy.

    ``num_nodes``: trees. The prompts are taken in turns, each text with a seed of its own.
    """
    length = max(_TOKENS_PER_TEXT, params.min_tokens)
    num_texts = math.ceil(num_samples / (length - 1))
    engine = Engine(model, max_batch=batch, drafter=drafter, exact=exact)
    taken = [prompts[i % len(prompts)].token_ids for i in range(num_texts)]
    settings = [
        replace(params, max_tokens=length, seed=seed * 1_000_003 + i, n=1, logprobs=None) for i in range(num_texts)
    ]
    found = []
    every = list(dict.fromkeys([0, *depths]))
    for depth in every:
        done = engine.generate(taken, settings, depth, num_nodes=num_nodes if depth else 0)
        found.append(_measure(model.trunk, taken, settings, done, depth, num_nodes if depth else 0, seed))
        if on_progress:
            on_progress(len(found), len(every))
    return found


def law_of(trunk: Trunk, prompt: list[int], output: list[int], params: SamplingParams) -> torch.Tensor:
    """(N, V): the distribution of each of the N ``output`` tokens after those before it, by one plain pass."""
    ids_BT = torch.tensor([prompt + output], device=trunk.device)
    with torch.inference_mode():
        states = trunk.text_states(ids_BT, torch.zeros_like(ids_BT))
        logits_NV = trunk.project(states.post_BTD[0, len(prompt) - 1 : -1]).float()
    rules = LogitRules(params, prompt, trunk.vocab_size, trunk.tokenizer, trunk.eos_token_ids)
    ruled = [rules.apply(logits_NV[i : i + 1], output[:i], [[]]) for i in range(len(output))]
    return filtered_probs(torch.cat(ruled), params)


def transformed(law_NV: torch.Tensor, token_ids: Sequence[int], uniforms_N: torch.Tensor) -> torch.Tensor:
    """U of every token: the mass of likelier ones (of equal ones the smaller id first) and a part of its own."""
    chosen_N1 = torch.tensor(token_ids).unsqueeze(1)
    own_N1 = law_NV.gather(1, chosen_N1)
    ids_V = torch.arange(law_NV.shape[1])
    before = (law_NV > own_N1) | ((law_NV == own_N1) & (ids_V < chosen_N1))
    return (law_NV.double() * before).sum(1) + uniforms_N * own_N1[:, 0].double()


def kolmogorov_distance(values: Sequence[float]) -> float:
    """The largest distance between the share of ``values`` below x and x."""
    ordered, count = sorted(values), len(values)
    return max(max((i + 1) / count - u, u - i / count) for i, u in enumerate(ordered))


def distance_limit(num_samples: int) -> float:
    """The distance that one in ten thousand sound samplers passes (Massart 1990: P(D > d) <= 2 exp(-2 n d^2))."""
    return math.sqrt(math.log(2 / _FALSE_ALARMS) / (2 * num_samples))


def _measure(
    trunk: Trunk,
    prompts: Sequence[list[int]],
    settings: Sequence[SamplingParams],
    done: Sequence[Completion],
    depth: Depth,
    num_nodes: int,
    seed: int,
) -> ModelLaw:
    generator = torch.Generator().manual_seed(seed)
    values: list[float] = []
    num_outside = 0
    for prompt, params, completion in zip(prompts, settings, done, strict=True):
        output = completion.token_ids
        if len(output) < 2:
            continue
        # The first token comes from the prompt's pass and is never drafted, so it is not counted.
        law_NV = law_of(trunk, prompt, output, params)[1:].cpu()
        uniforms_N = torch.rand(len(output) - 1, generator=generator, dtype=torch.float64)
        values += transformed(law_NV, output[1:], uniforms_N).tolist()
        num_outside += int((law_NV.gather(1, torch.tensor(output[1:]).unsqueeze(1)) == 0).sum())
    return ModelLaw(
        depth,
        num_nodes,
        len(values),
        kolmogorov_distance(values) if values else 1.0,
        distance_limit(max(1, len(values))),
        num_outside,
        AcceptanceStats.total(completion.stats for completion in done).acceptance_rate,
    )
