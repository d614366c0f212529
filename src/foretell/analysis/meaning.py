"""Does a measurement mean anything? Reasons why numbers of acceptance and speed would say nothing of real use.

Every test is a plain property of what was measured, with no fitted constant:

- **Random prompts**: token ids drawn evenly from V have a mean negative log-probability of at least ln V under any
  model (Gibbs' inequality). A trunk that finds the prompts no likelier than that has no idea of them: they are random,
  of another tokenizer, or it is untrained.
- **Repetition**: seq-rep-4 of Welleck et al. (arXiv 1908.04319), the share of 4-grams that occurred before in the same
  text. Above one half most of a text is a copy of itself, and guessing it is easy.
- **Ignored EOS**: text behind the model's own end is none that it would serve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

NGRAM = 4
MOSTLY = 0.5
"""Share above which something holds for most of a text, or of several."""
MIN_TEXT_BYTES = 1000
"""Bytes below which bits per byte are those of the text's beginning: of tokens that have hardly any context."""


def repeated_share(token_ids: Sequence[int], n: int = NGRAM) -> float:
    """seq-rep-n: 1 - (different n-grams) / (n-grams); 0 for a text too short to have any."""
    num_ngrams = len(token_ids) - n + 1
    if num_ngrams <= 0:
        return 0.0
    return 1 - len({tuple(token_ids[i : i + n]) for i in range(num_ngrams)}) / num_ngrams


def meaningless(
    prompts_token_ids: Sequence[Sequence[int]],
    completions_token_ids: Sequence[Sequence[int]],
    mean_prompt_nll: float | None,
    vocab_size: int,
    eos_ignored: bool,
) -> list[str]:
    """Reasons why acceptance and speed of these completions mean little, one sentence each; empty for a sound run.

    ``mean_prompt_nll``: the trunk's mean negative log-probability of the prompts' tokens, nats a token (None: unknown).
    """
    reasons = meaningless_given(prompts_token_ids, mean_prompt_nll, vocab_size)
    if eos_ignored:
        reasons.append(
            "EOS was ignored: behind its own end a model writes text that nobody is served, often in circles; measure "
            "with EOS respected"
        )
    num_tokens = sum(map(len, completions_token_ids))
    if completions_token_ids and num_tokens <= len(completions_token_ids):
        reasons.append("outputs are one token long at most, so nothing could be drafted; ask for longer answers")
    repeating = [output for output in completions_token_ids if repeated_share(output) > MOSTLY]
    if sum(map(len, repeating)) > MOSTLY * num_tokens:
        reasons.append(
            f"{len(repeating)} of {len(completions_token_ids)} outputs, and most of their tokens, repeat themselves "
            f"(over half of their {NGRAM}-grams occurred before in the same output): acceptance measures repetition; "
            "use other prompts, fewer tokens, or sample"
        )
    return reasons


def short_text(num_bytes: int) -> list[str]:
    """A reason where a text is too short for its bits per byte to mean anything."""
    if num_bytes >= MIN_TEXT_BYTES:
        return []
    return [
        f"{num_bytes} bytes of text are few: most tokens have hardly any context; give {MIN_TEXT_BYTES:,} bytes or more"
    ]


def trained_on(files: Iterable[str | Path], training: Mapping[str, Any]) -> list[str]:
    """A reason where ``files`` are among those that an adapter's recipe (``training["recipe"]["data"]``) names.

    Paths are compared as they are written there, against the current folder; a copy under another name is not found.
    """
    recipe = training.get("recipe")
    data = recipe.get("data") if isinstance(recipe, dict) else None
    named = data.get("files") if isinstance(data, dict) else None
    known = {Path(file).resolve() for file in named if isinstance(file, str)} if isinstance(named, list) else set()
    seen = [str(file) for file in files if Path(file).resolve() in known]
    if not seen:
        return []
    return [f"the heads were trained on {', '.join(seen)}: they may know it by heart; measure on other text"]


def meaningless_given(
    texts_token_ids: Sequence[Sequence[int]],
    mean_nll: float | None,
    vocab_size: int,
    noun: Literal["prompts", "texts"] = "prompts",
) -> list[str]:
    """The same of what is given to a model: prompts, or texts on which heads are probed; ``mean_nll`` as above."""
    reasons = []
    if mean_nll is not None and not mean_nll < math.log(vocab_size):
        reasons.append(
            f"the model finds the {noun} no likelier than random tokens ({mean_nll:.1f} nats a token, evenly drawn "
            f"ones have {math.log(vocab_size):.1f} or more): they are random, made for another tokenizer, or it is "
            "untrained; measure with text that it knows"
        )
    num_texts = len(texts_token_ids)
    repeating = sum(repeated_share(text) > MOSTLY for text in texts_token_ids)
    if repeating > MOSTLY * num_texts:
        follows = "answers do so too" if noun == "prompts" else "acceptance measures repetition"
        reasons.append(
            f"{repeating} of {num_texts} {noun} repeat themselves (over half of their {NGRAM}-grams occurred before in "
            f"the same {noun.removesuffix('s')}): {follows}; use other {noun}"
        )
    num_different = len({tuple(text) for text in texts_token_ids})
    if num_texts - num_different > MOSTLY * num_texts:
        reasons.append(
            f"{num_texts} {noun} are {num_different} different ones: that is measured again and again; use more"
        )
    return reasons
