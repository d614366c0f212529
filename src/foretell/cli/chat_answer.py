"""One answer as it comes: shown token by token, timed, and kept as far as it got."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.cli.chat_screen import Screen
    from foretell.cli.options import DepthChoice
    from foretell.config import SamplingParams
    from foretell.decoding.engine import Engine
    from foretell.decoding.worker import Chunk
    from foretell.types import Completion


@dataclass
class Answer:
    """``passes``: (seconds since the question, tokens) of every pass that brought some. ``completion``: None where the
    answer was stopped.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    passes: list[tuple[float, int]] = field(default_factory=list)
    completion: Completion | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Decoding alone: tokens after the first pass, which reads the prompt, over their time; None without any."""
        num_tokens = sum(count for _, count in self.passes[1:])
        return num_tokens / (self.passes[-1][0] - self.passes[0][0]) if num_tokens else None

    def numbers(self) -> str:
        """One line: tokens, speed, tokens a pass, acceptance by depth."""
        if not self.passes:
            return "nothing was said"
        parts = [f"{len(self.token_ids)} token{'s' * (len(self.token_ids) != 1)}"]
        first = f"first after {self.passes[0][0]:.2f} s"
        parts.append(first if self.tokens_per_s is None else f"{self.tokens_per_s:.1f} tokens/s, {first}")
        parts.append(f"{len(self.token_ids) / len(self.passes):.2f} tokens a pass")
        if self.completion is not None:
            rates = self.completion.stats.acceptance_by_depth
            shown = " ".join(f"{rate:.2f}" for rate in rates)
            parts.append(f"acceptance by depth {shown}" if rates else "nothing drafted")
        return " | ".join(parts)


class OriginText:
    """Cuts the text of chunks where tokens of one origin end; a character of several tokens goes with its last."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._ends: list[tuple[int, bool]] = []  # of tokens: place in the text, whether it was accepted
        self._num_shown = 0

    def take(self, chunk: Chunk) -> list[tuple[str, bool]]:
        """(text, accepted); joined they are the chunk's text."""
        for token_id, origin in zip(chunk.token_ids, chunk.origins, strict=True):
            self._token_ids.append(token_id)
            text = self._tokenizer.decode(self._token_ids, skip_special_tokens=True)
            if not text.endswith("\ufffd"):
                self._ends.append((len(text), origin == "accepted"))
        parts: list[tuple[str, bool]] = []
        left = chunk.text
        while left:
            while len(self._ends) > 1 and self._ends[0][0] <= self._num_shown:
                del self._ends[0]
            end, accepted = self._ends[0] if self._ends else (0, False)
            size = end - self._num_shown if end > self._num_shown else len(left)
            part, left = left[:size], left[size:]
            self._num_shown += len(part)
            if parts and parts[-1][1] == accepted:
                part = parts.pop()[0] + part
            parts.append((part, accepted))
        return parts


def answer_to(
    engine: Engine, prompt: list[int], params: SamplingParams, depth: DepthChoice, num_nodes: int, screen: Screen
) -> Answer:
    """Show the answer while it is made. Ctrl-C stops it; what had come by then is in the answer.

    Raises what the engine raises, for example UsageError for a depth that cannot be drafted.
    """
    answer = Answer()
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(_listen(engine, prompt, params, depth, num_nodes, screen, answer))
    finally:
        if answer.completion is None:
            _settle(engine)
    if answer.passes:
        screen.end()
    return answer


async def _listen(
    engine: Engine,
    prompt: list[int],
    params: SamplingParams,
    depth: DepthChoice,
    num_nodes: int,
    screen: Screen,
    answer: Answer,
) -> None:
    origins = OriginText(engine.model.tokenizer)
    start = time.perf_counter()
    stream: Any = engine.stream(prompt, params, depth, num_nodes if depth else 0, label="chat")
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            if chunk.token_ids:
                answer.passes.append((time.perf_counter() - start, len(chunk.token_ids)))
            answer.text += chunk.text
            answer.token_ids += chunk.token_ids
            answer.completion = chunk.completion
            for part, accepted in origins.take(chunk):
                screen.part(part, accepted)


def _settle(engine: Engine) -> None:
    """Wait until a step that still runs is over: torch aborts a process that exits in the midst of one."""
    while engine.num_running or engine.num_waiting:
        time.sleep(0.005)
