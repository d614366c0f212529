"""The chat on scripted models: after ">" they say the alphabet, round and round; a chat is its messages' contents."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from foretell.checkpoints.adapter import save_adapter
from foretell.cli import chat as chat_module
from foretell.cli.chat_answer import Answer, OriginText
from foretell.cli.chat_history import History
from foretell.cli.chat_race import race
from foretell.cli.chat_screen import Screen
from foretell.cli.chat_session import HELP, ChatSession
from foretell.cli.origins import pieces
from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.decoding.worker import Chunk
from foretell.errors import ContextLengthError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests import fixtures
from tests.cli.conftest import CHAT_TEMPLATE, save
from tests.fixtures import byte_tokenizer, encode

CHAIN = ">abcdefghijklmnopqrstuvwxyz>"
NO_SYSTEM = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}{{ m.content }}"
NO_SYSTEM += "{% endfor %}"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``cycle`` with heads ``right`` and ``two``; ``picky`` refuses system texts; ``bare`` has no template."""
    root = tmp_path_factory.mktemp("chat")
    trunk = fixtures.script_trunk(CHAIN, max_positions=256)
    for name, template in (("cycle", CHAT_TEMPLATE), ("picky", NO_SYSTEM), ("bare", None)):
        trunk.tokenizer = byte_tokenizer(template)
        save(trunk, root / name)
    save_adapter(fixtures.scripted_heads(trunk, "perfect"), root / "right", dtype=torch.float32)
    two = fixtures.scripted_heads(trunk, "perfect", unrolled=False, num_modules=2, num_depths=2)
    save_adapter(two, root / "two", dtype=torch.float32)
    return root


