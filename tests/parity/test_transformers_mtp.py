"""An oracle that is not ours: transformers' own ``generate`` on native heads says the same tokens and the same drafts.

What differs, and does not matter to either: transformers numbers the positions of a module from the drafted token's own
(``MtpCache``, cache_utils.py), ours from the trunk state's; rotary embeddings see distances alone. It always drafts as
many tokens as there are modules; ours never drafts past max_tokens, so its last drafts are shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.generation.candidate_generator import MTPCandidateGenerator

import foretell
from foretell.decoding.sequential_drafter import SequentialDrafter
from foretell.types import Completion
from tests.parity.native_models import FAMILIES, transformers_model, write_layout, write_model

MAX_TOKENS = 24
PROMPTS = [[5, 6], [7, 8, 9], list(b"The same text, told by two engines.")]


@dataclass
class Drafts:
    """What each side drafted, round by round; theirs with the number of tokens produced before the round."""

    ours: list[list[int]]
    theirs: list[tuple[int, list[int]]]

    def theirs_cut(self) -> list[list[int]]:
        """Their drafts as far as max_tokens leaves room, one token kept for the trunk's own."""
        cut = [token_ids[: max(0, MAX_TOKENS - produced - 1)] for produced, token_ids in self.theirs]
        return [token_ids for token_ids in cut if token_ids]


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> Drafts:
    """Fills while either engine runs."""
    found = Drafts([], [])
    ours: Callable[..., Any] = SequentialDrafter.draft
    theirs: Callable[..., Any] = MTPCandidateGenerator.get_candidates

    def draft(self: SequentialDrafter, *args: Any, **kwargs: Any) -> Any:
        made = ours(self, *args, **kwargs)
        found.ours.extend(list(one.token_ids) for one in made if one.token_ids)
        return made

    def get_candidates(self: Any, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        candidates = theirs(self, input_ids, *args, **kwargs)
        length = input_ids.shape[1]
        found.theirs.append((length, candidates[0][0, length:].tolist()))
        return candidates

    monkeypatch.setattr(SequentialDrafter, "draft", draft)
    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", get_candidates)
    return found


def generate(model: Any, prompt: list[int], **kwargs: Any) -> list[int]:
    """What transformers' ``generate`` adds to the prompt, greedily."""
    output = model.generate(torch.tensor([prompt]), max_new_tokens=MAX_TOKENS, do_sample=False, **kwargs)
    return output[0, len(prompt) :].tolist()


def compare(folder: Path, prompts: list[list[int]], num_modules: int, drafts: Drafts) -> list[Completion]:
    """Assert that ids and drafts agree on every prompt; returns our completions."""
    engine, theirs = foretell.Engine(foretell.load(folder)), transformers_model(folder)
    done = []
    for prompt in prompts:
        drafts.ours.clear()
        drafts.theirs.clear()
        [ours] = engine.generate([prompt], foretell.SamplingParams(max_tokens=MAX_TOKENS), depth=num_modules)
        assert ours.token_ids == generate(theirs, prompt)
        assert ours.token_ids == generate(theirs, prompt, use_mtp=True)
        drafts.theirs = [(length - len(prompt), token_ids) for length, token_ids in drafts.theirs]
        assert drafts.ours == drafts.theirs_cut()
        done.append(ours)
    return done


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_modules", [1, 2])
def test_ids_and_drafts_are_those_of_transformers(
    family: str, num_modules: int, drafts: Drafts, tmp_path: Path
) -> None:
    """Heads that are right now and then: every number of accepted tokens has occurred, and was followed by drafts."""
    completions = []
    for seed in range(2):
        folder = write_model(tmp_path / str(seed), family, num_modules, seed, guesses=True)
        completions += compare(folder, PROMPTS, num_modules, drafts)
    accepted = [sum(done.stats.accepted_per_position[k : k + 1][0] for done in completions) for k in range(num_modules)]
    num_rounds = sum(done.stats.num_drafts for done in completions)
    assert num_rounds > accepted[0] and accepted[-1] > 0
    assert num_modules == 1 or accepted[0] > accepted[1]


@pytest.mark.parametrize(("name", "num_modules"), [("mellum", 1), ("llama behind", 2), ("llama shared names", 2)])
def test_layouts(name: str, num_modules: int, drafts: Drafts, tmp_path: Path) -> None:
    """The flat layout, which transformers runs out of the box, and two more on a trunk without a family."""
    done = compare(write_layout(tmp_path, name, num_modules), PROMPTS, num_modules, drafts)
    accepted = sum(one.stats.accepted_per_position[num_modules - 1] for one in done)
    assert 0 < accepted < sum(one.stats.num_drafts for one in done)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [2, 3])
def test_heads_of_noise(family: str, seed: int, drafts: Drafts, tmp_path: Path) -> None:
    """Three modules whose guesses are hardly ever right, so that every round re-reads what was made from guesses."""
    compare(write_model(tmp_path / "model", family, 3, seed), PROMPTS[1:3], 3, drafts)


def test_eos_within_a_round(drafts: Drafts, tmp_path: Path) -> None:
    """A text that ends by itself ends alike, whatever was drafted behind its end."""
    folder = write_model(tmp_path / "model", "glm4_moe", 1, 0, guesses=True)
    [done] = compare(folder, [[7, 8, 9]], 1, drafts)
    assert done.finish_reason == "stop"


def test_prompt_shorter_than_the_modules(tmp_path: Path) -> None:
    """One token and two modules: ours decodes; transformers 5.24 stops with a shape error.

    At fault is ``get_candidates`` (generation/candidate_generator.py, lines 1458 and 1464): after a rejection it slices
    the last n + num_mtp_layers entries of ``input_ids`` and of ``full_seq_last_hidden_states``. The latter has one
    fewer, and after a prompt of fewer than num_mtp_layers tokens the slices differ in length.
    """
    folder = write_model(tmp_path / "model", "deepseek_v3", 2, 0)
    [ours] = foretell.Engine(foretell.load(folder)).generate([[1]], foretell.SamplingParams(max_tokens=8), depth=2)
    theirs = transformers_model(folder)
    assert ours.token_ids == generate(theirs, [1])[:8]
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        generate(theirs, [1], use_mtp=True)
