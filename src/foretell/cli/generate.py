"""``foretell generate``: complete one prompt."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from foretell.cli.loading import check_model, load_drafter, load_model, resolve_depth
from foretell.cli.options import Drafter, DraftModel, Dtype, Heads, Json, MaxTokens, Model, switch
from foretell.cli.output import check_json_target, note, write_json
from foretell.config import SamplingParams
from foretell.errors import UsageError

if TYPE_CHECKING:
    from foretell.types import Completion, Prompt


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
        int | None,
        Parameter(
            validator=Number(gte=0),
            help="Tokens drafted a step; 0 = plain decoding. Default: what the heads were trained for, 3 with another "
            "drafter, 0 without any.",
        ),
    ] = None,
    chat: Annotated[bool, switch("The prompt is a user's message: apply the chat template.")] = False,
    max_tokens: MaxTokens = 128,
    temperature: Annotated[float, Parameter(help="0 = greedy.")] = 0.0,
    top_k: Annotated[int, Parameter(help="Keep the k likeliest tokens, 0 = all.")] = 0,
    top_p: Annotated[float, Parameter(help="Keep the likeliest tokens that hold this mass, 1 = all.")] = 1.0,
    min_p: Annotated[float, Parameter(help="Drop tokens below this share of the likeliest, 0 = none.")] = 0.0,
    seed: Annotated[
        int | None, Parameter(help="Same seed, same text; at temperature 0 all are. Default: random.")
    ] = None,
    stop: Annotated[list[str] | None, Parameter(negative=(), help="End before this text; may be repeated.")] = None,
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Complete one prompt. The text goes to standard output, one line of numbers to standard error.

    The text is the same for every depth (greedy: up to rounding; sampled: in distribution); only the speed differs.

    Try:

        foretell generate demo "Name three rivers." --chat --heads adapters/smollm2-135m-instruct
        foretell generate demo "a b c a b c" --drafter ngram
    """
    check_json_target(json)
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise UsageError("PROMPT: it is empty; give some text" + (" on standard input" if prompt == "-" else ""))
    check_model(model, heads, drafter, draft_model)

    from foretell.decoding.engine import Engine

    loaded = load_model(model, heads, dtype)
    drafting = load_drafter(loaded, drafter, draft_model, dtype)
    depth = resolve_depth(loaded, depth, heads, drafting)
    engine = Engine(loaded, drafter=drafting)
    request: Prompt = [{"role": "user", "content": text}] if chat else text
    start = time.perf_counter()
    [done] = engine.generate([request], params, depth=depth)
    elapsed_s = time.perf_counter() - start
    print(done.text)
    note(_stats_line(done, elapsed_s))
    write_json(
        json,
        {
            "text": done.text,
            "token_ids": done.token_ids,
            "finish_reason": done.finish_reason,
            "drafter": engine.drafter.kind if engine.drafter and depth else None,
            "depth": depth,
            "num_prompt_tokens": len(done.prompt_token_ids),
            "elapsed_s": elapsed_s,
            "num_rounds": done.num_rounds,
            "stats": done.stats.as_dict(),
        },
    )


def _stats_line(done: Completion, elapsed_s: float) -> str:
    num_tokens = len(done.token_ids)
    parts = [
        f"{num_tokens} tokens",
        f"{num_tokens / elapsed_s:.1f} tokens/s with prefill",
        f"ended by {done.finish_reason}",
    ]
    if (length := done.stats.mean_acceptance_length) is None:
        parts.append("mean acceptance length n/a (nothing drafted)")
    else:
        rates = " ".join(f"{rate:.2f}" for rate in done.stats.acceptance_by_depth)
        parts += [f"mean acceptance length {length:.2f}", f"acceptance by depth {rates}"]
    return " | ".join(parts)
