"""``foretell generate``: complete one prompt."""

from __future__ import annotations

import secrets
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.depths import check_draft, check_shape, resolve_depth
from foretell.cli.loading import check_model, load_drafter, load_model
from foretell.cli.options import (
    Drafter,
    DraftModel,
    Dtype,
    Exact,
    Heads,
    Json,
    MaxTokens,
    Model,
    Nodes,
    integer,
    parse_depth,
    switch,
)
from foretell.cli.output import note, write_json
from foretell.cli.params import Params, build_params, idle_at_0, naming_params
from foretell.cli.targets import check_json_target
from foretell.errors import UsageError

if TYPE_CHECKING:
    from foretell.types import Prompt

_MAX_ROWS = 8
"""Completions of a prompt that are decoded at a time."""


def generate(
    model: Model,
    prompt: Annotated[
        str, Parameter(help="Text to continue; - reads it from standard input.", allow_leading_hyphen=True)
    ],
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
    exact: Exact = False,
    chat: Annotated[bool, switch("The prompt is a user's message: apply the chat template.")] = False,
    max_tokens: MaxTokens = 128,
    temperature: Annotated[float, Parameter(help="0 = greedy.")] = 0.0,
    top_k: Annotated[int, integer("Keep the k likeliest tokens, 0 = all.", 0)] = 0,
    top_p: Annotated[float, Parameter(help="Keep the likeliest tokens that hold this mass, 1 = all.")] = 1.0,
    min_p: Annotated[float, Parameter(help="Drop tokens below this share of the likeliest, 0 = none.")] = 0.0,
    seed: Annotated[
        int | None,
        integer("Same seed, same text, unless depth is auto; at temperature 0 all are. Default: random.", 0),
    ] = None,
    stop: Annotated[list[str] | None, Parameter(negative=(), help="End before this text; may be repeated.")] = None,
    params: Params = None,
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Complete one prompt. The text goes to standard output, one line of numbers to standard error.

    The text is the same for every depth (greedy: up to rounding; sampled: in distribution); only the speed differs.

    Try:

        foretell generate demo "Name three rivers." --chat --heads adapters/smollm2-135m-instruct
        foretell generate demo "a b c a b c" --drafter ngram
        foretell generate demo "Once" --temperature 0.8 --top-p 0.9 --params repetition_penalty=1.1
    """
    check_json_target(json, [model, draft_model])
    asked = None if depth is None else parse_depth(depth)
    check_shape("auto" if asked is None else asked, nodes, exact)
    if "" in (stop or ()):
        raise UsageError('--stop: "" is not allowed; give some text, or leave it out')
    sampling = build_params(
        params,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    if json is None and (sampling.logprobs, sampling.prompt_logprobs) != (None, None):
        raise UsageError("--params logprobs: they are written to the --json file alone; give --json FILE")
    if hint := idle_at_0(sampling):
        note(hint)
    if sampling.seed is None and not sampling.greedy:
        sampling = replace(sampling, seed=secrets.randbelow(2**63))
    text = _standard_input() if prompt == "-" else prompt
    if not text.strip():
        raise UsageError("PROMPT: it is empty; give some text" + (" on standard input" if prompt == "-" else ""))
    check_model(model, heads, drafter, draft_model)

    from foretell.cli.completions import as_dict, settings, stats_line, text_of
    from foretell.decoding.engine import Engine

    loaded = load_model(model, heads, dtype)
    drafting = load_drafter(loaded, drafter, draft_model, dtype)
    used = resolve_depth(loaded, asked, heads, drafting)
    check_draft(loaded, used, nodes, exact, drafting)
    engine = Engine(loaded, min(sampling.n, _MAX_ROWS), drafting, exact=exact)
    if sampling.typical_acceptance is not None and used and engine.drafter is not None:
        note("warning: typical_acceptance is LOSSY: the text does not follow the model's distribution")
    request: Prompt = [{"role": "user", "content": text}] if chat else text
    start = time.perf_counter()
    with naming_params(params):
        completions = engine.generate([request], sampling, depth=used, num_nodes=nodes or 0)
    elapsed_s = time.perf_counter() - start
    print(text_of(completions))
    note(stats_line(completions, elapsed_s))
    values = [as_dict(done, loaded.tokenizer) for done in completions]
    write_json(
        json,
        {
            **values[0],
            "model": model,
            "heads": heads,
            "draft_model": draft_model,
            "dtype": loaded.trunk.dtype_name,
            "prompt": text,
            "chat": chat,
            "sampling": settings(sampling),
            "drafter": engine.drafter.kind if engine.drafter and used else None,
            "depth": used,
            "num_nodes": nodes or 0,
            "exact": engine.exact,
            "num_prompt_tokens": len(completions[0].prompt_token_ids),
            "elapsed_s": elapsed_s,
            **({"completions": values} if len(values) > 1 else {}),
        },
    )


def _standard_input() -> str:
    try:
        text = sys.stdin.read()
        text.encode()
    except UnicodeError as error:
        raise UsageError("PROMPT: standard input is no text in UTF-8; convert it first") from error
    return text
