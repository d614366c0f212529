"""Held-out figures of a run: the trunk as a language model, and its heads' guesses (see probe)."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import torch

from foretell.models.heads import Heads
from foretell.models.trunk import Trunk
from foretell.training.documents import Document
from foretell.training.objective import Batch, joint_loss
from foretell.training.packing import pack
from foretell.training.probe import probe_documents
from foretell.training.recipe import DataConfig, ObjectiveConfig

_MOST_DOCUMENTS = 400
_MOST_TOKENS = 200_000
_ONE = torch.ones(1, dtype=torch.long)
"""In place of the counts of a window: sums are wanted, no means."""


@torch.no_grad()
def evaluate(
    trunk: Trunk, heads: Heads | None, documents: list[Document], data: DataConfig, bf16: bool, language_model: bool
) -> dict[str, Any]:
    """Figures over the first held-out documents (400, or those within 200,000 tokens), as plain values.

    With ``language_model``: "loss" (nats a target) and "bits_per_byte", the bits a target times the tokens a byte of
    these documents; None where there is no target, or the bytes are unknown. With heads: what ``ProbeReport`` holds.
    """
    sizes = accumulate(len(document.token_ids) for document in documents)
    within = [d for d, size in zip(documents, sizes, strict=True) if size <= _MOST_TOKENS]
    documents = (within or documents[:1])[:_MOST_DOCUMENTS]
    with torch.autocast(trunk.device.type, dtype=torch.bfloat16, enabled=bf16):
        found: dict[str, Any] = {}
        if heads is not None:
            found |= probe_documents(heads, documents, data.max_length, packing=data.packing).as_dict()
        if language_model:
            found |= _language_model(trunk, documents, data)
    return found


def _language_model(trunk: Trunk, documents: list[Document], data: DataConfig, batch_rows: int = 8) -> dict[str, Any]:
    rows = pack(documents, data.max_length, data.packing)
    nll, num_targets = 0.0, 0
    for start in range(0, len(rows), batch_rows):
        part = slice(start, start + batch_rows)
        token_ids = rows.token_ids_RT[part].long().to(trunk.device)
        doc_ids = rows.doc_ids_RT[part].long().to(trunk.device)
        supervised, states = rows.supervised_RT[part].to(trunk.device), trunk.text_states(token_ids, doc_ids)
        batch = Batch(token_ids, doc_ids, supervised, states, None)
        main = joint_loss(trunk, None, batch, ObjectiveConfig(), _ONE, progress=0.0, train_trunk=True).main
        assert main is not None
        nll += float(main.loss_sum)
        num_targets += main.num_valid
    num_bytes = sum(document.num_bytes for document in documents)
    num_tokens = sum(len(document.token_ids) for document in documents)
    loss = nll / num_targets if num_targets else None
    return {
        "loss": loss,
        "bits_per_byte": None if loss is None or not num_bytes else loss / math.log(2) * num_tokens / num_bytes,
        "num_targets": num_targets,
        "num_bytes": num_bytes,
    }
