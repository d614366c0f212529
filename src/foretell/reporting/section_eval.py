"""Section: quality, from eval files: bits per byte, task scores side by side, answers that parse, what was decoded."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.eval_results import Eval, Score, TextBits
from foretell.reporting.figure_shares import by_depth
from foretell.reporting.labels import number, shares
from foretell.reporting.lead_eval import bits
from foretell.reporting.page import ABSENT, Block, Section, Table, slug

_BITS = (
    "Bits per byte: the bits that a text's tokens take at the model's probabilities, over the text's own bytes; less "
    "is better. Heads are fed the text itself; depth k has no guess of a text's first k tokens."
)


def evaluated(evals: Sequence[Eval]) -> list[Section]:
    """What was asked, and a table a measurement with all files in it, so that heads and none stand side by side."""
    if not evals:
        return []
    rows = [
        [one.name, one.model or ABSENT, one.heads or "none", ABSENT if one.depth is None else str(one.depth)]
        + [number(one.batch, 0)]
        for one in evals
    ]
    columns = ["file", "model", "heads", "decoded at depth", "rows at a time"]
    blocks: list[Block] = [Table("What was evaluated", columns, rows)]
    blocks += [*_texts(evals), *_scores(evals), *_parsed(evals), *_decoded(evals)]
    return [Section("Quality", blocks)]


def _texts(evals: Sequence[Eval]) -> list[Block]:
    """Bits per byte of every text, a column a depth; then a table for all texts of each file with heads."""
    found = [(one, one.texts) for one in evals if one.texts is not None]
    if not found:
        return []
    shown = [(one, text) for one, texts in found for text in _shown(texts.files, texts.whole)]
    deepest = max((depth.depth for _, text in shown for depth in text.depths if depth.depth <= 64), default=0)
    rows = []
    for one, text in shown:
        own = {depth.depth: bits(depth.bits_per_byte, depth.is_infinite) for depth in text.depths}
        cells = [own.get(k, ABSENT) for k in range(deepest + 1)]
        rows.append([one.name, text.file, number(text.num_bytes, 0), number(text.num_tokens, 0), *cells])
    heads = [f"heads, depth {k}" for k in range(1, deepest + 1)]
    windows = [
        f"{one.name}: windows of {number(texts.window, 0)} tokens, stride {number(texts.stride, 0)}."
        for one, texts in found
    ]
    columns = ["file", "text", "bytes", "tokens", "trunk", *heads]
    blocks: list[Block] = [Table("Bits per byte", columns, rows, 2, [_BITS, *windows])]
    for one, texts in found:
        if any(depth.depth for depth in texts.whole.depths):
            blocks.append(_depths(one.name, texts.whole))
    return blocks


def _shown(files: Sequence[TextBits], whole: TextBits) -> list[TextBits]:
    return list(files) if len(files) == 1 else [*files, whole]


def _depths(name: str, whole: TextBits) -> Table:
    rows = [
        ["0 (trunk)" if d.depth == 0 else str(d.depth), number(d.num_targets, 0)]
        + [ABSENT if d.depth == 0 else number(d.coverage, 3), number(d.bits_per_token, 3)]
        + [bits(d.bits_per_byte, d.is_infinite)]
        for d in whole.depths
    ]
    columns = ["depth", "tokens", "in draft vocabulary", "bits per token", "bits per byte"]
    notes = []
    if any(depth.is_infinite for depth in whole.depths):
        notes.append(
            "Tokens outside the heads' draft vocabulary have no probability there: bits per token are those of the "
            "others, and bits per byte are infinite."
        )
    return Table(f"Bits by depth, all texts: {name}", columns, rows, 1, notes)


def _scores(evals: Sequence[Eval]) -> list[Block]:
    """A row a question, a column a file: only scores of the same documents, examples and version share a row."""
    asked = [one for one in evals if one.scores]
    questions: dict[tuple[object, ...], Score] = {score.key: score for one in asked for score in one.scores}
    rows = []
    for key, score in questions.items():
        better = {True: "higher", False: "lower", None: ABSENT}[score.higher_is_better]
        own = [next((s for s in one.scores if s.key == key), None) for one in asked]
        rows.append(
            [score.task, score.metric, score.filter, score.version or ABSENT, number(score.num_documents, 0)]
            + [number(score.num_examples, 0), better, *(_score(one) for one in own)]
        )
    columns = ["task", "metric", "filter", "version", "documents", "examples", "better"]
    notes = ["By lm-eval; in brackets the standard error. Examples: shown before each document."]
    return [Table("Task scores", [*columns, *(one.name for one in asked)], rows, 3, notes)] if rows else []


def _score(score: Score | None) -> str:
    if score is None or score.value is None:
        return ABSENT
    return number(score.value, 4) + ("" if score.error is None else f" ({number(score.error, 4)})")


def _parsed(evals: Sequence[Eval]) -> list[Block]:
    rows = [
        [one.name, p.language, number(p.num_outputs, 0), number(p.num_parsed, 0), number(p.num_failed, 0)]
        + [number(p.num_empty, 0), number(p.num_cut_off, 0), number(p.num_context_full, 0), number(p.share, 3)]
        + [number(p.max_tokens, 0)]
        for one in evals
        if (p := one.parsed) is not None
    ]
    columns = ["file", "language", "answers", "parse", "fail", "empty", "cut off", "of them, context full"]
    columns += ["share that parses", "tokens at most"]
    note = "Share: of the answers that were judged; those cut off are not."
    return [Table("Answers that parse", columns, rows, 2, [note])] if rows else []


def _decoded(evals: Sequence[Eval]) -> list[Block]:
    figures: list[Block] = []
    rows = []
    for one in evals:
        lines = {spent.name: spent.acceptance_by_depth for spent in one.decoded if spent.acceptance_by_depth}
        if lines:
            title = f"Acceptance by depth while evaluating: {one.name}"
            figures.append(by_depth(slug(f"eval {one.name}"), title, "accepted up to depth k", lines))
        rows += [
            [one.name, spent.name, number(spent.num_requests, 0), number(spent.num_tokens, 0)]
            + [number(spent.tokens_per_s, 1), number(spent.mean_acceptance_length), shares(spent.acceptance_by_depth)]
            for spent in one.decoded
        ]
    columns = ["file", "decoded for", "answers", "tokens", "tokens/s", "tokens a pass", "acceptance by depth"]
    notes = [
        "Tokens/s: of all requests together, prompts included; no pair of the same work, so no speed-up. Tokens a "
        "pass: mean acceptance length, the trunk's own token included.",
    ]
    return [*figures, Table("What decoding took", columns, rows, 2, notes)] if rows else []