@pytest.fixture
def pipe(run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run ``foretell chat`` on lines from a pipe."""

    def call(lines: str | bytes, *argv: object) -> Any:
        raw = lines if isinstance(lines, bytes) else lines.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))
        return run("chat", *argv)

    return call


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Ctrl-C counts, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Seat:
    """A session at a terminal of strings; by default with heads that are always right."""

    def __init__(
        self,
        trunk: Trunk | None = None,
        depth: Any = 3,
        heads: Any = "perfect",
        is_live: bool = True,
        num_nodes: int = 0,
        colour: Any = None,
        window: int = 256,
        **params: Any,
    ) -> None:
        trunk = trunk or fixtures.script_trunk(CHAIN, max_positions=window)
        trunk.tokenizer = byte_tokenizer(CHAT_TEMPLATE)
        self.engine = Engine(MTPModel(trunk, fixtures.scripted_heads(trunk, heads) if heads == "perfect" else heads))
        self.out, self.err = io.StringIO(), io.StringIO()
        answers = Console(file=self.out, width=200, force_terminal=bool(colour), color_system=colour)
        screen = Screen(is_live, answers, Console(file=self.err, width=200))
        self.history = History(self.engine)
        sampling = SamplingParams(**{"max_tokens": 9} | params)
        self.session = ChatSession(self.history, sampling, depth, depth or 3, num_nodes, screen)
        self.num_failed = 0

    def take(self, *lines: str) -> list[str]:
        """What is said of the lines, answers left out."""
        before = len(self.err.getvalue())
        self.num_failed = self.session.run(lines)
        return self.err.getvalue()[before:].splitlines()

    @property
    def answers(self) -> list[str]:
        return [answer for _, answer in self.history.turns]


def test_lines_from_a_pipe(pipe: Any, models: Path) -> None:
    line = (models / "cycle", "--heads", models / "right", "--max-tokens", 9)
    ran = pipe(">\n\n   \n c\n", *line)
    assert (ran.code, ran.out) == (0, "abcdefghi\ndefghijkl\n")
    _, numbers, second = ran.err.splitlines()
    assert numbers.startswith("9 tokens | ") and " tokens/s, first after " in numbers
    assert "| 3.00 tokens a pass | acceptance by depth 1.00 1.00 1.00 | cut: --max-tokens is 9" in numbers
    assert second.startswith("9 tokens | ")
    ran = pipe("c\n/exit\nd\n", *line, "--depth", 0)
    assert (ran.code, ran.out) == (0, "defghijkl\n") and "nothing drafted" in ran.err
    assert (pipe("", *line).code, pipe("", *line).out) == (0, "")


def test_a_line_that_cannot_be_followed(pipe: Any, models: Path) -> None:
    ran = pipe("/no\n" + "x" * 300 + "\nc\n", models / "cycle", "--max-tokens", 2)
    assert (ran.code, ran.out) == (1, "de\n")
    no, long, _ = ran.err.splitlines()
    assert no.startswith('error: "/no" is no command') and "/help" in no
    assert long.startswith("error: ") and "300 tokens" in long and "256" in long
    assert pipe(b"c\n\xff\n", models / "cycle", "--max-tokens", 2).code == 2


class Unreadable(io.StringIO):
    def __next__(self) -> str:
        raise IsADirectoryError(21, "Is a directory")


def test_standard_input_that_is_none(run: Any, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert run("chat", models / "cycle").code == 0
    monkeypatch.setattr("sys.stdin", Unreadable())
    ran = run("chat", models / "cycle")
    assert ran.code == 2 and ran.err.startswith("error: standard input cannot be read (Is a directory)")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("bare", 2, ["bare has no chat template", "foretell generate", "bare PROMPT"]),
        ("picky --system x", 2, ["--system", "template refuses"]),
        ("cycle --system=", 2, ["--system", '""']),
        ("cycle --depth 2", 2, ["--depth", "no heads"]),
        ("cycle --depth 2 --nodes 2", 2, ["--nodes: 2 nodes at depth 2"]),
        ("cycle --heads two --depth 3", 2, ["--depth", "2 trained modules"]),
        ("cycle --temperature nan", 2, ["--temperature", "nan"]),
        ("cycle --drafter model", 2, ["--drafter model", "--draft-model"]),
        ("nowhere", 1, ["nowhere", "no such file"]),
    ],
)
def test_what_cannot_chat_says_so(
    pipe: Any, models: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int, words: list[str]
) -> None:
    monkeypatch.chdir(models)
    ran = pipe("x\n", *line.split())
    assert (ran.code, ran.out) == (code, "")
    error = ran.err.splitlines()[-1]
    assert error.startswith("error: ")
    for word in words:
        assert word in error


def test_a_model_without_a_tokenizer(pipe: Any, models: Path, tmp_path: Path) -> None:
    fixtures.tiny_llama().save_pretrained(tmp_path / "mute")
    ran = pipe("x\n", tmp_path / "mute")
    assert ran.code == 2 and "no tokenizer" in ran.err and "foretell generate" in ran.err


def test_the_whole_chat_is_the_prompt() -> None:
    seat = Seat()
    seat.history.system = "S"
    seat.take(">", "c")
    assert seat.history.turns == [(">", "abcdefghi"), ("c", "defghijkl")]
    assert seat.history.prompt("q", 9) == (encode("S>abcdefghicdefghijklq"), 0)
    assert seat.take("/reset") == ["forgotten; the system text stays"]
    assert seat.history.prompt("q", 9) == (encode("Sq"), 0)


def test_a_full_window_drops_the_oldest_turns() -> None:
    seat = Seat(window=64, max_tokens=20)  # an answer needs room for 16, a quarter of the window
    assert len(seat.take("/system S", "a", "b")) == 3 and len(seat.history.turns) == 2  # 43 tokens now
    said = seat.take("cc")
    assert len(said) == 1 and said[0].endswith("cut: the window is full")
    assert seat.answers[-1] == "defghijklmnopqrstuv"  # 45 and 19 are 64
    said = seat.take("d")
    assert said[0] == "the window of 64 tokens is full: 1 oldest turn dropped; the system text stays"
    assert [question for question, _ in seat.history.turns] == ["b", "cc", "d"]
    assert seat.history.prompt("q", 1)[0][:3] == encode("Scc")
    seat.history.turns.insert(0, ("x" * 10, "y" * 10))
    assert seat.history.prompt("q" * 20, 20)[1] == 2


def test_a_question_that_never_fits_drops_nothing() -> None:
    seat = Seat(window=64)
    seat.take("a")
    [said] = seat.take("q" * 64)
    assert said.startswith("error:") and "64" in said and seat.num_failed == 1 and len(seat.answers) == 1
    with pytest.raises(ContextLengthError):
        seat.history.prompt("q" * 64, 1)
    assert len(seat.history.prompt("q" * 63, 1)[0]) == 63 and seat.answers == []
    small = Engine(seat.engine.model, memory_budget=2**20)
    assert small.max_length <= 64


def interrupt_after(engine: Engine, num_steps: int) -> None:
    """Ctrl-C, as a terminal sends it, in the midst of an answer."""
    left = [num_steps]

    def on_step(works: Any, times: Any) -> None:
        time.sleep(0.02)  # the tokens of the steps before are read
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGINT)

    engine.watch(on_step)


def test_ctrl_c_stops_an_answer_and_keeps_what_was_said() -> None:
    seat = Seat(max_tokens=200)
    interrupt_after(seat.engine, 3)
    [said] = seat.take("c")
    assert (seat.engine.num_running, seat.engine.num_waiting) == (0, 0)  # a process that ends now ends in peace
    assert said.endswith("| stopped; what was said is kept") and "tokens a pass" in said
    [answer] = seat.answers
    assert 1 <= len(answer) < 200 and answer == ("defghijklmnopqrstuvwxyz>abc" * 9)[: len(answer)]
    assert seat.out.getvalue().replace("‹", "").replace("›", "") == answer + "\n"
    said = seat.take("d")
    assert "stopped" not in said[0] and len(seat.answers) == 2
    assert (seat.engine.num_running, seat.engine.num_waiting, seat.engine.cache_use) == (0, 0, 0)


def test_ctrl_c_ends_the_lines_of_a_pipe() -> None:
    seat = Seat(max_tokens=200, is_live=False)
    interrupt_after(seat.engine, 2)
    with pytest.raises(KeyboardInterrupt):
        seat.take("c", "d")
    assert len(seat.answers) == 1


def test_an_answer_of_which_nothing_came_is_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seat = Seat()
    monkeypatch.setattr("foretell.cli.chat_session.answer_to", lambda *_: Answer())
    assert seat.take("c") == ["nothing was said | stopped"] and seat.answers == []


def test_colours_and_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    seat = Seat(colour="standard")
    seat.take(">")
    assert seat.out.getvalue() == "a\x1b[1;32mbcd\x1b[0me\x1b[1;32mfgh\x1b[0mi\n"
    seat = Seat()
    seat.take(">", "/depth 0", ">")
    assert seat.out.getvalue() == "a‹bcd›e‹fgh›i\nabcdefghi\n"


def test_a_model_does_not_steer_the_terminal() -> None:
    out = io.StringIO()
    screen = Screen(True, Console(file=out), Console(file=out))
    screen.part("a\x1b[2J\x9bb\r\t[bold]\n", True)
    screen.say("\x1b]0;x\x07")
    assert out.getvalue().replace(" ", "") == "‹a�[2J�b�[bold]\n›�]0;x�\n"


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_origins_of_a_stream_are_those_of_the_whole(depth: int) -> None:
    """Characters of several tokens, whole and in chunks."""
    seat = Seat(fixtures.script_trunk(">a😀é中!<eos>X"), depth=depth, max_tokens=30)
    seat.take(">")
    assert seat.answers == ["a😀é中!"]
    [done] = seat.engine.generate([">"], SamplingParams(max_tokens=30), depth=depth)
    parts = pieces(byte_tokenizer(), done.token_ids, done.origins)
    whole = "".join(f"‹{part}›" if accepted else part for part, accepted in parts if part)
    assert seat.out.getvalue().replace("›‹", "") == whole + "\n"


def test_a_text_held_back_keeps_its_origins() -> None:
    ids = encode("ab😀c")
    origins = OriginText(byte_tokenizer())
    first = Chunk(ids[:4], "a", origins=["recovered", "accepted", "accepted", "accepted"])
    assert origins.take(first) == [("a", False)]
    assert origins.take(Chunk(ids[4:], "b😀c", origins=["accepted", "recovered", "bonus"])) == [
        ("b", True),
        ("😀c", False),
    ]


def test_depth(models: Path) -> None:
    seat = Seat(num_nodes=5)
    assert seat.take("/depth", "/depth off", "/depth 2") == ["depth 3", "depth 0: plain decoding", "depth 2"]
    assert seat.take("/depth auto") == ["depth auto"] and seat.session.depth == "auto"
    for wrong in ("x", "-1", "65", "1.5", "2 3"):
        [said] = seat.take(f"/depth {wrong}")
        assert said == f'error: /depth: "{wrong}" is not allowed; give an integer from 0 to 64, auto, or off'
    [said] = seat.take("/depth 6")
    assert said.startswith("error: ") and "5 nodes at depth 6" in said and seat.session.depth == "auto"
    plain = Seat(depth=0, heads=None)
    assert plain.take("/depth auto") == ["depth auto: plain decoding, as nobody drafts here"]
    [said] = plain.take("/depth 2")
    assert "no heads" in said and plain.num_failed == 1 and plain.session.depth == "auto"
    assert Seat().take("/depth 2", ">")[1].split(" | ")[3] == "acceptance by depth 1.00 1.00"


def test_system() -> None:
    seat = Seat()
    assert seat.take("/system  Be brief. ") == ["system text: Be brief."]
    assert seat.history.prompt("q", 1)[0] == encode("Be brief.q")
    assert seat.take("/system") == ["no system text any more"] and seat.history.system is None
    seat.engine.model.tokenizer.chat_template = NO_SYSTEM
    [said] = seat.take("/system x")
    assert said.startswith("error: ") and "template refuses" in said and seat.history.system is None


def test_race() -> None:
    seat = Seat(temperature=1.0, seed=1)
    [said] = seat.take("/race")
    assert said == "error: /race: there is no question yet; ask one first"
    seat.take(">", "c")
    seat.out.truncate(0)
    seat.out.seek(0)
    plain, drafted, verdict = seat.take("/race")
    assert (plain, drafted) == ("plain:", "depth 3:") and len(seat.answers) == 2
    assert seat.out.getvalue() == "defghijkl\nd‹efg›h‹ijk›l\n"
    assert (
        verdict.startswith("plain ")
        and ", depth 3 " in verdict
        and "x, one run each" in verdict.replace(" (slower)", "")
    )
    assert verdict.endswith("| texts equal (9 tokens)")
    assert seat.take("/depth off", "/race")[2] == "depth 3:"
    assert seat.take("/depth 2", "/depth off", "/race")[3] == "depth 2:"
    assert "no question yet" in seat.take("/reset", "/race")[1]
    plain_seat = Seat(depth=0, heads=None)
    assert "nobody drafts here" in plain_seat.take("c", "/race")[-1]
    interrupt_after(seat.engine, 3)
    assert seat.take("c")[-1].endswith("kept")
    interrupt_after(seat.engine, 3)
    assert seat.take("/race")[-1] == "the race was stopped"


@pytest.mark.parametrize(("probs", "words"), [((0.5, 0.5), "nearly tie"), ((0.9, 0.1), "this is a BUG")])
def test_a_race_whose_texts_differ(monkeypatch: pytest.MonkeyPatch, probs: Any, words: str) -> None:
    seat = Seat(fixtures.dist_trunk(dict(zip(encode("ab"), probs, strict=True))), heads=None)
    [done] = seat.engine.generate(["x"], SamplingParams(max_tokens=1))
    said = {
        0: Answer("aaa", encode("aaa"), [(0.1, 1), (2.1, 2)], done),
        3: Answer("aab", encode("aab"), [(0.1, 1), (1.1, 2)], done),
    }
    monkeypatch.setattr("foretell.cli.chat_race.answer_to", lambda e, p, params, depth, *_: said[depth])
    race(seat.engine, encode("x"), SamplingParams(), 3, 0, seat.session._screen)
    verdict = seat.err.getvalue().splitlines()[-1]
    assert verdict.startswith(
        "plain 1.0 tokens/s, depth 3 2.0 tokens/s: 2.00x, one run each | texts differ from token 3 on"
    )
    assert words in verdict


def test_help_names_every_command() -> None:
    seat = Seat()
    assert seat.take("/help") == list(HELP)
    names = [line.split()[0] for line in HELP if line.startswith("/")]
    for name in names:
        assert not any("no command" in line for line in seat.take(name))
    assert Seat().take("/exit", "c") == []


def test_the_same_seed_gives_the_same_answers(pipe: Any, models: Path, tmp_path: Path) -> None:
    noise = Trunk(fixtures.tiny_llama(), byte_tokenizer(CHAT_TEMPLATE), name="noise")
    save(noise, tmp_path / "noise")
    line = (tmp_path / "noise", "--max-tokens", 12, "--temperature", 1.5)
    first = pipe("x\ny\n", *line, "--seed", 3).out
    assert pipe("x\ny\n", *line, "--seed", 3).out == first != pipe("x\ny\n", *line, "--seed", 4).out
    assert "hint" in pipe("", *line[:3], "--seed", 3).err


def test_at_a_terminal(run: Any, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter([KeyboardInterrupt, ">", "/depth off", EOFError])

    def typing(prompt: str) -> str:
        key: Any = next(typed)
        if isinstance(key, str):
            return key
        raise key

    monkeypatch.setattr("builtins.input", typing)
    monkeypatch.setattr(chat_module.sys, "stdin", io.StringIO())  # type: ignore[attr-defined]
    monkeypatch.setattr(Screen, "here", classmethod(lambda cls: cls(True)))
    ran = run("chat", models / "cycle", "--heads", models / "right", "--max-tokens", 4)
    assert (ran.code, ran.out.splitlines()) == (0, ["", "a‹bc›d", ""])
    start = ran.err.splitlines()[1]
    assert start == "cycle, depth 3. in ‹ ›: guessed ahead and confirmed; /help lists commands, Ctrl-D ends"
    assert "Ctrl-D or /exit ends the chat" in ran.err and "depth 0: plain decoding" in ran.err


def test_a_drafter_without_heads(pipe: Any, models: Path) -> None:
    ran = pipe(">\n/race\n", models / "cycle", "--drafter", "ngram", "--max-tokens", 60)
    assert ran.code == 0 and ran.out.splitlines()[0] == (CHAIN[1:] * 3)[:60]
    assert "acceptance by depth 1.00" in ran.err and ran.err.splitlines()[-1].endswith("texts equal (60 tokens)")
