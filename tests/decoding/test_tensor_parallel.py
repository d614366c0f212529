"""A trunk whose layers are split between two processes (gloo) gives the tokens of one process, drafts and all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foretell.checkpoints.adapter import save_adapter
from foretell.models.trunk import Trunk
from tests.decoding import tensor_parallel_worker as worker
from tests.fixtures import byte_tokenizer, random_heads, tiny_llama
from tests.parity.native_models import write_model

ROOT = Path(__file__).parents[2]
GREEDY, SEEDED, UNSEEDED = slice(0, 3), slice(3, 6), slice(6, 9)
"""Settings of the worker, each plain, with chains and with trees."""


def write_llama(folder: Path, tied: bool = False, **heads: Any) -> dict[str, Any]:
    trunk = Trunk(tiny_llama(tie_word_embeddings=tied), byte_tokenizer())
    trunk.model.save_pretrained(folder / "trunk")
    save_adapter(random_heads(trunk, num_depths=2, **heads), folder / "heads")
    return {"trunk": f"{folder}/trunk", "heads": f"{folder}/heads", "noise": False}


def run_two(jobs: Path, stem: Path) -> list[list[dict[str, Any]]]:
    """What each of two processes found."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", str(ROOT / "src"))]))
    shared = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "WORLD_SIZE": "2"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29519"}  # what torchrun sets, without its own start
    command = [sys.executable, worker.__file__, str(jobs), str(stem)]
    started = [
        subprocess.Popen(
            command, cwd=ROOT, env=shared | {"RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert not any(process.returncode for process in started), "\n".join(error[-2000:] for error in errors)
    return [json.loads(Path(f"{stem}.{rank}").read_text()) for rank in range(2)]


def tokens(settings: list[Any]) -> list[list[list[int]]]:
    """Token ids of every row, without the accepted counts."""
    return [[row[0] for row in rows] for rows in settings]


@pytest.mark.slow
def test_two_processes_are_one(tmp_path: Path) -> None:
    """Greedy and sampled; plain, chains, trees; heads with a draft vocabulary, and native ones of a model of experts.

    The last job's second process has logits of its own, which take part in its drafts but never in a decision.
    """
    llama = write_llama(tmp_path / "llama", tied=True, draft_ids=range(200))
    native = str(write_model(tmp_path / "glm", "glm4_moe", 2, 0, guesses=True))
    jobs = [llama, {"trunk": native, "heads": None, "noise": False}, llama | {"noise": True}]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    first, second = run_two(tmp_path / "jobs.json", tmp_path / "found")
    assert all(found["is_part"] and found["heads_are_whole"] for found in first + second)
    for job, found, other in zip(jobs, first, second, strict=True):
        assert found["rows"] == other["rows"]  # also with a seed that nobody gave
        alone = worker.decode(job)["rows"]
        assert job["noise"] or found["drafts"] == other["drafts"] != []
        if job["noise"]:
            assert tokens(found["rows"][GREEDY]) == tokens(alone[GREEDY])
        else:
            assert found["rows"][GREEDY] == alone[GREEDY]
            assert found["rows"][SEEDED] == alone[SEEDED]
    plain, *drafted = first[1]["rows"][GREEDY]
    for rows in drafted:
        assert tokens([plain]) == tokens([rows]) and sum(row[1][0] for row in rows) > 0
