"""Likely causes of a text that is not depth 0's: what a fresh pass of the trunk says of both tokens.

A guess for whoever has to look, from four observations: is either token missing, does a fresh pass side with one of the
two texts, how large is the gap, and do the trunk's layers carry a state.
"""

from __future__ import annotations

import torch

from foretell.models.trunk import Trunk

_FAR = 20
"""Limits (near_tie) beyond which rounding explains no 16-bit difference."""


def likely_cause(
    trunk: Trunk,
    logits_V: torch.Tensor,
    expected: int | None,
    got: int | None,
    gap: float,
    limit: float,
    batch: int,
    excused: bool,
) -> str:
    """One phrase. ``logits_V``: of a fresh plain pass over the prompt and what both texts have in common."""
    if excused:
        return "rounding: passes of different width round differently; --exact rules it out"
    if expected is None or got is None:
        return "the end of the text: an end token, a stop string or the length is counted at another place"
    best = int(logits_V.argmax())
    rows = " or rows of the batch see each other (mask, padding)" if batch > 1 else ""
    if best not in (expected, got):
        return (
            "both texts leave what a fresh pass says: the trunk's cache is wrong after the prompt, or the trunk does "
            "not give the same numbers twice"
        )
    if best == got:
        return (
            f"the text that is compared with leaves what a fresh pass says, this one does not: its cache is wrong{rows}"
        )
    if trunk.dtype not in (torch.float32, torch.float64) and limit and gap < _FAR * limit:
        return "rounding, if this trunk's states lose more than usual in its type: try --dtype float32"
    state = "the recurrent state was not taken back, " if trunk.is_recurrent else ""
    return (
        f"a drafted token was kept that the trunk would not write: after a rejection {state}entries of the cache are "
        f"stale, positions or the mask of the checking pass are wrong{rows}, or the verifier accepts too much"
    )
