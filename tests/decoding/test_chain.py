"""Chains drafted in one kernel call are those that the heads draft depth by depth."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.decoding.engine import Engine, SamplingParams
from foretell.decoding.sequential_drafter import SequentialDrafter
from foretell.kernels.build import library
from foretell.models.fused_chain import FusedChain
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import unpack_linears
from foretell.models.trunk import Trunk
from foretell.types import Draft
from tests.fixtures import random_heads, tiny_gemma, tiny_llama, tiny_qwen3

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler")
PROMPTS = [[3, 5, 7], [9, 2, 4, 6, 8, 10, 12], [1], list(range(20, 90))]


def model_of(make: Any, precision: Any, dtype: torch.dtype, **config: Any) -> MTPModel:
    trunk = Trunk(make().to(dtype))
    trunk.precision = precision
    heads = random_heads(trunk, **{"num_modules": 1, "num_depths": 3, "unrolled": True, **config})
    model = MTPModel(trunk, heads)
    model.pack()
    return model


def drafts_of(model: MTPModel, monkeypatch: pytest.MonkeyPatch, depths: list[int]) -> list[list[int]]:
    """Everything that is drafted while texts are written side by side."""
    found = []
    own = SequentialDrafter.draft

    def draft(self: SequentialDrafter, rows: list[Any], shapes: list[Any]) -> list[Draft]:
        made = own(self, rows, shapes)
        found.extend(each.token_ids for each in made)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(SequentialDrafter, "draft", draft)
        engine = Engine(model, max_batch=len(PROMPTS))
        params = SamplingParams(max_tokens=12, ignore_eos=True)
        if len(set(depths)) == 1:
            engine.generate(PROMPTS, params, depth=depths[0])
        else:
            engine.generate(PROMPTS, [SamplingParams(max_tokens=12 + d, ignore_eos=True) for d in depths], depth=3)
    return found


CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "hidden first, raw": {"concat": "hidden_first", "feedback": "raw"},
    "own output": {"own_output": True},
    "draft vocabulary": {"draft_ids": [*range(0, 250, 3)]},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    ("precision", "dtype"), [(None, torch.float32), ("int8", torch.float32), (None, torch.bfloat16)]
)
def test_the_same_drafts(
    config: dict[str, Any], precision: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of different length, ends and depths, one of them with a prompt longer than the kernel reads."""
    calls = []
    own = FusedChain.draft

    def counted(self: FusedChain, *args: Any) -> list[list[int]]:
        calls.append(1)
        return own(self, *args)

    for make, depths in ((tiny_llama, [3] * 4), (tiny_qwen3, [1] * 4), (tiny_llama, [0, 1, 2, 3])):
        model = model_of(make, precision, dtype, **config)
        heads: Any = model.heads
        assert heads.chain is not None
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(FusedChain, "draft", counted)
            ours = drafts_of(model, monkeypatch, depths)
        assert len(calls) > 3
        heads.chain = None
        theirs = drafts_of(model, monkeypatch, depths)
        different = sum(a != b for a, b in zip(ours, theirs, strict=True))
        assert different <= (0.1 * len(ours) if dtype == torch.bfloat16 or precision else 0), (ours, theirs)


def test_other_heads_are_left_alone() -> None:
    """Several modules; a family whose norms have offsets for gains; a trunk that scales its embeddings or logits."""
    assert model_of(tiny_llama, None, torch.float32, num_modules=3, unrolled=False).heads.chain is None  # type: ignore[union-attr]
    assert model_of(tiny_gemma, None, torch.float32).heads.chain is None  # type: ignore[union-attr]
    scaled = tiny_llama()
    scaled.config.logit_scale = 0.5
    own = scaled.forward
    scaled.forward = lambda *a, **k: (out := own(*a, **k), setattr(out, "logits", out.logits * 0.5))[0]
    assert model_of(lambda: scaled, None, torch.float32).heads.chain is None  # type: ignore[union-attr]


def test_unpacked_heads_draft_depth_by_depth() -> None:
    model = model_of(tiny_llama, None, torch.float32)
    heads: Any = model.heads
    assert heads.chain.fits(1) and not heads.chain.fits(0) and not heads.chain.fits(65)
    unpack_linears(heads)
    assert not heads.chain.fits(1)
