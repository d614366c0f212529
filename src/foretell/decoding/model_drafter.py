"""ModelDrafter: chains drafted by a separate small LM of the same vocabulary (Leviathan et al., arXiv 2211.17192)."""

from __future__ import annotations

import torch

from foretell.decoding.cache import KVCache
from foretell.decoding.choose import choose_tokens
from foretell.decoding.memory import weights_num_bytes
from foretell.decoding.passes import PassInput
from foretell.decoding.sequence import Sequence
from foretell.errors import UsageError
from foretell.models.decoder import States
from foretell.models.trunk import Trunk
from foretell.types import Draft

_PROBE = "The 3 quick foxes, naïve or not, paid 1,234.50 €:\n\tdef f(x):  # 東京 🦊\n"
"""Words, numbers, white space, code, and characters that byte-level merges treat in their own way."""


class ModelDrafter:
    """Decodes ahead with ``draft``, which has a cache of its own.

    A row's first pass at a draft reads all committed tokens that the cache lacks: a prompt, the root, what another
    drafter guessed right. Its own guesses stay in the cache as far as they came true.
    """

    def __init__(self, draft: Trunk, num_slots: int, window: int) -> None:
        self.trunk = draft
        self.window = min(window, draft.max_positions)
        self.cache = KVCache(num_slots, self.window)
        self._num_guessed = [0] * num_slots  # entries behind the valid ones, made from guesses not judged yet

    def admit(self, slot: int) -> None:
        """A new row takes ``slot``."""
        self.cache.commit(slot, 0)
        self._num_guessed[slot] = 0

    def move(self, source: int, target: int) -> None:
        """A row changes slots; between steps all its guesses are judged."""
        self.cache.move(source, target)
        self._num_guessed[target] = 0

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """Keep the entries of guesses that were accepted: of all tokens new to the row, the root alone was not."""
        if num_guessed := self._num_guessed[row.slot]:
            length = self.cache.lengths[row.slot]
            self.cache.commit(row.slot, length + min(num_guessed, len(row) - 1 - length))
            self._num_guessed[row.slot] = 0

    def depth_for(self, row: Sequence) -> int:
        """How deep this row can be drafted now: its own limit, and the draft model's window."""
        return max(0, min(row.depth_limit, self.window - len(row) + 1))

    def draft(self, rows: list[Sequence], depths: list[int]) -> list[Draft]:
        """One chain a row, ``depths[b]`` tokens long."""
        drafts = [Draft() for _ in rows]
        for depth in range(1, max(depths, default=0) + 1):
            active = [b for b, limit in enumerate(depths) if limit >= depth]
            self._draft_depth(depth, [rows[b] for b in active], [drafts[b] for b in active])
        for row, draft in zip(rows, drafts, strict=True):
            self._num_guessed[row.slot] = max(0, len(draft.token_ids) - 1)  # nothing has read the last one
        return drafts

    def _draft_depth(self, depth: int, rows: list[Sequence], drafts: list[Draft]) -> None:
        """One pass; each row's draft grows by a token."""
        if depth == 1:
            starts = [self.cache.lengths[row.slot] for row in rows]
            tokens = [row.tokens_from(start) for row, start in zip(rows, starts, strict=True)]
        else:
            starts = [len(row) + depth - 2 for row in rows]
            tokens = [draft.token_ids[-1:] for draft in drafts]
        counts = [len(row_tokens) for row_tokens in tokens]
        pass_input = PassInput.build(self.cache, [row.slot for row in rows], starts, counts, self.trunk.device)
        states = self.trunk.states(
            self.trunk.embed(pass_input.pad_ids(tokens)),
            pass_input.positions_BN,
            pass_input.allowed_BNS,
            pass_input.key_positions_BS,
            self.cache,
        )
        if depth == 1:
            for row in rows:
                self.cache.commit(row.slot, len(row))
        newest = torch.tensor(counts, device=self.trunk.device) - 1
        row_index = torch.arange(len(rows), device=self.trunk.device)
        self._choose(self.trunk.project(states.post_BTD[row_index, newest]), rows, drafts)

    def _choose(self, logits_BV: torch.Tensor, rows: list[Sequence], drafts: list[Draft]) -> None:
        choose_tokens(logits_BV, rows, drafts)

    @property
    def num_bytes(self) -> int:
        """Memory of the draft model's weights, and of its keys and values."""
        return weights_num_bytes(self.trunk) + self.cache.num_bytes


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
