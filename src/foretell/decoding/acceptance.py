"""AcceptanceByClass: how likely a drafted token is accepted, per request class and depth, lately.

alpha_k is conditional: depth k is accepted, given that all before it were. A chain of depth K then gives
E[K] = 1 + sum_{k<=K} prod_{j<=k} alpha_j tokens a step (Leviathan et al., arXiv 2211.17192, with one alpha per depth).
"""

from __future__ import annotations

_MEMORY = 32  # judged drafts after which evidence weighs 1/e
_HALF_LIFE = 128  # steps without a draft after which evidence weighs half
_PRIOR = 0.8  # alpha_1 before any draft: trained heads, text not too hard
_PRIOR_FALL = 0.9  # what a depth keeps of the alpha before it, where nothing is known
_PRIOR_WEIGHT = 4.0  # in judged drafts
_ROW_MEMORY = 16
_ROW_WEIGHT = 8.0  # accepted tokens by which a row must differ from its class to count for as much as it
_HIGHEST = 0.99
_MAX_LABELS, _MAX_ROWS = 256, 4096


class _Counts:
    """Decayed counts of one class: drafts that reached depth k, and those accepted there."""

    def __init__(self) -> None:
        self.reached: list[float] = []
        self.accepted: list[float] = []
        self.last_step = 0

    def add(self, num_drafted: int, num_accepted: int, step: int) -> None:
        faded = 0.5 ** ((step - self.last_step) / _HALF_LIFE)
        self.last_step = step
        num_judged = min(num_drafted, num_accepted + 1)
        missing = num_judged - len(self.reached)
        self.reached += [0.0] * missing
        self.accepted += [0.0] * missing
        if faded < 0.99:  # a step or two is no pause
            self.reached = [count * faded for count in self.reached]
            self.accepted = [count * faded for count in self.accepted]
        keep = 1 - 1 / _MEMORY
        for k in range(num_judged):
            self.reached[k] = self.reached[k] * keep + 1
            self.accepted[k] = self.accepted[k] * keep + (k < num_accepted)

    def alpha(self, k: int, prior: float) -> float:
        if k >= len(self.reached):
            return prior
        return (self.accepted[k] + _PRIOR_WEIGHT * prior) / (self.reached[k] + _PRIOR_WEIGHT)


class _Row:
    """A row against its class: tokens accepted, and what the class let expect; decayed."""

    __slots__ = ("accepted", "expected", "last_step")

    def __init__(self, step: int) -> None:
        self.accepted = self.expected = 0.0
        self.last_step = step

    def ratio(self, step: int) -> float:
        # Evidence fades, so that a row which was given up is tried again.
        faded = 0.5 ** ((step - self.last_step) / _HALF_LIFE)
        return (self.accepted * faded + _ROW_WEIGHT) / (self.expected * faded + _ROW_WEIGHT)

    def add(self, accepted: int, expected: float, step: int) -> None:
        keep = (1 - 1 / _ROW_MEMORY) * 0.5 ** ((step - self.last_step) / _HALF_LIFE)
        self.accepted = self.accepted * keep + accepted
        self.expected = self.expected * keep + expected
        self.last_step = step


class AcceptanceByClass:
    """Counts per label, shrunk towards all labels together, and those towards a prior.

    A row may be named too: its own recent acceptance then scales its class's, so that a row with unpredictable text
    backs off before its class does. Of labels the 256 used last are remembered, of rows the 4096 last begun.
    """

    def __init__(self) -> None:
        self._all = _Counts()
        self._labels: dict[str, _Counts] = {}
        self._rows: dict[int, _Row] = {}
        self._step = 0
        self._alphas: dict[tuple[str, int], list[float]] = {}

    def advance(self) -> None:
        """A step is over: what it observed counts from now on. Time is counted in steps."""
        self._step += 1
        self._alphas.clear()

    def observe(self, label: str, num_drafted: int, num_accepted: int, row_id: int | None = None) -> None:
        """One judged draft. Where the text ended inside it, leave it out: the rest was never judged."""
        if num_drafted == 0:
            return
        if row_id is not None:
            if (row := self._rows.get(row_id)) is None:
                row = self._rows[row_id] = _Row(self._step)
                if len(self._rows) > _MAX_ROWS:
                    del self._rows[next(iter(self._rows))]
            num_judged = min(num_drafted, num_accepted + 1)
            row.add(num_accepted, sum(self.alphas(label, num_judged)), self._step)
        counts = self._labels.pop(label, None) or _Counts()
        self._labels[label] = counts  # the last used is last
        if len(self._labels) > _MAX_LABELS:
            del self._labels[next(iter(self._labels))]
        for each in (counts, self._all):
            each.add(num_drafted, num_accepted, self._step)

    def alphas(self, label: str, depth: int) -> list[float]:
        """Conditional acceptance of depths 1 to ``depth``."""
        if (found := self._alphas.get((label, depth))) is None:
            found, prior = [], _PRIOR
            counts = self._labels.get(label)
            for k in range(depth):
                prior = self._all.alpha(k, prior)
                found.append(counts.alpha(k, prior) if counts else prior)
                prior *= _PRIOR_FALL
            if len(self._alphas) > _MAX_LABELS:
                self._alphas.clear()
            self._alphas[label, depth] = found
        return found

    def gains(self, label: str, depth: int, row_id: int | None = None) -> list[float]:
        """Expected accepted tokens that depths 1 to ``depth`` add, one by one: prod_{j<=k} alpha_j."""
        row = None if row_id is None else self._rows.get(row_id)
        ratio = row.ratio(self._step) if row else 1.0
        gains, reached = [], 1.0
        for alpha in self.alphas(label, depth):
            reached *= min(_HIGHEST, alpha * ratio)
            gains.append(reached)
        return gains

    def expected_tokens(self, label: str, depth: int, row_id: int | None = None) -> float:
        """Tokens that a step of this depth yields, the trunk's own included: E[K]."""
        return 1 + sum(self.gains(label, depth, row_id))

    def forget(self, row_id: int) -> None:
        """A row is finished."""
        self._rows.pop(row_id, None)
