"""ModelDrafter: chains drafted by a separate small LM of the same vocabulary (Leviathan et al., arXiv 2211.17192)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from foretell.decoding.blocks import FULL, BlockPool
from foretell.decoding.cache import KVCache
from foretell.decoding.drafter import PIECE
from foretell.decoding.grow import Branches, grow_all
from foretell.decoding.heads_drafter import heads_drafter
from foretell.decoding.memory import weights_num_bytes
from foretell.decoding.passes import PassInput, PassRow
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.errors import UsageError
from foretell.models.decoder import States
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft

_PROBE = "The 3 quick foxes, naïve or not, paid 1,234.50 €:\n\tdef f(x):  # 東京 🦊\n"
"""Words, numbers, white space, code, and characters that byte-level merges treat in their own way."""


@dataclass
class _Known:
    """``length`` entries are made from true tokens, ``num_guessed`` behind them from guesses not judged yet."""

    length: int
    num_guessed: int = 0


class ModelDrafter:
    """Decodes ahead with ``draft``, which has a cache of its own. It drafts chains; a tree's budget it leaves unused.

    A row's first pass at a draft reads all committed tokens that the cache lacks: a prompt, the root, what another
    drafter guessed right. Its own guesses stay in the cache as far as they came true. A draft model with heads makes
    that first pass alone: its heads go on from there, and their drafts may be trees.
    """

    def __init__(self, draft: MTPModel, pools: dict[str, BlockPool], window: int) -> None:
        self.trunk = draft.trunk
        self.window = min(window, self.trunk.max_positions)
        # Every row has a table of all its entries: the draft model's windows may be other ones than the trunk's.
        self.cache = KVCache(self.trunk.kinds, dict.fromkeys(self.trunk.kinds, pools[FULL]), self.trunk.window)
        self._heads = None if draft.heads is None else heads_drafter(draft.heads, pools, self.window)
        self._rows: dict[Sequence, _Known] = {}

    def admit(self, row: Sequence) -> None:
        """A new row."""
        self._rows[row] = _Known(row.num_cached)
        if self._heads is not None:
            self._heads.admit(row)

    def forget(self, row: Sequence) -> None:
        """The row has ended, or must start anew."""
        self._rows.pop(row, None)
        if self._heads is not None:
            self._heads.forget(row)

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """Keep the entries of guesses that were accepted: of all tokens new to the row, the root alone was not."""
        known = self._rows[row]
        known.length += min(known.num_guessed, len(row) - 1 - known.length)
        known.num_guessed = 0

    def depth_for(self, row: Sequence) -> int:
        """As far as the draft model's window goes; with heads one token and their depth."""
        left = max(0, self.window - len(row) + 1)
        return left if self._heads is None else min(left, 1 + self._heads.depth_for(row))

    def num_final(self, row: Sequence) -> int:
        """Entries made from true tokens."""
        length = self._rows[row].length
        return length if self._heads is None else min(length, self._heads.num_final(row))

    def draft(self, rows: list[Sequence], shapes: list[Shape]) -> list[Draft]:
        """One chain a row, or a tree with heads."""
        if self._heads is None:
            shapes = [Shape.chain(shape.depth) for shape in shapes]
        growers = [Branches(row, shape, lead=1) for row, shape in zip(rows, shapes, strict=True)]
        self._draft_depth(1, growers)
        if self._heads is not None:
            self._heads.extend([grower for grower in growers if grower.shape.depth > 1])
            return [grower.finish() for grower in growers]
        for depth in range(2, max(shape.depth for shape in shapes) + 1):
            self._draft_depth(depth, [grower for grower in growers if grower.shape.depth >= depth])
        for grower in growers:
            self._rows[grower.row].num_guessed = max(0, len(grower.draft) - 1)  # nothing has read the last one
        return [grower.finish() for grower in growers]

    def _draft_depth(self, depth: int, growers: list[Branches]) -> None:
        """One pass; each row's draft grows by a level."""
        rows, starts, tokens = [grower.row for grower in growers], [], []
        for grower in growers:
            row, known = grower.row, self._rows[grower.row]
            if depth == 1:
                while len(row) - known.length > PIECE:  # a long prompt
                    self._pass([row], [known.length], [row.tokens_from(known.length, known.length + PIECE)])
                    known.length += PIECE
                starts.append(known.length)
                tokens.append(row.tokens_from(known.length))
                known.length = len(row)
            else:
                starts.append(len(row) + depth - 2)
                tokens.append(grower.draft.token_ids[-1:])
        pass_input, states = self._pass(rows, starts, tokens)
        newest = pass_input.pick(states.post_BTD, [(b, count - 1) for b, count in enumerate(pass_input.counts)])
        self._choose(self.trunk.project(newest), growers)

    def _pass(self, rows: list[Sequence], starts: list[int], tokens: list[list[int]]) -> tuple[PassInput, States]:
        """Read ``tokens`` from ``starts`` on; heads hear of the states."""
        reads = [
            PassRow.stretch(row.whole_tables(self.cache.kinds), start, len(new))
            for row, start, new in zip(rows, starts, tokens, strict=True)
        ]
        pass_input = PassInput.build(self.cache, reads, self.trunk.device)
        states = self.trunk.states(
            self.trunk.embed(pass_input.token_ids(tokens)), pass_input.positions_BT, pass_input.masks, cache=self.cache
        )
        if self._heads is not None:
            for row, start, own in zip(rows, starts, pass_input.split_states(states), strict=True):
                self._heads.observe(row, start, own)
        return pass_input, states

    def _choose(self, logits_FV: torch.Tensor, growers: list[Branches]) -> None:
        grow_all(growers, logits_FV)

    @property
    def caches(self) -> list[KVCache]:
        """The draft model's, and those of its heads."""
        return [self.cache, *([] if self._heads is None else self._heads.caches)]

    @property
    def num_bytes(self) -> int:
        """Memory of the draft model's weights, its heads' too, and of its keys and values."""
        heads = 0 if self._heads is None else self._heads.num_bytes
        return weights_num_bytes(self.trunk) + self.cache.num_bytes + heads


def check_vocabulary(trunk: Trunk, draft: Trunk) -> None:
    """Raise UsageError where a token id may mean something else to ``draft``: other size, or other ids for a text."""
    names = f"draft model {draft.name} and {trunk.name}"
    advice = "give a draft model of the same family"
    if draft.vocab_size != trunk.vocab_size:
        raise UsageError(
            f"{names} have vocabularies of {draft.vocab_size:,} and {trunk.vocab_size:,} tokens; drafting needs the "
            f"same, so {advice}"
        )
    if trunk.tokenizer is None or draft.tokenizer is None:
        return
    ours, theirs = (t.tokenizer(_PROBE, add_special_tokens=False)["input_ids"] for t in (trunk, draft))
    if ours != theirs:
        raise UsageError(f"{names} give the same text other token ids; drafting needs one vocabulary, so {advice}")
