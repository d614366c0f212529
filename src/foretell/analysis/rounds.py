"""Rounds foretold: the acceptance that an engine would count on a text, from the heads' guesses at every place of it.

A guess is right where it is the trunk's own choice at that place. On a text that the trunk wrote greedily an accepted
guess then reads the text's own tokens. So one pass of trunk and heads says what every round would accept, and walking
from round to round (over what was accepted, and the trunk's own token) gives the counts of decoding, not those of all
places alike: rounds begin behind a guess that failed, at hard places more often than their share.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from foretell.models.greedy import argmax
from foretell.models.heads import Heads
from foretell.models.sequential import SequentialHeads
from foretell.types import AcceptanceStats


@torch.inference_mode()
def right_guesses(heads: Heads, token_ids: list[int], num_depths: int) -> torch.Tensor:
    """(K, T) bool: whether the guess of depth k at place i is the trunk's choice for token i + k + 1; False beyond the
    text's end.
    """
    trunk = heads.trunk
    ids_BT = torch.tensor([token_ids], device=trunk.device)
    doc_ids_BT = torch.zeros_like(ids_BT)
    trunk_states = trunk.text_states(ids_BT, doc_ids_BT)
    chosen_T = argmax(trunk.project(trunk_states.post_BTD[0]).float())
    states = heads.training_states(trunk_states, trunk.embed(ids_BT), doc_ids_BT, num_depths)
    right_KT = torch.zeros(num_depths, len(token_ids), dtype=torch.bool)
    for depth, state_BTD in enumerate(states, start=1):
        num_places = len(token_ids) - depth - 1
        if num_places > 0:
            guessed_N = heads.to_token_ids(argmax(heads.project(state_BTD[0, :num_places], depth).float()))
            right_KT[depth - 1, :num_places] = (guessed_N == chosen_T[depth:-1]).cpu()
    return right_KT


def walk(right_KT: torch.Tensor, num_prompt: int, max_tokens: int) -> AcceptanceStats:
    """Counts of the rounds that decode the output, behind ``num_prompt`` tokens and of at most ``max_tokens``."""
    num_depths, num_tokens = right_KT.shape
    stats = AcceptanceStats()
    place = num_prompt - 1  # the newest state; the root is the token after it, which the prompt's pass gave
    while place + 2 < num_tokens:
        room = max_tokens - (place + 2 - num_prompt)  # tokens that may still follow the root
        depth = min(num_depths, room - 1)
        accepted = 0
        while accepted < depth and right_KT[accepted, place]:
            accepted += 1
        stats.count(depth, accepted)
        place += accepted + 1
    return stats


@contextmanager
def convention(heads: Heads, **changed: Any) -> Iterator[Heads]:
    """``heads`` with other conventions while it lasts, such as ``hidden_source="pre"``."""
    config = heads.config
    modules = [*heads.modules_by_depth] if isinstance(heads, SequentialHeads) else []
    owners: list[Any] = [heads, *modules]
    try:
        for owner in owners:
            owner.config = replace(config, **changed)
        yield heads
    finally:
        for owner in owners:
            owner.config = config
