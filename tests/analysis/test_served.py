"""Acceptance foretold by walking over rounds, and the stage that is to blame where served figures are others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foretell.analysis.rounds import convention, right_guesses, walk
from foretell.analysis.served import answers, check_template, compare_served, predict, predict_documents, serve
from foretell.analysis.texts import BenchPrompt
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from foretell.config import HeadsConfig
from foretell.errors import UsageError
from foretell.models.build import build_heads
from foretell.models.heads import Heads
from foretell.models.mtp_model import MTPModel
from foretell.training.documents import Document
from tests.checkpoints.family_folders import LOADABLE, write_random, write_script

PROMPTS = [BenchPrompt("x", [1, 2, 3]), BenchPrompt("x", [40, 7]), BenchPrompt("x", [9, 9, 8, 61, 30])]
NUM_TOKENS = 30


def test_walk_by_hand() -> None:
    """C42's list of accepted tokens a round, 3 0 1 3 2 0 3 1 at depth 3, laid out as guesses at every place."""
    accepted = [3, 0, 1, 3, 2, 0, 3, 1]
    places = [2]
    for count in accepted[:-1]:
        places.append(places[-1] + count + 1)
    right_KT = torch.zeros(3, 64, dtype=torch.bool)
    for place, count in zip(places, accepted, strict=True):
        right_KT[:count, place] = True
    num_tokens = places[-1] + accepted[-1] + 3
    stats = walk(right_KT[:, :num_tokens], 3, 1000)
    assert (stats.num_accepted_tokens, stats.num_draft_tokens, stats.num_drafts) == (13, 24, 8)
    assert stats.acceptance_by_depth == [0.75, 0.5, 0.375]
    cut = walk(
        right_KT[:, : 3 + 4], 3, 4
    )  # the fourth token is the last: the root may be followed by three, two drafted
    assert (cut.num_draft_tokens, cut.num_drafts) == (2, 1)


KINDS = {
    "unrolled": HeadsConfig(),
    "distinct": HeadsConfig(num_modules=2, num_depths=2),
    "parallel": HeadsConfig(kind="parallel", num_depths=2),
    "medusa": HeadsConfig(kind="medusa", num_depths=2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_those_of_decoding(kind: str, tmp_path: Path) -> None:
    """Every kind of heads, guessing right now and then: the same rounds, without decoding them."""
    trunk = load_trunk(write_random(LOADABLE["llama behind"], tmp_path, guesses=True))
    torch.manual_seed(0)
    heads = load_native_heads(trunk) if kind == "unrolled" else build_heads(trunk, KINDS[kind]).eval()
    model = MTPModel(trunk, heads)
    texts = answers(model, PROMPTS, NUM_TOKENS)
    stats = predict(heads, PROMPTS, texts, NUM_TOKENS, 2)
    assert stats.acceptance_by_depth == serve(model, PROMPTS, NUM_TOKENS, 2)
    assert kind != "unrolled" or 0 < stats.num_accepted_tokens < stats.num_draft_tokens


def scripted(folder: Path, **wrong: str) -> Heads:
    """Heads that read the trunk's state, right where their conventions are those of the folder."""
    return load_native_heads(load_trunk(write_script(LOADABLE["llama behind"], folder, "hidden", **wrong)))  # type: ignore[arg-type]


def verdict(heads: Heads, served: list[float] | None = None, probed: list[float] | None = None) -> tuple[str, str]:
    """The first stage that disagrees, and its note; served here where nothing is given."""
    prompts = [BenchPrompt("x", [1, 2, 3])]
    model = MTPModel(heads.trunk, heads)
    texts = answers(model, prompts, 20)
    figures = serve(model, prompts, 20, 1) if served is None else served
    report = compare_served(heads, prompts, texts, 20, figures, check_template([([1], [1])]), probed or [])
    return (report.first.name, report.first.note) if report.first else ("", "")


def test_all_stages_agree(tmp_path: Path) -> None:
    assert verdict(scripted(tmp_path)) == ("", "")


def test_heads_trained_for_the_other_state(tmp_path: Path) -> None:
    """The folder says "after the norm", and the heads were made for the state before it."""
    name, note = verdict(scripted(tmp_path, wrong="source"))
    assert name == "state convention" and "before the final norm" in note and "trained for" in note


def test_heads_with_exchanged_halves(tmp_path: Path) -> None:
    name, note = verdict(scripted(tmp_path, wrong="halves"))
    assert name == "order of halves" and "hidden first" in note


def test_an_engine_that_reads_the_other_state(tmp_path: Path) -> None:
    """Right heads, served by an engine that hands them the state before the norm: its figures are those of that."""
    heads = scripted(tmp_path)
    with convention(heads, hidden_source="pre"):
        served = predict(heads, [BenchPrompt("x", [1, 2, 3])], [[4, *range(5, 24)]], 20, 1).acceptance_by_depth
    name, note = verdict(heads, served)
    assert name == "state convention" and "what was served" in note
    assert heads.config.hidden_source == "post"


def test_other_data_and_an_engine_that_loses_guesses(tmp_path: Path) -> None:
    heads = scripted(tmp_path)
    assert verdict(heads, probed=[0.5])[0] == "data"
    assert verdict(heads, served=[0.6])[0] == "engine"


def test_the_same_text_as_data_agrees(tmp_path: Path) -> None:
    """Data are walked over as what is served is: the same answers give the same figures."""
    trunk = load_trunk(write_random(LOADABLE["llama behind"], tmp_path, guesses=True))
    heads = load_native_heads(trunk)
    texts = answers(MTPModel(trunk, heads), PROMPTS, NUM_TOKENS)
    documents = [
        Document(p.token_ids + text, [False] * len(p.token_ids) + [True] * len(text))
        for p, text in zip(PROMPTS, texts, strict=True)
    ]
    own = predict(heads, PROMPTS, texts, NUM_TOKENS, 2).acceptance_by_depth
    assert predict_documents(heads, documents, 2) == pytest.approx(own, abs=0.03)  # the last round's room aside
    assert predict_documents(heads, [Document([1, 2, 3], [False] * 3)], 2) == []


def test_template() -> None:
    stage = check_template([([1, 2], [1, 2]), ([1, 1, 2], [1, 2])])
    assert stage.agrees is False and "1 of 2 prompts" in stage.note and "token 1" in stage.note
    assert check_template([]).agrees is None


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no depth to compare"):
        verdict(scripted(tmp_path), served=[])


def test_guesses_beyond_the_text_are_wrong(tmp_path: Path) -> None:
    right_KT = right_guesses(scripted(tmp_path), [1, 2, 3, 4, 5], 2)
    assert right_KT.tolist() == [[True, True, True, False, False], [True, True, False, False, False]]


def test_chance_is_no_reason(tmp_path: Path) -> None:
    """Random heads: a few more lucky guesses with another convention do not make it the right one."""
    trunk = load_trunk(write_random(LOADABLE["llama behind"], tmp_path))
    heads = load_native_heads(trunk)
    model = MTPModel(trunk, heads)
    texts = answers(model, PROMPTS, NUM_TOKENS)
    served = serve(model, PROMPTS, NUM_TOKENS, 2)
    report = compare_served(heads, PROMPTS, texts, NUM_TOKENS, served, check_template([]))
    assert report.first is None
