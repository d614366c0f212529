"""One width for every pass: in bf16 a token's state does not depend on what was drafted beside it, bit for bit."""

from __future__ import annotations

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import UsageError
from foretell.models.decoder import States
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import can_pack
from foretell.models.trunk import Trunk
from foretell.types import Completion
from tests.fixtures import random_heads, tiny_llama
from tests.lossless.oracle import script_drafts

WIDTH = 8
PROMPT = [7, 100, 3, 250, 41]


@pytest.fixture(scope="module", params=["plain", "packed"])
def model(request: pytest.FixtureRequest) -> MTPModel:
    trunk = Trunk(tiny_llama(hidden_size=256, intermediate_size=512, max_position_embeddings=200).bfloat16())
    made = MTPModel(trunk, random_heads(trunk, unrolled=True, num_depths=3))
    if request.param == "packed":
        if not can_pack(torch.bfloat16, trunk.device):
            pytest.skip("this CPU packs no bf16 weights")
        made.pack()
    return made


def run(model: MTPModel, depth: int, width: int) -> tuple[Completion, dict[int, torch.Tensor]]:
    """A text, and the state of the token at each position; a rejected token's gives way to that of its successor."""
    states: dict[int, torch.Tensor] = {}
    compute = model.trunk.states

    def kept(embeddings: torch.Tensor, positions_BT: torch.Tensor, *rest: object) -> States:
        out = compute(embeddings, positions_BT, *rest)  # type: ignore[arg-type]
        for node, position in reversed(list(enumerate(positions_BT[0].tolist()))):  # padding comes after its token
            states[position] = out.post_BTD[0, node]
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.trunk, "states", kept)
        params = SamplingParams(max_tokens=140, ignore_eos=True)
        [done] = Engine(model, width=width).generate([PROMPT], params, depth=depth)
    return done, states


@pytest.mark.parametrize("quality", ["perfect", "mixed", "wrong", "random"])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_states_do_not_depend_on_the_depth(
    monkeypatch: pytest.MonkeyPatch, model: MTPModel, depth: int, quality: str
) -> None:
    """145 positions: two blocks of keys are begun on the way."""
    plain, expected = run(model, 0, WIDTH)
    script_drafts(monkeypatch, [plain], quality)
    got, states = run(model, depth, WIDTH)
    assert got.token_ids == plain.token_ids
    for position in range(len(PROMPT) + len(plain.token_ids) - 1):
        assert torch.equal(states[position], expected[position]), f"position {position}"


def test_the_window_ends_as_without_a_width() -> None:
    """A window that is no multiple of the block of keys, filled to its last position."""
    trunk = Trunk(tiny_llama(max_position_embeddings=75))
    model = MTPModel(trunk, random_heads(trunk, unrolled=True, num_depths=3))
    params = SamplingParams(max_tokens=200, ignore_eos=True)
    [plain] = Engine(model, width=1).generate([PROMPT], params)
    assert len(plain.token_ids) == 70
    for depth in (0, 1, 4):
        [done] = Engine(model, width=WIDTH).generate([PROMPT], params, depth=depth)
        assert done.token_ids == plain.token_ids


def test_width_by_default() -> None:
    """Free only where bf16 weights are packed; a batch shares it."""
    trunk = Trunk(tiny_llama())
    assert Engine(MTPModel(trunk)).width == 1
    packed = MTPModel(Trunk(tiny_llama().bfloat16()))
    packed.pack()
    expected = [8, 4, 1] if can_pack(torch.bfloat16, trunk.device) else [1, 1, 1]
    assert [Engine(packed, max_batch).width for max_batch in (1, 2, 64)] == expected


@pytest.mark.parametrize("width", [0, -1, True, 1.5, "8"])
def test_a_wrong_width_is_refused(width: object) -> None:
    with pytest.raises(UsageError, match="width"):
        Engine(MTPModel(Trunk(tiny_llama())), width=width)  # type: ignore[arg-type]
