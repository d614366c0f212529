"""One process of tests/decoding/test_tensor_parallel.py: decodes a job, and writes what came out under its own rank.

Arguments: a JSON file of jobs, and the stem of the files to write. Without a rank it is the one process to compare to.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

import foretell
from foretell.checkpoints.adapter import StaleHeadsWarning
from foretell.decoding.sequential_drafter import SequentialDrafter
from foretell.models.trunk import Trunk

PROMPTS = [[5, 6], [7, 8, 9, 10]]
RANK = os.environ.get("RANK")
DRAFTS: list[list[int]] = []
"""What this process's heads drafted, before the processes agreed."""


def decode(job: dict[str, Any]) -> dict[str, Any]:
    """Tokens and accepted counts of every setting, and whether this process holds a part only."""
    model = foretell.load(job["trunk"], heads=job["heads"], tp_plan="auto" if RANK else None, pack=False)
    assert model.heads is not None
    DRAFTS.clear()
    if job["noise"] and RANK == "1":
        add_noise()
    rows = []
    for temperature, seed in ((0.0, 1), (1.0, 7), (1.0, None)):
        for depth, num_nodes in ((0, 0), (2, 0), (2, 5)):
            params = foretell.SamplingParams(max_tokens=12, temperature=temperature, seed=seed)
            done = foretell.Engine(model, max_batch=2).generate(PROMPTS, params, depth=depth, num_nodes=num_nodes)
            rows.append([[row.token_ids, row.stats.accepted_per_position] for row in done])
    return {
        "is_part": any(hasattr(p, "full_tensor") for p in model.trunk.parameters()),
        "heads_are_whole": not any(hasattr(p, "full_tensor") for p in model.heads.parameters()),
        "drafts": list(DRAFTS),
        "rows": rows,
    }


def add_noise() -> None:
    """What kernels that round otherwise do, and more: this process sees logits of its own."""
    scale_logits = Trunk.scale_logits
    generator = torch.Generator().manual_seed(0)

    def noisy(self: Trunk, logits: torch.Tensor) -> torch.Tensor:
        return scale_logits(self, logits) + 5 * torch.randn(logits.shape, generator=generator)

    Trunk.scale_logits = noisy  # type: ignore[method-assign]


def listen() -> None:
    """Keep what the heads draft."""
    draft: Any = SequentialDrafter.draft

    def heard(self: SequentialDrafter, *args: Any, **kwargs: Any) -> Any:
        made = draft(self, *args, **kwargs)
        DRAFTS.extend(list(one.token_ids) for one in made)
        return made

    SequentialDrafter.draft = heard  # type: ignore[method-assign]


if __name__ == "__main__":
    listen()
    warnings.simplefilter("error", StaleHeadsWarning)
    jobs, stem = sys.argv[1:]
    found = [decode(job) for job in json.loads(Path(jobs).read_text())]
    Path(f"{stem}.{RANK}").write_text(json.dumps(found))
