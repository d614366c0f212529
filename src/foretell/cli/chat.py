"""``foretell chat``: talk to a model in a terminal, and see who wrote what."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.depths import DEFAULT_DEPTH, check_draft, check_shape, resolve_depth
from foretell.cli.loading import check_model, load_drafter, load_model, naming_option
from foretell.cli.options import Drafter, DraftModel, Dtype, Heads, MaxTokens, Model, Nodes, integer, parse_depth
from foretell.cli.output import note
from foretell.cli.params import build_params, idle_at_0
from foretell.errors import UsageError

if TYPE_CHECKING:
    from foretell.decoding.engine import Engine

_PROMPT = "> "


def chat(
    model: Model,
    /,
    *,
    heads: Heads = None,
    drafter: Drafter = None,
    draft_model: DraftModel = None,
    depth: Annotated[
        str | None,
        Parameter(
            help="Tokens drafted a step; 0 = plain decoding, auto = as many as pay. Default: what the heads were "
            "trained for, 3 with another drafter, 0 without any.",
        ),
    ] = None,
    nodes: Nodes = None,
    max_tokens: MaxTokens = 512,
    temperature: Annotated[float, Parameter(help="0 = greedy.")] = 0.0,
    top_p: Annotated[float, Parameter(help="Keep the likeliest tokens that hold this mass, 1 = all.")] = 1.0,
    seed: Annotated[
        int | None,
        integer("Same seed, same answers, unless depth is auto; at temperature 0 all are. Default: random.", 0),
    ] = None,
    system: Annotated[str | None, Parameter(help="What the model is told before the chat.")] = None,
    dtype: Dtype = "auto",
) -> int:
    """Chat with a model. Answers come token by token, those that were guessed ahead and confirmed in green.

    After each answer a line says how many tokens came, how fast, how many a pass, and how often guesses held. Within:
    /race answers the last question again, plain and drafted, /depth changes how far ahead is guessed, /help lists all.
    Ctrl-C stops an answer, Ctrl-D ends the chat. When the window is full the oldest turns are dropped.

    Where standard input is no terminal, each of its lines is a question or a command. Answers go to standard output as
    plain text, everything else to standard error; the exit code is 1 where a line could not be followed.

    Try:

        foretell chat demo --heads adapters/smollm2-135m-instruct
        foretell chat demo --heads adapters/smollm2-135m-instruct --depth auto --system "Answer in one sentence."
        foretell chat demo --drafter ngram --temperature 0.8
    """
    asked = None if depth is None else parse_depth(depth)
    check_shape("auto" if asked is None else asked, nodes)
    params = build_params(None, max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    if system is not None and not system.strip():
        raise UsageError('--system: "" is not allowed; give some text, or leave it out')
    if hint := idle_at_0(params):
        note(hint)
    check_model(model, heads, drafter, draft_model)

    from foretell.cli.chat_history import History
    from foretell.cli.chat_screen import Screen
    from foretell.cli.chat_session import ChatSession
    from foretell.decoding.engine import Engine
    from foretell.models.chat import has_template

    loaded = load_model(model, heads, dtype)
    if loaded.tokenizer is None or not has_template(loaded.tokenizer):
        what = "tokenizer" if loaded.tokenizer is None else "chat template"
        raise UsageError(
            f"{loaded.trunk.name} has no {what}, so it cannot chat; foretell generate {model} PROMPT continues a text"
        )
    drafting = load_drafter(loaded, drafter, draft_model, dtype)
    used = resolve_depth(loaded, asked, heads, drafting)
    check_draft(loaded, used, nodes, drafter=drafting)
    engine = Engine(loaded, drafter=drafting)
    history, screen = History(engine), Screen.here()
    if system is not None:
        with naming_option("--system"):
            history.check_system(system)
        history.system = system
    session = ChatSession(history, params, used, used or _race_depth(engine), nodes or 0, screen)
    if not screen.is_live:
        return 1 if session.run(_piped()) else 0
    guessed = f"{screen.legend()}: guessed ahead and confirmed; " if engine.drafter is not None else ""
    screen.say(f"{loaded.trunk.name}, depth {used}. {guessed}/help lists commands, Ctrl-D ends")
    session.run(_typed())
    return 0


def _race_depth(engine: Engine) -> int:
    if engine.drafter is None:
        return 0
    heads = engine.model.heads
    return heads.config.num_depths if heads is not None and "heads" in engine.drafter.parts else DEFAULT_DEPTH


def _typed() -> Iterator[str]:
    """Lines as they are typed, with the keys of readline where Python has it; Ctrl-C drops a line that is half done."""
    with suppress(ImportError):
        import readline  # noqa: F401
    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            note("Ctrl-D or /exit ends the chat")
        except UnicodeError:
            note("error: this is no text in UTF-8")


def _piped() -> Iterator[str]:
    try:
        yield from sys.stdin or ()  # None where it was closed
    except UnicodeError as error:
        raise UsageError("standard input is no text in UTF-8; convert it first") from error
    except OSError as error:
        raise UsageError(f"standard input cannot be read ({error.strerror or error}); give lines of text") from error
