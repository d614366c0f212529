"""Bits per byte against a count by hand: every token once, with the context it was promised."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from foretell.errors import DataError, UsageError
from foretell.evaluation.nll import mean_nll
from foretell.evaluation.text import TextScore, score_texts, total
from foretell.evaluation.text_file import read_text
from foretell.evaluation.windows import Window, windows
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests import fixtures

TEXT = "Grüße! One two three, one two four. " * 3
KINDS: dict[str, dict[str, Any]] = {
    "none": {},
    "sequential": {"num_depths": 2},
    "medusa": {"kind": "medusa", "num_depths": 2},  # an output matrix a depth
}


def model_with(kind: str, draft_ids: list[int] | None = None) -> MTPModel:
    trunk = Trunk(fixtures.tiny_llama(max_position_embeddings=64), fixtures.byte_tokenizer(), name="tiny")
    heads = None if kind == "none" else fixtures.random_heads(trunk, draft_ids=draft_ids, **KINDS[kind])
    return MTPModel(trunk, heads)


@torch.no_grad()
def by_hand(model: MTPModel, text: str, window: int, stride: int) -> list[tuple[int, float]]:
    """(tokens scored, nats) a depth, token by token: the window that scores one is the first that reaches it."""
    trunk, heads = model.trunk, model.heads
    ids = [fixtures.EOS, *fixtures.encode(text)]
    found = []
    read: dict[int, list[torch.Tensor]] = {}  # by the window's end: logits of every depth
    for depth in range(1 + (0 if heads is None else heads.config.num_depths)):
        count, nats = 0, 0.0
        for place in range(1, len(ids)):
            stop = window
            while stop <= place:
                stop += stride
            stop = min(stop, len(ids))
            start = max(0, stop - window)
            at = place - depth - 1 - start  # the position whose state guesses this token
            if at < 0:
                continue
            if stop not in read:
                row = torch.tensor([ids[start:stop]])
                read[stop] = [trunk.model(input_ids=row).logits[0]]
                if heads is not None:
                    states = trunk.text_states(row, torch.zeros_like(row))
                    states = heads.training_states(states, trunk.embed(row), torch.zeros_like(row))
                    read[stop] += [heads.project(state[0], k) for k, state in enumerate(states, start=1)]
            count += 1
            nats -= float(read[stop][depth][at].double().log_softmax(-1)[ids[place]])
        found.append((count, nats))
    return found


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(("window", "stride"), [(64, 32), (64, 61), (16, 5), (9, 4)])
def test_every_depth_against_a_count_by_hand(kind: str, window: int, stride: int) -> None:
    model = model_with(kind)
    [score] = score_texts(model, [("t", TEXT)], window, stride, max_rows=3)
    expected = by_hand(model, TEXT, window, stride)
    assert [d.num_targets for d in score.depths] == [count for count, _ in expected]
    assert [d.nll for d in score.depths] == pytest.approx([nats for _, nats in expected], rel=1e-5)
    num_bytes = len(TEXT.encode())
    assert (score.num_bytes, score.num_tokens, score.depths[0].num_targets) == (num_bytes, num_bytes, num_bytes)
    assert score.bits_per_byte() == pytest.approx(expected[0][1] / math.log(2) / num_bytes)
    for depth, (count, nats) in enumerate(expected):
        assert count == num_bytes - depth  # nothing guesses a text's first tokens
        assert score.bits_per_byte(depth) == pytest.approx(nats / math.log(2) / count)


@pytest.mark.parametrize("num_tokens", [0, 1, 2, 7, 8, 9, 20, 33])
@pytest.mark.parametrize(("window", "stride"), [(8, 1), (8, 4), (8, 7)])
def test_windows_score_every_token_once(num_tokens: int, window: int, stride: int) -> None:
    found = list(windows(num_tokens, window, stride))
    assert [place for w in found for place in range(w.scored_from, w.stop)] == list(range(1, num_tokens))
    for w in found:
        assert 0 <= w.start < w.scored_from < w.stop <= w.start + window
    for w in found[1:]:
        assert w.scored_from - w.start >= window - stride and w.stop - w.scored_from <= stride
    assert found[:1] == ([Window(0, min(window, num_tokens), 1)] if num_tokens > 1 else [])


def test_a_uniform_trunk_takes_the_logarithm_of_its_vocabulary() -> None:
    trunk = fixtures.dist_trunk({token: 1 / 256 for token in range(256)})
    [score] = score_texts(MTPModel(trunk), [("t", "any text at all")], 8, 4)
    assert score.bits_per_byte() == pytest.approx(8.0, abs=1e-3)
    assert score.depths[0].bits_per_token == pytest.approx(8.0, abs=1e-3)
    assert mean_nll(trunk, [[1, 2, 3], [4], []]) == pytest.approx(math.log(256), abs=1e-3)
    assert mean_nll(trunk, [[4], []]) is None


def test_texts_are_scored_apart_and_summed() -> None:
    model = model_with("sequential")
    alone = [score_texts(model, [(name, text)], 16, 5)[0] for name, text in (("a", TEXT), ("b", "short"), ("c", "x"))]
    together = score_texts(model, [("a", TEXT), ("b", "short"), ("c", "x")], 16, 5, max_rows=4)
    for one, other in zip(alone, together, strict=True):
        assert [d.nll for d in one.depths] == pytest.approx([d.nll for d in other.depths], rel=1e-5)
    whole = total(together)
    assert whole.num_bytes == sum(s.num_bytes for s in alone)
    assert whole.depths[1].num_targets == len(TEXT.encode()) - 1 + 4 + 0  # depth 1 has no guess of "x"
    bits = sum(s.depths[0].nll for s in alone) / math.log(2)
    assert whole.bits_per_byte() == pytest.approx(bits / whole.num_bytes)
    assert together[2].bits_per_byte(1) is None


def test_a_reduced_draft_vocabulary_covers_a_share() -> None:
    letters = sorted(fixtures.encode("onetwhrfu, "))
    model = model_with("sequential", letters)
    [score] = score_texts(model, [("t", TEXT)], 64, 32)
    targets = fixtures.encode(TEXT)[1:]
    covered = sum(token in letters for token in targets)
    assert (score.depths[1].num_covered, score.depths[1].num_targets) == (covered, len(targets)) and covered
    assert score.bits_per_byte(1) is None and score.bits_per_byte() is not None
    assert 0 < score.depths[1].bits_per_token < 20
    values = score.as_dict()["depths"]
    assert values[1]["coverage"] == pytest.approx(covered / len(targets)) and values[0]["coverage"] == 1.0


def test_a_tokenizer_that_loses_text_is_told_of() -> None:
    model = model_with("none")
    assert score_texts(model, [("t", TEXT)], 64, 32)[0].keeps_text
    from tokenizers import normalizers

    model.trunk.tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    scores = score_texts(model, [("t", TEXT), ("u", "lower")], 64, 32)
    assert [s.keeps_text for s in scores] == [False, True] and not total(scores).keeps_text


@pytest.mark.parametrize(
    ("window", "stride", "words"),
    [
        (65, 32, "window 65 is not allowed; give an integer from 4 to 64"),
        (3, 1, "window 3"),
        (16, 0, "stride 0"),
        (16, 14, "from 1 to 13"),
    ],
)
def test_windows_that_do_not_fit(window: int, stride: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        score_texts(model_with("sequential"), [("t", TEXT)], window, stride)


def test_no_tokenizer_and_no_prefix() -> None:
    trunk = Trunk(fixtures.tiny_llama(), None, name="bare")
    with pytest.raises(UsageError, match="bare has no tokenizer"):
        score_texts(MTPModel(trunk), [("t", TEXT)], 64, 32)
    model = model_with("none")
    model.trunk.tokenizer.eos_token = None
    assert score_texts(model, [("t", "a")], 64, 32)[0].depths[0].num_targets == 1  # the trunk's EOS stands there
    model.trunk.model.generation_config.eos_token_id = model.trunk.config.eos_token_id = None
    with pytest.raises(UsageError, match="neither BOS nor EOS"):
        score_texts(model, [("t", "a")], 64, 32)


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_bytes("a\r\nü".encode())
    assert read_text(file) == "a\r\nü"
    for content, words in ((b"", "is empty"), (b"ok\xff", "not UTF-8 .*byte 2")):
        file.write_bytes(content)
        with pytest.raises(DataError, match=f"t.txt: {words}"):
            read_text(file)
    for path, words in ((tmp_path, "is a folder"), (tmp_path / "none", "cannot be read"), (file / "x", "cannot be")):
        with pytest.raises(DataError, match=words):
            read_text(path)


def test_nothing_scored_is_no_zero() -> None:
    score = TextScore("t", depths=[])
    assert total([TextScore("t")]).depths == score.depths == []
    from foretell.evaluation.text import DepthNll

    assert DepthNll().bits_per_token is None and DepthNll().coverage is None
