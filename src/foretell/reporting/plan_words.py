"""What follows from a plan, in words: on the screen and on the page."""

from __future__ import annotations

from foretell.reporting.labels import ratio

BOUNDS = "Seconds are bounds from a data sheet: no launch, no communication, no kernel below its peak."
EXPERTS = "Experts: expected distinct ones a layer and pass, were routing uniform and tokens independent."


def follows(
    depth: int,
    speedup: float | None,
    break_even: int | None,
    searched: int | None,
    fitting: int | None,
    context: int | None = None,
) -> list[str]:
    """Sentences: the best depth (0: drafting does not pay) and its speed-up, and up to which batch size drafting pays.

    ``break_even``: the smallest batch at which it does not, looked for up to ``searched``; ``fitting``: rows that fit.
    The first sentence has no capital.
    """
    gain = "" if speedup is None else f", {ratio(speedup)}x plain decoding"
    found = [f"best depth {depth}{gain}." if depth else "drafting does not pay."]
    if break_even:
        found.append(f"By this prediction drafting stops paying at batch {break_even:,}.")
    elif depth and searched is not None:
        at = "" if context is None else f" at context {context:,}"
        which = f"that fits{at}: up to {searched:,}" if searched == fitting else f"looked at: up to {searched:,}"
        found.append(f"By this prediction drafting pays at every batch size {which}.")
    return found


def no_row_fits(weights_fit: bool, context: int | None) -> str:
    """Why not even one row fits."""
    if not weights_fit:
        return "the weights do not fit"
    return "no row fits beside the weights" if context is None else f"no row of {context:,} tokens fits"


def too_much(fitting: int | None, weights_fit: bool, batch: int | None, context: int | None) -> list[str]:
    """A sentence where ``batch`` rows of ``context`` tokens do not fit, of which ``fitting`` do; None: not known."""
    if fitting is None or (fitting and (batch is None or batch <= fitting)):
        return []
    if fitting:
        return [f"WARNING: {batch:,} rows do not fit, {fitting:,} at most do; this is as if they did."]
    words = no_row_fits(weights_fit, context)
    return [f"{words[0].upper()}{words[1:]}; this is as if {'one' if weights_fit else 'they'} did."]
