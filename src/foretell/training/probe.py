"""Probe: how good the heads' guesses are on held-out text, per depth, before anything is served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from foretell.errors import DataError
from foretell.models.greedy import argmax
from foretell.models.heads import Heads
from foretell.training.data import Document, PackedRows, pack, record_document
from foretell.training.objective import Batch
from foretell.training.states import trunk_outputs
from foretell.training.targets import ahead_of, valid_mask

Record = tuple[str, int, dict[str, Any]]
"""File, line, and what is written there."""


@dataclass
class DepthReport:
    """One depth's shares of positions. ``agreement``: the draft equals the trunk's argmax.

    ``overlap``: mean of sum min(p, q), what sampling at temperature 1 would accept. ``chained``: depths 1..k all
    accepted in a greedy chain; counted where the text itself follows the trunk's argmax up to there, since only there
    the text shows what the chain would have seen. A share of no positions is None.
    """

    depth: int
    num_positions: int
    agreement: float | None
    overlap: float | None
    num_chained_positions: int
    chained: float | None


@dataclass
class ProbeReport:
    """Per-depth figures, and the mean acceptance length that the chained acceptance predicts at the full depth.

    The length is None where a depth has no chain to count.
    """

    depths: list[DepthReport]
    mean_acceptance_length: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def probe(
    heads: Heads,
    records: list[Record],
    max_length: int = 256,
    batch_rows: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> ProbeReport:
    """Probe ``heads`` on JSONL records (distilled answers: answers count; {"text": ...}: every token counts).

    Raises DataError for a record that cannot be read, with its file and line, and where no position can be probed.
    """
    documents = [record_document(values, heads.trunk, "answer", (file, line)) for file, line, values in records]
    report = probe_documents(heads, documents, max_length, batch_rows, on_progress)
    if not any(depth.num_positions for depth in report.depths):
        raise DataError(
            "nothing to probe: no record has a token that a depth could predict; give longer answers or texts",
            ", ".join(dict.fromkeys(file for file, _, _ in records)),
        )
    return report


@torch.no_grad()
def probe_documents(
    heads: Heads,
    documents: list[Document],
    max_length: int = 256,
    batch_rows: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> ProbeReport:
    """The same for documents already tokenised."""
    rows = pack(documents, max_length)
    num_depths = heads.config.num_depths
    tallies = [_Tally() for _ in range(num_depths)]
    for start in range(0, len(rows), batch_rows):
        part = slice(start, min(start + batch_rows, len(rows)))
        _probe_batch(heads, _batch(heads, rows, part), tallies)
        if on_progress:
            on_progress(part.stop, len(rows))
    depths = [t.report(k) for k, t in enumerate(tallies, start=1)]
    chained = [d.chained for d in depths if d.chained is not None]
    return ProbeReport(depths, 1 + sum(chained) if len(chained) == len(depths) else None)


@dataclass
class _Tally:
    num_positions: int = 0
    num_agreed: int = 0
    overlap_sum: float = 0.0
    num_chain_positions: int = 0
    num_chained: int = 0

    def report(self, depth: int) -> DepthReport:
        return DepthReport(
            depth,
            self.num_positions,
            _share(self.num_agreed, self.num_positions),
            _share(self.overlap_sum, self.num_positions),
            self.num_chain_positions,
            _share(self.num_chained, self.num_chain_positions),
        )


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _batch(heads: Heads, rows: PackedRows, part: slice) -> Batch:
    token_ids, doc_ids = rows.token_ids_RT[part].long(), rows.doc_ids_RT[part].long()
    device = heads.trunk.device
    states, argmax = trunk_outputs(heads.trunk, token_ids.to(device), doc_ids.to(device))
    return Batch(token_ids.to(device), doc_ids.to(device), rows.supervised_RT[part].to(device), states, argmax)


def _probe_batch(heads: Heads, batch: Batch, tallies: list[_Tally]) -> None:
    states = heads.training_states(batch.states, heads.trunk.embed(batch.token_ids_BT), batch.doc_ids_BT)
    shape = batch.token_ids_BT.shape
    # accepted_BT: so far every depth was the trunk's argmax; on_path_BT: and the text took that argmax.
    accepted_BT = torch.ones(shape, dtype=torch.bool, device=batch.token_ids_BT.device)
    on_path_BT = torch.ones_like(accepted_BT)
    follows_BT = torch.zeros_like(accepted_BT)  # token i+1 is the trunk's argmax at i
    follows_BT[:, :-1] = batch.token_ids_BT[:, 1:] == batch.argmax_BT[:, :-1]
    for depth, (state_BTD, tally) in enumerate(zip(states, tallies, strict=True), start=1):
        valid_BT = valid_mask(batch.doc_ids_BT, batch.supervised_BT, depth)
        logits_NV = heads.project(state_BTD[valid_BT]).float()
        drafted_N = heads.to_token_ids(argmax(logits_NV))
        agreed_N = drafted_N == ahead_of(batch.argmax_BT, valid_BT, depth)
        tally.num_positions += int(valid_BT.sum())
        tally.num_agreed += int(agreed_N.sum())
        tally.overlap_sum += _overlap(heads, logits_NV, ahead_of(batch.states.post_BTD, valid_BT, depth))
        agreed_BT = torch.zeros_like(accepted_BT)
        agreed_BT[valid_BT] = agreed_N
        accepted_BT = accepted_BT & agreed_BT
        on_path_BT = on_path_BT & valid_BT  # at every depth: a chain begins where its first token is a target
        tally.num_chain_positions += int(on_path_BT.sum())
        tally.num_chained += int((accepted_BT & on_path_BT).sum())
        # Depth k+1 at i reads token i+k+1: the text must have taken the trunk's choice at i+k.
        shifted_BT = torch.zeros_like(follows_BT)
        shifted_BT[:, : shape[1] - depth] = follows_BT[:, depth:]
        on_path_BT = on_path_BT & shifted_BT


def _overlap(heads: Heads, logits_NV: torch.Tensor, trunk_states_ND: torch.Tensor, chunk: int = 512) -> float:
    """Sum over positions of sum_v min(p, q), p over the trunk's whole vocabulary."""
    total = 0.0
    for start in range(0, len(logits_NV), chunk):
        p_NV = heads.trunk.project(trunk_states_ND[start : start + chunk]).float().softmax(-1)
        if heads.draft_ids_V is not None:
            p_NV = p_NV[:, heads.draft_ids_V]
        total += float(torch.minimum(p_NV, logits_NV[start : start + chunk].softmax(-1)).sum())
    return total
