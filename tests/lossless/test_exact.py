"""An exact engine: drafted and plain text, and every log-probability, equal bit for bit, in any batch."""

from __future__ import annotations

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.core import EXACT_WIDTH
from foretell.decoding.engine import Engine
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import can_pack
from foretell.models.trunk import Trunk
from foretell.types import Completion
from tests.fixtures import random_heads, tiny_llama
from tests.lossless.oracle import script_drafts

PROMPTS = [[7, 100, 3, 250, 41], [9] * 33, list(range(60))]
PARAMS = SamplingParams(max_tokens=30, ignore_eos=True, logprobs=0)


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def model(request: pytest.FixtureRequest) -> MTPModel:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "max_position_embeddings": 300}
    trunk = Trunk(tiny_llama(**sizes).to(request.param))
    made = MTPModel(trunk, random_heads(trunk, unrolled=True, num_depths=3))
    if can_pack(request.param, trunk.device):
        made.pack()
    return made


@pytest.fixture(scope="module")
def plain(model: MTPModel) -> list[Completion]:
    return Engine(model, exact=True).generate(PROMPTS, PARAMS)


@pytest.mark.parametrize("quality", ["perfect", "mixed", "wrong"])
@pytest.mark.parametrize(("max_batch", "depth"), [(1, 1), (1, EXACT_WIDTH - 1), (3, 0), (3, 3)])
def test_every_bit_is_that_of_plain_decoding(
    monkeypatch: pytest.MonkeyPatch,
    model: MTPModel,
    plain: list[Completion],
    max_batch: int,
    depth: int,
    quality: str,
) -> None:
    script_drafts(monkeypatch, plain, quality)
    got = Engine(model, max_batch, exact=True).generate(PROMPTS, PARAMS, depth=depth)
    for expected, completion in zip(plain, got, strict=True):
        assert completion.token_ids == expected.token_ids
        assert completion.logprobs == expected.logprobs
    if quality == "perfect" and depth:
        assert all(done.stats.acceptance_rate == 1 for done in got)


def test_without_it_rounding_shows() -> None:
    """Ordinary linear layers run another kernel for one node than for several: the comparison above can fail."""
    trunk = Trunk(tiny_llama(hidden_size=256, intermediate_size=512))
    model = MTPModel(trunk, random_heads(trunk, unrolled=True, num_depths=3))
    texts = {
        (exact, depth): Engine(model, exact=exact).generate(PROMPTS, PARAMS, depth=depth)
        for exact in (False, True)
        for depth in (0, 3)
    }
    differs = {
        exact: any(a.logprobs != b.logprobs for a, b in zip(texts[exact, 0], texts[exact, 3], strict=True))
        for exact in (False, True)
    }
    assert differs == {False: True, True: False}


def test_what_cannot_be_exact_is_refused(model: MTPModel) -> None:
    engine = Engine(model, exact=True)
    with pytest.raises(UsageError, match="draft at most 7"):
        engine.generate(PROMPTS, PARAMS, depth=EXACT_WIDTH)
    with pytest.raises(UsageError, match="num_nodes 6"):
        engine.generate(PROMPTS, PARAMS, depth=3, num_nodes=6)
