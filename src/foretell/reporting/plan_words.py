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

    ``break_even``: the smallest batch at which it does not, looked for up to ``searched``; ``fitting``: rows that fit,
    0 where not even the weights do. The first sentence has no capital.
    """
    gain = "" if speedup is None else f", {ratio(speedup)}x plain decoding"
    found = [f"best depth {depth}{gain}." if depth else "drafting does not pay."]
    if break_even:
        found.append(f"Drafting stops paying at batch {break_even:,}.")
    elif depth and searched is not None:
        at = "" if context is None else f" at context {context:,}"
        which = f"that fits{at}: up to {searched:,}" if searched == fitting else f"up to {searched:,}"
        found.append(f"Drafting pays at every batch size {which}.")
    if fitting == 0:
        found.append("The weights do not fit; this is as if they did.")
    return found
