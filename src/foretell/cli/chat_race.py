"""The race: one question again, plain and drafted, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from foretell.cli.chat_answer import Answer, answer_to

if TYPE_CHECKING:
    from foretell.cli.chat_screen import Screen
    from foretell.cli.options import DepthChoice
    from foretell.config import SamplingParams
    from foretell.decoding.engine import Engine


def race(
    engine: Engine, prompt: list[int], params: SamplingParams, depth: DepthChoice, num_nodes: int, screen: Screen
) -> None:
    """Answer ``prompt`` greedily at depth 0 and at ``depth``, show both, and say how speeds and texts compare.

    Speeds leave out the reading of the prompt, which both share. Ctrl-C ends the race without a verdict.
    """
    greedy = replace(params, temperature=0.0, top_p=1.0, seed=None)
    screen.say("plain:")
    plain = answer_to(engine, prompt, greedy, 0, 0, screen)
    if plain.completion is not None:
        screen.say(f"depth {depth}:")
        drafted = answer_to(engine, prompt, greedy, depth, num_nodes, screen)
        if drafted.completion is not None:
            screen.say(f"{_speeds(plain, drafted, depth)} | {_texts(engine, prompt, plain, drafted, depth)}")
            return
    screen.say("the race was stopped")


def _speeds(plain: Answer, drafted: Answer, depth: DepthChoice) -> str:
    if not plain.tokens_per_s or not drafted.tokens_per_s:
        return "too short to measure a speed"
    ratio = drafted.tokens_per_s / plain.tokens_per_s
    return (
        f"plain {plain.tokens_per_s:.1f} tokens/s, depth {depth} {drafted.tokens_per_s:.1f} tokens/s: {ratio:.2f}x"
        + " (slower)" * (ratio < 1)
        + ", one run each"
    )


def _texts(engine: Engine, prompt: list[int], plain: Answer, drafted: Answer, depth: DepthChoice) -> str:
    num_tokens = len(plain.token_ids)
    if plain.token_ids == drafted.token_ids:
        return f"texts equal ({num_tokens} token{'s' * (num_tokens != 1)})"
    from foretell.analysis.lossless import explain
    from foretell.analysis.texts import BenchPrompt

    asked = BenchPrompt("chat", prompt, "")
    found = explain(engine.model.trunk, asked, plain.token_ids, drafted.token_ids, 0, depth)
    where = f"texts differ from token {found.position + 1} on"
    if found.verdict == "near tie":
        return f"{where}: the two likeliest nearly tie there (logit gap {found.gap:.3f}), and rounding decides"
    return f"{where} (logit gap {found.gap:.3f}): this is a BUG; foretell verify shows where it begins"
