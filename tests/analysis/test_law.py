from __future__ import annotations

import pytest
import torch

from foretell.analysis.law import HEAD_PROBS, TRUNK_PROBS, check_sampling_law, expected_law, known_model
from foretell.analysis.lossless import next_logits
from foretell.decoding import judge
from foretell.types import Draft, Verdict


def test_known_model_has_the_law_it_claims() -> None:
    model = known_model()
    for text in ([0], [3, 2, 1]):
        probs = next_logits(model.trunk, text).softmax(-1)
        assert probs[:4].tolist() == pytest.approx(TRUNK_PROBS, abs=1e-5)


def test_expected_law_by_hand() -> None:
    """Numbers known by hand."""
    assert expected_law(TRUNK_PROBS, 1.0) == pytest.approx(TRUNK_PROBS)
    assert expected_law(TRUNK_PROBS, 0.5) == pytest.approx([0.685, 0.247, 0.062, 0.007], abs=1e-3)
    assert expected_law(TRUNK_PROBS, 1.0, top_p=0.85) == pytest.approx([0.5263, 0.3158, 0.1579, 0.0], abs=1e-4)
    # 0.5/0.95 + 0.3/0.95 = 0.842 holds 0.83 of the re-normalised three, but not of the four
    assert expected_law(TRUNK_PROBS, 1.0, top_k=3, top_p=0.83) == pytest.approx([0.625, 0.375, 0.0, 0.0])
    assert expected_law(TRUNK_PROBS, 1.0, min_p=0.2) == pytest.approx([0.5263, 0.3158, 0.1579, 0.0], abs=1e-4)


def test_samples_keep_the_law_and_seeds_repeat() -> None:
    laws = check_sampling_law(1000, depths=[2])
    assert all(law.passed for law in laws)
    # sum of min(p, q) is what is accepted of first drafts; deeper ones are reached less often
    p, q = torch.tensor(TRUNK_PROBS), torch.tensor(HEAD_PROBS)
    rate = laws[0].acceptance_rate
    assert rate is not None and 0.5 < rate < float(torch.minimum(p, q).sum())
    assert [law.counted for law in laws] == [law.counted for law in check_sampling_law(1000, depths=[2])]


def test_accepting_every_draft_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept_all(draft: Draft, probs_NV: torch.Tensor, generator: object) -> Verdict:
        return Verdict(list(range(len(draft))), int(probs_NV[-1].argmax()), True)

    monkeypatch.setattr(judge, "verify_sampled", accept_all)
    assert not any(law.passed for law in check_sampling_law(500, depths=[1]) if law.settings == {"temperature": 1.0})
