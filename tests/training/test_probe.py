"""The probe's figures against heads that are known, and against a count by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import DataError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.training.documents import Document, DocumentReader
from foretell.training.probe import ProbeReport, probe, probe_documents
from foretell.training.sources import Record
from tests.fixtures import dist_heads, dist_trunk, encode, random_heads, script_trunk, scripted_heads, tiny_llama

ALPHABET = ">abcdefghijklmnopqrstuvwxyz<eos>"
MODES = {"unrolled": {}, "distinct": {"unrolled": False, "num_modules": 3, "num_depths": 3}}
ANSWER = {"prompt_token_ids": encode("000>abc"), "token_ids": encode("defghijklmnopqrstuvwxyz<eos>")}


def records(*values: dict[str, Any]) -> list[tuple[str, int, dict[str, Any]]]:
    return [("a.jsonl", line, record) for line, record in enumerate(values, start=1)]


@pytest.mark.parametrize("mode", sorted(MODES))
def test_perfect_heads(mode: str) -> None:
    """1.0 everywhere, also where an answer begins: its first tokens are targets of deep depths only."""
    heads = scripted_heads(script_trunk(ALPHABET), "perfect", **MODES[mode])  # type: ignore[arg-type]
    report = probe(heads, records(ANSWER))
    for depth in report.depths:
        assert (depth.agreement, depth.chained) == (1.0, 1.0)
        assert depth.overlap == pytest.approx(1.0, abs=1e-3)
    # Every token of the answer is a target of every depth: the prompt is long enough.
    assert [depth.num_positions for depth in report.depths] == [24, 24, 24]
    assert report.mean_acceptance_length == 4.0


@pytest.mark.parametrize("mode", sorted(MODES))
def test_wrong_heads(mode: str) -> None:
    heads = scripted_heads(script_trunk(ALPHABET), "wrong", **MODES[mode])  # type: ignore[arg-type]
    report = probe(heads, records(ANSWER))
    assert [(depth.agreement, depth.chained) for depth in report.depths] == [(0.0, 0.0)] * 3
    assert report.mean_acceptance_length == 1.0


def test_mixed_heads() -> None:
    """Depth k at i reads token i+k; it is right unless that is in the set, and chained where all before it were."""
    heads = scripted_heads(script_trunk(ALPHABET), "mixed", wrong_after=encode("cdjrstx"))
    report = probe(heads, records({"prompt_token_ids": [], "token_ids": encode(ALPHABET)}))
    right = [letter not in "cdjrstx" for letter in ">abcdefghijklmnopqrstuvwxyz"] + [True]  # by token index
    chained = 1.0
    for k, depth in enumerate(report.depths, start=1):
        positions = range(28 - k - 1)
        assert depth.num_positions == len(positions)
        assert depth.agreement == pytest.approx(sum(right[i + k] for i in positions) / len(positions))
        reached = [i for i in positions if all(right[i + 1 : i + k])]
        chained *= sum(right[i + k] for i in reached) / len(reached)
        assert depth.num_chained_positions == len(reached)
        assert depth.chained == pytest.approx(chained)


def by_hand(heads: Any, documents: list[Document]) -> list[tuple[int, int, int, int]]:
    """Per depth: positions, agreed, chains that come as far, accepted ones; token by token on unpacked documents."""
    counts = [[0, 0, 0, 0] for _ in range(heads.config.num_depths)]
    for document in documents:
        ids = torch.tensor([document.token_ids])
        doc_ids = torch.zeros_like(ids)
        trunk_states = heads.trunk.text_states(ids, doc_ids)
        says = heads.trunk.project(trunk_states.post_BTD)[0].argmax(-1).tolist()
        states = heads.training_states(trunk_states, heads.trunk.embed(ids), doc_ids)
        drafts = [
            heads.to_token_ids(heads.project(state[0], k).argmax(-1)).tolist() for k, state in enumerate(states, 1)
        ]
        tokens = document.token_ids
        for i in range(len(tokens)):
            for k in range(1, len(states) + 1):
                if i + k + 1 >= len(tokens) or not document.supervised[i + k + 1]:
                    continue
                agreed = [drafts[m - 1][i] == says[i + m] for m in range(1, k + 1)]
                # Every depth of the chain is a target, and the text took what the chain would have drafted.
                on_path = all(document.supervised[i + m + 1] for m in range(1, k + 1)) and all(
                    tokens[i + m + 1] == says[i + m] for m in range(1, k)
                )
                counts[k - 1][0] += 1
                counts[k - 1][1] += agreed[-1]
                counts[k - 1][2] += on_path and all(agreed[:-1])
                counts[k - 1][3] += on_path and all(agreed)
    return [tuple(c) for c in counts]  # type: ignore[misc]


def as_counts(report: ProbeReport) -> list[tuple[int, int, int, int]]:
    return [
        (
            d.num_positions,
            round(d.agreement * d.num_positions),
            d.num_chained_positions,
            round(d.chained / before * d.num_chained_positions),
        )
        for d, before in zip(report.depths, [1.0, *(d.chained for d in report.depths)], strict=False)
    ]


@pytest.mark.parametrize("draft_ids", [None, [0, 1, 3]])
@pytest.mark.parametrize("mode", sorted(MODES))
@torch.no_grad()
def test_counts_are_those_by_hand(mode: str, draft_ids: list[int] | None) -> None:
    """Texts that follow the trunk and then leave it, with a prompt, packed and batched."""
    trunk = Trunk(tiny_llama(vocab_size=4, eos_token_id=None, pad_token_id=None))  # four tokens: some guesses are right
    heads = random_heads(trunk, draft_ids=draft_ids, **MODES[mode])
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 4, (1 + n % 5,), generator=generator).tolist() for n in range(24)]
    texts = Engine(MTPModel(trunk), 24).generate(prompts, SamplingParams(max_tokens=14))
    documents = []
    for text in texts:
        ids = text.prompt_token_ids + text.token_ids + [3, 0, 2, 1]
        documents.append(Document(ids, [i >= len(text.prompt_token_ids) for i in range(len(ids))]))
    found = as_counts(probe_documents(heads, documents, max_length=40, batch_rows=3))
    assert found == by_hand(heads, documents)
    assert all(0 < agreed < positions and 0 < chained < chain for positions, agreed, chain, chained in found)


def test_overlap_of_two_known_laws() -> None:
    tokens = encode("abcd")
    trunk = dist_trunk(dict(zip(tokens, (0.50, 0.30, 0.15, 0.05), strict=True)))
    heads = dist_heads(trunk, dict(zip(tokens, (0.40, 0.10, 0.30, 0.20), strict=True)))
    report = probe(heads, records({"text": "abcdabcdabcd"}))
    for depth in report.depths:
        assert depth.overlap == pytest.approx(0.40 + 0.10 + 0.15 + 0.05, abs=1e-3)


def test_predicts_what_decoding_accepts() -> None:
    """A cycle without end, so that every position weighs the same in both."""
    trunk = script_trunk("abcdefga", max_positions=512)
    heads = scripted_heads(trunk, "mixed", wrong_after=encode("c"))
    [text] = Engine(MTPModel(trunk, heads)).generate(["a"], SamplingParams(max_tokens=281), depth=1)
    report = probe(heads, records({"prompt_token_ids": encode("a"), "token_ids": text.token_ids}), max_length=512)
    assert report.depths[0].chained == pytest.approx(6 / 7, abs=0.01)


def test_progress_and_documents_without_a_target() -> None:
    heads = scripted_heads(script_trunk(ALPHABET), "perfect")
    nothing = records({"prompt_token_ids": encode("ab"), "token_ids": []}, {"text": "a"})
    steps: list[tuple[int, int]] = []
    reader = DocumentReader(heads.trunk.tokenizer, heads.trunk.vocab_size, "answer")
    report = probe_documents(
        heads,
        [reader.read(Record(values, file, line)) for file, line, values in nothing],
        max_length=8,
        batch_rows=1,
        on_progress=lambda done, total: steps.append((done, total)),
    )
    assert steps == [(1, 1)]
    for depth in report.depths:
        assert (depth.num_positions, depth.agreement, depth.overlap, depth.chained) == (0, None, None, None)
    assert report.as_dict()["mean_acceptance_length"] is None
    with pytest.raises(DataError, match=r"^a\.jsonl: nothing to probe"):
        probe(heads, nothing)


def test_a_depth_without_a_position_has_no_figures() -> None:
    heads = scripted_heads(script_trunk(ALPHABET), "perfect")
    report = probe(heads, records({"text": "abcd"}))  # two positions for depth 1, one for depth 2, none for depth 3
    assert [depth.num_positions for depth in report.depths] == [2, 1, 0]
    assert [depth.chained for depth in report.depths] == [1.0, 1.0, None]
    assert report.mean_acceptance_length is None


def test_a_wrong_record_is_named_by_file_and_line() -> None:
    heads = scripted_heads(script_trunk(ALPHABET), "perfect")
    with pytest.raises(DataError, match=r"^b\.jsonl:7: token ids must be"):
        probe(heads, [*records(ANSWER), ("b.jsonl", 7, {"token_ids": [-1]})])
