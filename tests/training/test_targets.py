"""Which positions are trained, and on what."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretell.models.trunk import Trunk
from foretell.training.objective import Batch
from foretell.training.recipe import ObjectiveConfig
from foretell.training.states import trunk_outputs
from foretell.training.targets import ahead_of, count_valid, valid_mask
from tests.fixtures import EOS, PAD, encode, script_trunk, scripted_heads
from tests.training.batches import counts_of, loss_of

NONE = None


def targets(
    token_ids: list[int], doc_ids: list[int], depth: int, supervised: list[bool] | None = None
) -> list[int | None]:
    """Target of every position, None where it has none."""
    flags = torch.tensor([supervised or [True] * len(token_ids)])
    valid_BT = valid_mask(torch.tensor([doc_ids]), flags, depth)
    found = iter(ahead_of(torch.tensor([token_ids]), valid_BT, depth + 1).tolist())
    return [next(found) if valid else None for valid in valid_BT[0].tolist()]


def test_packed_samples_do_not_cross() -> None:
    """Two documents in one row, by hand."""
    tokens, documents = [1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 1, 1, 1]
    assert targets(tokens, documents, 0) == [2, 3, 4, NONE, 6, 7, NONE]
    assert targets(tokens, documents, 1) == [3, 4, NONE, NONE, 7, NONE, NONE]
    assert targets(tokens, documents, 2) == [4, NONE, NONE, NONE, NONE, NONE, NONE]
    assert targets(tokens, documents, 3) == [NONE] * 7
    assert targets(tokens, documents, 9) == [NONE] * 7
    counts = count_valid(torch.tensor([documents] * 2), torch.ones(2, 7, dtype=torch.bool), 3)
    assert counts.tolist() == [10, 6, 2, 0]


def test_padding_on_either_side_has_no_target() -> None:
    assert targets([0, 0, 1, 2, 3, 0, 0], [-1, -1, 0, 0, 0, -1, -1], 1) == [NONE, NONE, 3, NONE, NONE, NONE, NONE]
    assert targets([0] * 5, [-1] * 5, 1) == [NONE] * 5


def test_the_label_decides_not_the_input() -> None:
    """A prompt's last positions predict the answer; the answer's last have nothing to predict."""
    supervised = [False, False, False, True, True]
    assert targets([1, 2, 3, 4, 5], [0] * 5, 1, supervised) == [NONE, 4, 5, NONE, NONE]
    assert targets([1, 2, 3, 4, 5], [0] * 5, 2, supervised) == [4, 5, NONE, NONE, NONE]
    assert targets([1, 2, 3, 4, 5], [0] * 5, 1, [True, True, False, True, False]) == [NONE, 4, NONE, NONE, NONE]


@given(
    lengths=st.lists(st.integers(1, 6), max_size=5),
    num_pad=st.integers(0, 3),
    depth=st.integers(0, 4),
    data=st.data(),
)
def test_targets_are_those_of_each_document_alone(
    lengths: list[int], num_pad: int, depth: int, data: st.DataObject
) -> None:
    num_tokens = sum(lengths) + num_pad
    if num_tokens == 0:
        return
    supervised = data.draw(st.lists(st.booleans(), min_size=num_tokens, max_size=num_tokens))
    documents = [d for d, length in enumerate(lengths) for _ in range(length)] + [-1] * num_pad
    expected: list[int | None] = []
    start = 0
    for length in lengths:
        stop = start + length
        expected += [
            i + depth + 1 if i + depth + 1 < stop and supervised[i + depth + 1] else None for i in range(start, stop)
        ]
        start = stop
    assert targets(list(range(num_tokens)), documents, depth, supervised) == expected + [None] * num_pad


# The loss of a perfect head


def sample_batch(trunk: Trunk, layout: str) -> Batch:
    """11 random bytes, `>` and a chain of 8; the first 12 are no labels."""
    chain = encode(">hi😀!<eos>")
    prompt = torch.randint(100, 160, (11,), generator=torch.Generator().manual_seed(0)).tolist()
    tokens, supervised, documents = [*prompt, *chain], [False] * 12 + [True] * 8, [0] * 20
    rows = [(tokens, documents, supervised)]
    pad: tuple[list[int], list[int], list[bool]] = [PAD] * 30, [-1] * 30, [True] * 30  # a careless mask on padding
    if layout == "pad right":
        rows = [tuple(a + b for a, b in zip(rows[0], pad, strict=True))]  # type: ignore[misc]
    elif layout == "pad left":
        rows = [tuple(b + a for a, b in zip(rows[0], pad, strict=True))]  # type: ignore[misc]
    elif layout == "long and short":
        short = [*prompt[:2], *chain], [0] * 11, [False] * 3 + [True] * 8
        rows.append(tuple(a + b[:9] for a, b in zip(short, pad, strict=True)))  # type: ignore[arg-type]
    ids, documents_BT, supervised_BT = (torch.tensor([row[i] for row in rows]) for i in range(3))
    return Batch(ids, documents_BT, supervised_BT.bool(), *trunk_outputs(trunk, ids, documents_BT))


@pytest.mark.parametrize("layout", ["alone", "pad right", "pad left", "long and short"])
def test_prompts_and_padding_are_no_targets(layout: str) -> None:
    trunk = script_trunk(">hi😀!<eos>")
    assert trunk.eos_token_ids == {EOS}
    heads = scripted_heads(trunk, "perfect", num_depths=1)
    batch = sample_batch(trunk, layout)
    loss = loss_of(heads, batch, ObjectiveConfig("data"))
    num_samples = 2 if layout == "long and short" else 1
    assert counts_of(heads, batch).tolist() == [8 * num_samples] * 2
    [part] = loss.depths
    assert part.num_valid == int(part.num_agreed) == int(part.num_correct) == 8 * num_samples
    assert float(loss.total.detach()) < 0.001

    batch.supervised_BT = torch.ones_like(batch.supervised_BT)  # what the bug did
    if layout == "alone":
        assert float(loss_of(heads, batch, ObjectiveConfig("data")).total.detach()) > 1
