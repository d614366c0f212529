"""Option types that several commands share, so that one name means one thing everywhere. No heavy import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from foretell.config import DrafterKind
from foretell.errors import UsageError

DtypeName = Literal["auto", "float32", "bfloat16"]
DepthChoice = int | Literal["auto"]
"""Tokens drafted a step; "auto": as many as pay."""


def switch(text: str) -> Parameter:
    """An option that is off unless it is given."""
    return Parameter(negative=(), show_default=False, help=text)


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
    DtypeName, Parameter(help="Type to compute in; auto = bfloat16 where this CPU is fast in it, else float32.")
]
Json = Annotated[
    Path | None,
    Parameter(name="--json", help="Write the results to this file too; it must be new or hold JSON."),
]
MaxTokens = Annotated[int, Parameter(validator=Number(gte=1), help="Produce at most so many tokens for a prompt.")]
Prompts = Annotated[
    list[Path] | None,
    Parameter(
        consume_multiple=True,
        negative=(),
        help='JSONL files, a record with "messages" (a chat) or "prompt" (text) a line; "domain" in it, or the file\'s '
        "name, groups the results. Default: the held-out chat, code and structured prompts of the project.",
    ),
]
NumPrompts = Annotated[
    int | None,
    Parameter(validator=Number(gte=1), help="Take only so many prompts from the start of each file. Default: all."),
]
Depths = Annotated[
    str | None,
    Parameter(
        help="Depths to run, with commas: 1,2,3. A depth is the number of tokens drafted a step; auto: as many as pay."
    ),
]
Nodes = Annotated[
    int | None,
    Parameter(
        validator=Number(gte=2),
        help="Draft a tree of so many tokens, as deep as the depth says; with auto where it pays. Default: a chain, "
        "one token a depth.",
    ),
]

Exact = Annotated[
    bool, switch("Every pass has one shape: drafted text is plain text bit for bit, near ties included. Slower.")
]


def parse_depth(text: str, at_least: int = 0) -> DepthChoice:
    """ "3" -> 3, "auto" -> "auto"; raises UsageError naming the option."""
    depth = _parse(text)
    if depth is None or (depth != "auto" and depth < at_least):
        plain = "" if at_least else " (0 = plain decoding)"
        raise UsageError(f'--depth: "{text}" is not allowed; give an integer >= {at_least}{plain}, or auto')
    return depth


def parse_depths(text: str) -> list[DepthChoice]:
    """ "auto,1,0" -> [0, 1, "auto"]; raises UsageError naming the option."""
    depths = [_parse(part.strip()) for part in text.split(",")]
    numbers = {depth for depth in depths if isinstance(depth, int)}
    if None in depths or min(numbers, default=0) < 0:
        raise UsageError(
            f'--depths: "{text}" is not allowed; give integers of at least 0 with commas, such as 0,1,2,3, or auto '
            "among them"
        )
    return [*sorted(numbers), *(("auto",) if "auto" in depths else ())]


def _parse(text: str) -> DepthChoice | None:
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError:
        return None
