"""Tables of a verify file's checks: drafters that know the text, sampling laws of a model and of the built-in one."""

from __future__ import annotations

from foretell.reporting.labels import counted, number
from foretell.reporting.listed import NEAR_TIE, listed
from foretell.reporting.page import ABSENT, Block, Table
from foretell.reporting.proof_results import Control, Law, ModelLaw, Verify

_WORDS = {True: "ok", False: "BUG", None: ABSENT}


def reasons(verify: Verify) -> list[str]:
    """A sentence for each control and each sampling law that did not pass."""
    failed = [_why_control(control) for control in verify.controls if control.passed is False]
    failed += [_why_model_law(law) for law in verify.model_laws if law.passed is False]
    return failed + [_why_law(law) for law in verify.laws if law.passed is False]


def controls(verify: Verify) -> list[Block]:
    """What the meter says of drafters whose acceptance is known, and texts that they changed."""
    if not verify.controls:
        return []
    rows = [
        [control.kind, number(control.acceptance, 3), number(control.expected, 3), number(control.num_texts, 0)]
        + [str(len(control.differences)), _WORDS[control.passed]]
        for control in verify.controls
    ]
    columns = ["drafter", "first guesses accepted", "expected", "texts", "texts that parted", "verdict"]
    note = (
        "Drafters that know the text: right hands it out as it is, shifted each token at a wrong place, shuffled in "
        "another order. Expected: what follows from the text alone; a sound meter says the same, and no text changes "
        "but at near ties."
    )
    blocks: list[Block] = [Table(f"Controls: {verify.name}", columns, rows, 1, [note])]
    for control in verify.controls:
        blocks += listed(f"{verify.name}, control {control.kind}", control.differences)
    return blocks


def model_laws(verify: Verify) -> list[Block]:
    """Whether samples are draws from the trunk's own law, depth by depth."""
    if not verify.model_laws:
        return []
    rows = [
        [_setting(law.depth, law.num_nodes), number(law.num_samples, 0), number(law.distance, 4), number(law.limit, 4)]
        + [number(law.num_outside, 0), number(law.acceptance_rate), _WORDS[law.passed]]
        for law in verify.model_laws
    ]
    columns = ["depth", "samples", "distance", "limit", "outside the law", "acceptance", "verdict"]
    note = (
        "Distance: Kolmogorov's, of the tokens' places in the trunk's own law from uniform. Outside the law: tokens to "
        "which it gives nothing."
    )
    return [Table(f"Sampling law of the model: {verify.name}", columns, rows, 1, [note])]


def laws(verify: Verify) -> list[Block]:
    """The built-in model's law, setting by setting."""
    if not verify.laws:
        return []
    rows = [
        [law.settings or ABSENT, _setting(law.depth, law.num_nodes), number(law.num_samples, 0)]
        + [number(law.total_variation, 4), number(law.limit, 4), number(law.acceptance_rate), _WORDS[law.passed]]
        for law in verify.laws
    ]
    columns = ["settings", "depth", "samples", "total variation", "limit", "acceptance", "verdict"]
    note = "Total variation: half the sum of differences between counted and expected shares."
    return [Table(f"Sampling law: {verify.name}", columns, rows, 2, [note])]


def _setting(depth: int | str | None, num_nodes: int) -> str:
    return ABSENT if depth is None else f"{depth}" + (f", tree of {num_nodes}" if num_nodes else "")


def _why_control(control: Control) -> str:
    text = f"Control {control.kind} failed: "
    share = control.acceptance
    text += "no first guess was counted" if share is None else f"share of first guesses accepted {share:.6g}"
    text += "" if control.expected is None else f", expected {control.expected:.6g}"
    num_bugs = sum(d.verdict != NEAR_TIE for d in control.differences)
    return text + (f"; {counted(num_bugs, 'text')} parted at no near tie" if num_bugs else "") + "."


def _why_model_law(law: ModelLaw) -> str:
    text = f"Sampling law of the model failed at depth {_setting(law.depth, law.num_nodes)}: distance "
    text += f"{number(law.distance, 4)} (limit {number(law.limit, 4)})"
    return text + f", {number(law.num_outside, 0)} of {number(law.num_samples, 0)} tokens outside the law."


def _why_law(law: Law) -> str:
    text = f"Sampling law failed at depth {_setting(law.depth, law.num_nodes)}, {law.settings or 'settings unknown'}: "
    return f"{text}total variation {number(law.total_variation, 4)} (limit {number(law.limit, 4)})."
