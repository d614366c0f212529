"""Packed 16-bit weights: a token's state and logits do not depend on what was drafted beside it, bit for bit."""

from __future__ import annotations

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.kernels.build import library
from foretell.models.decoder import States
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import can_pack
from foretell.models.trunk import Trunk
from foretell.types import Completion
from tests.fixtures import random_heads, tiny_llama
from tests.lossless.oracle import script_drafts

PROMPT = [7, 100, 3, 250, 41]


@pytest.fixture(scope="module", params=[4, 2], ids=["a key head a query head", "shared key heads"])
def num_kv_heads(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module", params=["bfloat16", "float32", "int8"])
def model(request: pytest.FixtureRequest, num_kv_heads: int) -> MTPModel:
    dtype = torch.bfloat16 if request.param == "bfloat16" else torch.float32
    if not can_pack(dtype, torch.device("cpu")) or (dtype == torch.float32 and library() is None):
        pytest.skip(f"this machine has no kernels whose rows round alike for {request.param}")
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4}
    config = {**sizes, "num_key_value_heads": num_kv_heads, "max_position_embeddings": 200}
    trunk = Trunk(tiny_llama(**config).to(dtype))
    trunk.precision = request.param if request.param.startswith("int") else None
    made = MTPModel(trunk, random_heads(trunk, unrolled=True, num_depths=3))
    made.pack()
    return made


def run(model: MTPModel, depth: int) -> tuple[Completion, dict[int, torch.Tensor], list[torch.Tensor]]:
    """A text, the state of the token at each position, and the logits that each token was chosen from.

    A rejected token's state gives way to that of its successor.
    """
    states: dict[int, torch.Tensor] = {}
    passes: list[torch.Tensor | None] = []
    compute, project = model.trunk.states, model.trunk.project

    def kept(embeddings: torch.Tensor, positions_BT: torch.Tensor, *rest: object, **more: object) -> States:
        out = compute(embeddings, positions_BT, *rest, **more)  # type: ignore[arg-type]
        for node, position in reversed(list(enumerate(positions_BT[0].tolist()))):  # padding comes after its token
            states[position] = out.post_BTD[0, node]
        passes.append(None)
        return out

    def seen(states_MD: torch.Tensor) -> torch.Tensor:
        found = project(states_MD)
        if passes[-1:] == [None]:  # else it is the heads that ask
            passes[-1] = found
        return found

    engine = Engine(model)  # which measures an entry of its caches with a pass of its own
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.trunk, "states", kept)
        patch.setattr(model.trunk, "project", seen)
        params = SamplingParams(max_tokens=140, ignore_eos=True)
        [done] = engine.generate([PROMPT], params, depth=depth)
    logits: list[torch.Tensor] = []
    for logits_MV in passes:
        assert logits_MV is not None
        taken = 1
        while done.origins[len(logits) + taken - 1] == "accepted":
            taken += 1
        logits += logits_MV[:taken]
    return done, states, logits


@pytest.mark.parametrize("quality", ["perfect", "mixed", "wrong", "random"])
@pytest.mark.parametrize("depth", [1, 4, 16])
def test_states_and_logits_do_not_depend_on_the_depth(
    monkeypatch: pytest.MonkeyPatch, model: MTPModel, depth: int, quality: str
) -> None:
    """145 positions: two blocks of keys are begun on the way."""
    plain, states, logits = run(model, 0)
    script_drafts(monkeypatch, [plain], quality)
    got, states_drafted, logits_drafted = run(model, depth)
    assert got.token_ids == plain.token_ids
    if quality in ("perfect", "wrong"):
        assert got.stats.acceptance_rate == (quality == "perfect")
    for position in range(len(PROMPT) + len(plain.token_ids) - 1):
        assert torch.equal(states_drafted[position], states[position]), f"position {position}"
    for index in range(len(plain.token_ids)):
        assert torch.equal(logits_drafted[index], logits[index]), f"token {index}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_window_that_is_no_multiple_of_the_block(dtype: torch.dtype) -> None:
    """Filled to its last position, at any depth."""
    trunk = Trunk(tiny_llama(max_position_embeddings=75).to(dtype))
    model = MTPModel(trunk, random_heads(trunk, unrolled=True, num_depths=3))
    if can_pack(dtype, trunk.device):
        model.pack()
    params = SamplingParams(max_tokens=200, ignore_eos=True)
    [plain] = Engine(model).generate([PROMPT], params)
    assert len(plain.token_ids) == 70
    for depth in (1, 4):
        [done] = Engine(model).generate([PROMPT], params, depth=depth)
        assert len(done.token_ids) == 70
        assert dtype == torch.bfloat16 and not can_pack(dtype, trunk.device) or done.token_ids == plain.token_ids
