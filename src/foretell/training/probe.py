"""Probe: how good the heads' guesses are on held-out text, per depth, before anything is served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from foretell.errors import DataError
from foretell.models.greedy import argmax
from foretell.models.heads import Heads
from foretell.training.chain import Chain
from foretell.training.documents import Document, DocumentReader
from foretell.training.objective import Batch
from foretell.training.packing import PackedRows, pack
from foretell.training.sources import Record
from foretell.training.states import trunk_outputs
from foretell.training.targets import ahead_of, valid_mask


@dataclass
class DepthReport:
    """One depth's shares of positions. ``agreement``: the draft equals the trunk's argmax.

    ``overlap``: mean of sum min(p, q), what sampling at temperature 1 would accept. ``chained``: depths 1..k all
    accepted in a greedy chain, estimated (see chain) from ``num_chained_positions``. A share of no positions is None.
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
    records: list[tuple[str, int, dict[str, Any]]],
    max_length: int = 256,
    batch_rows: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> ProbeReport:
    """Probe ``heads`` on JSONL records: file, line, and what is written there (see DocumentReader); answers count, and
    every token of a text does.

    Raises DataError for a record that cannot be read, with its file and line, and where no position can be probed.
    """
    reader = DocumentReader(heads.trunk.tokenizer, heads.trunk.vocab_size, supervise="answer")
    documents = [reader.read(Record(values, file, line)) for file, line, values in records]
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
    packing: bool = True,
) -> ProbeReport:
    """The same for documents already tokenised; without ``packing`` each has a row of its own."""
    rows = pack(documents, max_length, packing)
    num_depths = heads.config.num_depths
    tallies = [_Tally() for _ in range(num_depths)]
    for start in range(0, len(rows), batch_rows):
        part = slice(start, min(start + batch_rows, len(rows)))
        _probe_batch(heads, _batch(heads, rows, part), tallies)
        if on_progress:
            on_progress(part.stop, len(rows))
    depths: list[DepthReport] = []
    chained_before: float | None = 1.0
    for depth, tally in enumerate(tallies, start=1):
        depths.append(tally.report(depth, chained_before))
        chained_before = depths[-1].chained
    chained = [d.chained for d in depths if d.chained is not None]
    return ProbeReport(depths, 1 + sum(chained) if len(chained) == len(depths) else None)


@dataclass
class _Tally:
    num_positions: int = 0
    num_agreed: int = 0
    overlap_sum: float = 0.0
    num_chain_positions: int = 0
    num_chained: int = 0

    def report(self, depth: int, chained_before: float | None) -> DepthReport:
        here = 0.0 if chained_before == 0 else _share(self.num_chained, self.num_chain_positions)
        return DepthReport(
            depth,
            self.num_positions,
            _share(self.num_agreed, self.num_positions),
            _share(self.overlap_sum, self.num_positions),
            self.num_chain_positions,
            None if here is None or chained_before is None else chained_before * here,
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
    assert batch.argmax_BT is not None
    chain = Chain(batch.token_ids_BT, batch.argmax_BT)
    for depth, (state_BTD, tally) in enumerate(zip(states, tallies, strict=True), start=1):
        valid_BT = valid_mask(batch.doc_ids_BT, batch.supervised_BT, depth)
        logits_NV = heads.project(state_BTD[valid_BT], depth).float()
        drafted_N = heads.to_token_ids(argmax(logits_NV))
        agreed_N = drafted_N == ahead_of(batch.argmax_BT, valid_BT, depth)
        tally.num_positions += int(valid_BT.sum())
        tally.num_agreed += int(agreed_N.sum())
        tally.overlap_sum += _overlap(heads, logits_NV, ahead_of(batch.states.post_BTD, valid_BT, depth))
        num_chain, num_chained = chain.extend(valid_BT, agreed_N)
        tally.num_chain_positions += int(num_chain)
        tally.num_chained += int(num_chained)


def _overlap(heads: Heads, logits_NV: torch.Tensor, trunk_states_ND: torch.Tensor, chunk: int = 512) -> float:
    """Sum over positions of sum_v min(p, q), p over the trunk's whole vocabulary."""
    total = 0.0
    for start in range(0, len(logits_NV), chunk):
        p_NV = heads.trunk.project(trunk_states_ND[start : start + chunk]).float().softmax(-1)
        if heads.draft_ids_V is not None:
            p_NV = p_NV[:, heads.draft_ids_V]
        total += float(torch.minimum(p_NV, logits_NV[start : start + chunk].softmax(-1)).sum())
    return total
