"""Costs put together from what was measured on a machine: kernels of the model's own shapes, and everything else.

    pass(n) = step of a thin model (n) + sum over linear layers of [time of its shape (n) - time of the thin one's (n)]

The thin model has the real one's layers, attention, vocabulary and engine, but hardly any width, so its steps hold what
is not a linear layer: launches, caches, attention over the context, logits. The kernels hold the rest. Steps that read
prompts are put together in the same way. Where rows decode in such a step, what its attention and launches take beside
the linear layers counts as that of both parts alone, less that of a step of one row and one token, which is there once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foretell.decoding.curve import Curve, rising
from foretell.errors import UsageError
from foretell.planning.measured import MeasuredMachine, Points
from foretell.planning.model import Linear, PlanModel


class MeasuredCosts:
    """Costs of ``model`` on a machine that was measured for it. Raises UsageError where it was not."""

    def __init__(self, machine: MeasuredMachine, model: PlanModel) -> None:
        self._machine = machine
        self._heads = model.heads
        self._kernels = {shape: _curve(points) for shape, points in machine.kernels.items()}
        self._passes, self._drafts, self._reads, self._catch_ups = (
            {rows: _curve(points) for rows, points in curves.items()}
            for curves in (machine.passes, machine.drafts, machine.reads, machine.catch_ups)
        )
        output, head_output = output_linears(model)
        self._trunk, self._head = (*model.linears, output), (*model.heads.linears, head_output)
        wanted = {(one.num_out, one.num_in) for one in (*self._trunk, *self._head, *machine.thin, *machine.thin_head)}
        if machine.num_layers != model.num_layers or not wanted <= self._kernels.keys():
            raise UsageError(
                f"--hardware: that machine was measured for the shapes of {machine.model}, {model.name} has others; "
                f"measure it again: foretell plan {model.name} --measure --json FILE"
            )
        if model.heads.kind != machine.heads_kind:
            raise UsageError(
                f"--hardware: that machine was measured with {machine.heads_kind} heads, and these are "
                f"{model.heads.kind}; measure it again with --heads"
            )

    @property
    def knows_prompts(self) -> bool:
        """True where steps that read prompts were measured."""
        return bool(self._reads)

    def pass_s(self, batch: int, nodes: float) -> float:
        """Seconds of a pass over ``nodes`` tokens of each of ``batch`` rows, and of everything behind it."""
        rows = max(batch * nodes, self._machine.least_rows if batch == 1 else 1)
        wider = self._seconds(self._trunk, rows, rows) - self._seconds(self._machine.thin, rows, rows)
        return _at(self._passes, batch, nodes) + max(0.0, wider)

    def draft_s(self, batch: int, depth: int, num_true: float, width: float) -> float:
        """Seconds of drafting. The thin model's drafts are hardly ever accepted, so its heads read one token a row."""
        total = _at(self._drafts, batch, depth)
        for level in range(1, depth + 1):
            read, projected = self._heads.num_read(level, num_true, width), self._heads.num_projected(level, width)
            total += self._seconds(self._head, batch * read, batch * projected)
            total -= self._seconds(self._machine.thin_head, batch, batch)
        return max(0.0, total)

    def join_s(self, rows: int, nodes: float, pieces: Sequence[int], num_first: int) -> float:
        """See ``PromptCosts``."""
        num_prompts, num_tokens, decoding = len(pieces), sum(pieces), rows * nodes
        thin = self._machine.thin
        rest = _at(self._reads, num_prompts, num_tokens / num_prompts) - self._seconds(thin, num_tokens, num_prompts)
        wide = self._seconds(self._trunk, decoding + num_tokens, decoding + num_first)
        if rows:
            least = self._machine.least_rows
            rest -= _at(self._passes, 1, 1) - self._seconds(thin, least, least)
            wide -= self._seconds(self._trunk, decoding, decoding)
        return max(0.0, rest) + max(0.0, wide)

    def catch_up_s(self, rows: int, depth: int, prompts: Sequence[int]) -> float:
        """See ``PromptCosts``. One module for all depths reads them once, distinct ones each."""
        if not depth or not self._heads.attends:
            return 0.0
        num_prompts, num_tokens = len(prompts), sum(prompts)
        layers, thin_layers = self._head[:-1], self._machine.thin_head[:-1]
        rest = _at(self._catch_ups, num_prompts, num_tokens / num_prompts) - _at(self._drafts, num_prompts, 1)
        rest -= self._alone(thin_layers, num_tokens) - self._alone(thin_layers, num_prompts)
        wide = self._alone(layers, max(0, rows - num_prompts) + num_tokens) - self._alone(layers, rows)
        return (max(0.0, rest) + max(0.0, wide)) * (depth if self._heads.distinct else 1)

    def _seconds(self, linears: Sequence[Linear], rows: float, projected: float) -> float:
        """All layers at ``rows`` rows, and the output matrix, the last one, at ``projected``."""
        return self._alone(linears[:-1], rows) + self._alone(linears[-1:], projected)

    def _alone(self, linears: Sequence[Linear], rows: float) -> float:
        if not rows:
            return 0.0
        return sum(one.count * (self._kernels[one.num_out, one.num_in].at(rows) or 0.0) for one in linears)


def output_linears(model: PlanModel) -> tuple[Linear, Linear]:
    """The matrices that project the vocabulary, and what heads draft from."""
    rows = model.heads.draft_vocab or model.vocab_size
    return Linear(model.vocab_size, model.hidden_size, 1), Linear(rows, model.hidden_size, 1)


def _curve(points: Points) -> Curve:
    """More rows, nodes or depths are never cheaper (isotonic): what says otherwise was noise."""
    return Curve(rising([(x, seconds, 1) for x, seconds in points]))


def _at(curves: Mapping[int, Curve], rows: int, x: float) -> float:
    """Between measured row counts on a line, beyond them on the last one's."""
    return Curve([(float(r), curve.at(x) or 0.0) for r, curve in sorted(curves.items())]).at(rows) or 0.0
