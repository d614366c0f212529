"""Option types that several commands share, so that one name means one thing everywhere. No heavy import."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from foretell.config import DrafterKind
from foretell.errors import UsageError

DtypeName = Literal["auto", "float32", "bfloat16", "int8", "int4"]
DepthChoice = int | Literal["auto"]
"""Tokens drafted a step; "auto": as many as pay."""


def switch(text: str) -> Parameter:
    """An option that is off unless it is given."""
    return Parameter(negative=(), show_default=False, help=text)


MAX_DEPTH = 64
MAX_NODES = 512
MAX_ROWS = 512
"""The most that a command takes: more is mistyped, or no step can hold it."""
MAX_EXACT_DEPTH = 7
"""An exact engine's passes have one width (decoding/core), and a draft leaves a place in it for the last token."""


def integer(text: str, at_least: int | None = None, at_most: int | None = None) -> Parameter:
    """An option that takes an integer and nothing near it."""

    def convert(type_: Any, tokens: Sequence[Token]) -> int:
        given = tokens[0]
        number = _number(given.value)
        too_low = number is not None and at_least is not None and number < at_least
        if number is None or too_low or (at_most is not None and number > at_most):
            raise UsageError(
                f'{given.keyword}: "{given.value}" is not allowed; give an integer{allowed(at_least, at_most)}'
            )
        return number

    return Parameter(converter=convert, help=text)


def allowed(at_least: int | None, at_most: int | None) -> str:
    """The range of an integer, to follow its noun: " >= 1 and <= 512"."""
    bounds = [f"{sign} {bound}" for sign, bound in ((">=", at_least), ("<=", at_most)) if bound is not None]
    return " " * bool(bounds) + " and ".join(bounds)


Model = Annotated[
    str, Parameter(help="Trunk: a folder, a GGUF file, a hub name (OWNER/NAME), or demo (SmolLM2-135M-Instruct).")
]
Heads = Annotated[str | None, Parameter(help="Adapter folder with the heads, as foretell train writes it.")]
Drafter = Annotated[
    DrafterKind | None,
    Parameter(
        help="Who guesses ahead: heads, ngram (look-up in the prompt and the text so far), a separate model, or one of "
        "them where look-up finds nothing. Default: heads where there are some, model with --draft-model."
    ),
]
DraftModel = Annotated[
    str | None,
    Parameter(help="Small model of the same vocabulary that guesses ahead: a folder, a GGUF file or a hub name."),
]
Dtype = Annotated[
    DtypeName,
    Parameter(
        help="Type to compute in; auto = bfloat16 where this CPU is fast in it, else float32. int8, int4: weights of "
        "linear layers rounded so, for speed; the text is that of these weights at depth 0."
    ),
]
Json = Annotated[
    Path | None,
    Parameter(
        name="--json",
        help="Write the results to this file too; it must be new, empty or an earlier one of this command. Missing "
        "folders are made.",
    ),
]
MaxTokens = Annotated[int, integer("Produce at most so many tokens for a prompt.", 1)]
Prompts = Annotated[
    list[Path] | None,
    Parameter(
        consume_multiple=True,
        negative=(),
        help='JSONL files, a record with "messages" (a chat) or "prompt" (text) a line; "domain" in it, or the file\'s '
        "name, groups the results. Default: the held-out chat, code and structured prompts of the project.",
    ),
]
NumPrompts = Annotated[int | None, integer("Take only so many prompts from the start of each file. Default: all.", 1)]
Depths = Annotated[
    str | None,
    Parameter(
        help="Depths to run, with commas: 1,2,3. A depth is the number of tokens drafted a step; auto: as many as pay."
    ),
]
Nodes = Annotated[
    int | None,
    integer(
        "Draft a tree of so many tokens, as deep as the depth says; with auto where it pays. Default: a chain, one "
        "token a depth.",
        2,
        MAX_NODES,
    ),
]

Exact = Annotated[
    bool, switch("Every pass has one shape: drafted text is plain text bit for bit, near ties included. Slower.")
]


def parse_depth(text: str, at_least: int = 0) -> DepthChoice:
    """ "3" -> 3, "auto" -> "auto"; raises UsageError naming the option."""
    depth = _parse(text)
    if depth is None or (depth != "auto" and not at_least <= depth <= MAX_DEPTH):
        plain = "" if at_least else " (0 = plain decoding)"
        raise UsageError(
            f'--depth: "{text}" is not allowed; give an integer >= {at_least}{plain} and <= {MAX_DEPTH}, or auto'
        )
    return depth


def parse_depths(text: str) -> list[DepthChoice]:
    """ "auto,1,0" -> [0, 1, "auto"]; raises UsageError naming the option."""
    depths = [_parse(part.strip()) for part in text.split(",")]
    numbers = {depth for depth in depths if isinstance(depth, int)}
    if None in depths or any(not 0 <= number <= MAX_DEPTH for number in numbers):
        raise UsageError(
            f'--depths: "{text}" is not allowed; give integers from 0 to {MAX_DEPTH} with commas, such as 0,1,2,3, or '
            "auto among them"
        )
    return [*sorted(numbers), *(("auto",) if "auto" in depths else ())]


def parse_counts(text: str, option: str, at_least: int, at_most: int) -> list[int]:
    """ "8,1" -> [1, 8]; raises UsageError naming the option."""
    counts = {_number(part) for part in text.split(",")}
    numbers = sorted(number for number in counts if number is not None)
    if None in counts or not at_least <= numbers[0] <= numbers[-1] <= at_most:
        raise UsageError(
            f'{option}: "{text}" is not allowed; give integers of at least {at_least} and at most {at_most} with '
            "commas, such as 4,8"
        )
    return numbers


def _parse(text: str) -> DepthChoice | None:
    return "auto" if text == "auto" else _number(text)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None
