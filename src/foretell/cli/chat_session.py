"""ChatSession: lines in, answers out; a line that begins with / is a command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from foretell.cli.chat_answer import answer_to
from foretell.cli.chat_race import race
from foretell.cli.depths import check_shape, warn_beyond_training
from foretell.cli.loading import as_typed
from foretell.cli.options import MAX_DEPTH, parse_depth
from foretell.cli.output import counted
from foretell.errors import ForetellError, UsageError

if TYPE_CHECKING:
    from foretell.cli.chat_history import History
    from foretell.cli.chat_screen import Screen
    from foretell.cli.options import DepthChoice
    from foretell.config import SamplingParams

HELP = (
    "/help           this list",
    "/reset          forget what was said; the system text stays",
    "/depth N        guess N tokens a step; auto = as many as pay, off = plain decoding",
    "/system TEXT    tell the model this before all else; without TEXT, nothing",
    "/race           the last question again, plain and drafted: speeds, and whether the texts are equal (greedy)",
    "/exit           end the chat, as Ctrl-D does",
    "Ctrl-C stops an answer; what was said by then is kept. A question that begins with / needs a space before it.",
)


class ChatSession:
    """``depth``: tokens drafted a step; ``race_depth``: that of a race while it is 0, and 0 where nobody drafts."""

    def __init__(
        self,
        history: History,
        params: SamplingParams,
        depth: DepthChoice,
        race_depth: DepthChoice,
        num_nodes: int,
        screen: Screen,
    ) -> None:
        self.history = history
        self.depth = depth
        self._engine = history.engine
        self._params = params
        self._race_depth = race_depth
        self._num_nodes = num_nodes
        self._screen = screen
        self._last_prompt: list[int] = []

    def run(self, lines: Iterable[str]) -> int:
        """Take lines until they end, or /exit; returns how many could not be followed. Each has been told why."""
        num_failed = 0
        for line in lines:
            try:
                if line.startswith("/"):
                    name, _, rest = line.strip().partition(" ")
                    if name == "/exit":
                        break
                    self._command(name, rest.strip())
                elif question := line.strip():
                    self._ask(question)
            except ForetellError as error:
                num_failed += 1
                self._screen.say(f"error: {' '.join(as_typed(str(error)).split())}")
        return num_failed

    def _ask(self, question: str) -> None:
        history, screen = self.history, self._screen
        prompt, num_dropped = history.prompt(question, self._params.max_tokens)
        if num_dropped:
            dropped = f"{counted(num_dropped, 'oldest turn')} dropped{self._system_stays()}"
            screen.say(f"the window of {self._engine.max_length:,} tokens is full: {dropped}")
        self._last_prompt = prompt
        answer = answer_to(self._engine, prompt, self._params_for(prompt), self.depth, self._num_nodes, screen)
        if answer.text or answer.completion is not None:
            history.turns.append((question, answer.text))
        screen.say(answer.numbers() + self._ending(prompt, answer.completion is None, answer.token_ids))
        if answer.completion is None and not screen.is_live:
            raise KeyboardInterrupt  # of a pipe's lines nobody waits for the others

    def _params_for(self, prompt: list[int]) -> SamplingParams:
        return replace(self._params, max_tokens=min(self._params.max_tokens, self._engine.max_length - len(prompt)))

    def _ending(self, prompt: list[int], was_stopped: bool, token_ids: list[int]) -> str:
        if was_stopped:
            return " | stopped" + "; what was said is kept" * bool(token_ids)
        if token_ids[-1] in self._engine.model.trunk.eos_token_ids:
            return ""
        is_full = len(prompt) + len(token_ids) >= self._engine.max_length
        return " | cut: the window is full" if is_full else f" | cut: --max-tokens is {self._params.max_tokens}"

    def _command(self, name: str, rest: str) -> None:
        if name == "/help":
            self._screen.say(*HELP)
        elif name == "/reset":
            self.history.turns.clear()
            self._last_prompt = []
            self._screen.say("forgotten" + self._system_stays())
        elif name == "/depth":
            self._set_depth(rest)
        elif name == "/system":
            self._set_system(rest or None)
        elif name == "/race":
            self._race()
        else:
            raise UsageError(f'"{name}" is no command; /help lists them (a question may begin with a space and /)')

    def _system_stays(self) -> str:
        return "" if self.history.system is None else "; the system text stays"

    def _set_depth(self, text: str) -> None:
        if text:
            try:
                depth = 0 if text == "off" else parse_depth(text)
            except UsageError as error:
                raise UsageError(
                    f'/depth: "{text}" is not allowed; give an integer from 0 to {MAX_DEPTH}, auto, or off'
                ) from error
            nodes = self._num_nodes if depth else 0
            check_shape(depth, nodes or None)
            self._engine.check_depth(depth, nodes)
            warn_beyond_training([("", self._engine.model, self._engine.drafter)], [depth])
            self.depth, self._race_depth = depth, depth or self._race_depth
        is_idle = self.depth == "auto" and self._engine.drafter is None
        why = ": plain decoding" if self.depth == 0 else ": plain decoding, as nobody drafts here" if is_idle else ""
        self._screen.say(f"depth {self.depth}{why}")

    def _set_system(self, text: str | None) -> None:
        self.history.check_system(text)
        self.history.system = text
        self._screen.say("no system text any more" if text is None else f"system text: {text}")

    def _race(self) -> None:
        if not self._last_prompt:
            raise UsageError("/race: there is no question yet; ask one first")
        depth = self.depth or self._race_depth
        if self._engine.drafter is None:
            raise UsageError("/race: nobody drafts here; start with --heads or with --drafter ngram")
        prompt = self._last_prompt
        race(self._engine, prompt, self._params_for(prompt), depth, self._num_nodes, self._screen)
