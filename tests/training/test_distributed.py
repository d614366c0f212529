"""Two processes over gloo give the run of one: losses, gradient norms and weights, split among them or not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import foretell
from foretell.errors import UsageError
from foretell.training.arguments import training_arguments
from foretell.training.recipe import Recipe
from foretell.training.recipe_file import load_recipe
from foretell.training.trainer import train
from tests.training.runs import metrics
from tests.training.test_joint import SCRATCH, scratch

__all__ = ["scratch"]  # a fixture

ROOT = Path(__file__).parents[2]


def torchrun(*arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29517"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command += [str(ROOT / "tests/training/train_all.py"), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    errors = [line for line in done.stderr.splitlines() if "[rank" in line or "Error" in line]
    assert done.returncode == 0, "\n".join(errors[-40:])


def write(folder: Path, name: str, text: str) -> Recipe:
    path = folder / f"{name}.toml"
    path.write_text(text.replace("{folder}/model", f"{folder}/{name}").replace("{folder}/run", f"{folder}/run-{name}"))
    path.write_text(path.read_text().format(folder=folder))
    return load_recipe(path)


def assert_same_run(one: Recipe, other: Recipe, from_step: int = 1) -> None:
    first, second = metrics(one), metrics(other)
    for step in range(from_step, 7):
        names = [n for n in first[step] if n.startswith(("loss", "grad_norm", "agreement", "learning_rate", "top1"))]
        for name in names:
            assert second[step][name] == pytest.approx(first[step][name], rel=1e-4, abs=1e-7), (step, name)
    for name in ("model.safetensors", "mtp.safetensors"):
        tensors = load_file(Path(one.output) / name)
        for key, tensor in load_file(Path(other.output) / name).items():
            torch.testing.assert_close(tensor, tensors[key], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_two_processes_are_one(scratch: Recipe, tmp_path: Path) -> None:
    """DDP and FSDP2, uneven counts of tokens in the processes' rows; saved by one, resumed by two, and back."""
    for i in range(0, 15, 2):  # every other document is a few tokens, so that one process has hardly a target
        (tmp_path / "texts" / f"{i:02}.txt").write_text(f"t{i}")
    text = SCRATCH.replace("max_length = 32", "max_length = 32\npacking = false").replace(
        "batch_rows = 4", "batch_rows = 4\naccumulation = 2"
    )
    fsdp = text.replace('trunk = "joint"', 'trunk = "joint"\nsharding = "fsdp"')
    one = write(tmp_path, "one", text)
    train(one)
    names = ("ddp", "fsdp", "from_one", "parallel", "parallel_fsdp", "below_fsdp")
    parallel = text.replace("num_depths = 2", 'num_depths = 2\nkind = "parallel"\nfinal_norm = "trunk"')
    below = parallel.replace('final_norm = "trunk"', 'hidden_source = "below"')
    texts = dict(zip(names, (text, fsdp, fsdp, parallel, parallel, below), strict=True))
    for name in ("parallel_fsdp", "below_fsdp"):
        texts[name] = texts[name].replace('trunk = "joint"', 'trunk = "joint"\nsharding = "fsdp"')
    runs = {name: write(tmp_path, name, texts[name]) for name in names}
    copy_until_three(one, runs["from_one"])
    torchrun(*(f"{tmp_path}/{name}.toml{'+resume' * (name == 'from_one')}" for name in names))
    assert_same_run(one, runs["ddp"])
    assert_same_run(one, runs["fsdp"])
    assert_same_run(one, runs["from_one"], from_step=4)
    assert_same_run(runs["parallel"], runs["parallel_fsdp"])
    assert foretell.load(runs["below_fsdp"].output).heads is not None

    back = write(tmp_path, "back", text)
    copy_until_three(runs["fsdp"], back)
    assert train(back, resume=True).resumed_at == 3
    assert_same_run(one, back, from_step=4)


def copy_until_three(source: Recipe, target: Recipe) -> None:
    shutil.copytree(source.run_dir, target.run_dir)
    shutil.rmtree(Path(target.run_dir) / "checkpoint-6")


def test_rows_are_dealt_out_evenly(scratch: Recipe) -> None:
    """A micro-batch of the recipe is that of all processes together."""
    assert training_arguments(scratch, Path(scratch.run_dir), 2).per_device_train_batch_size == 2
    with pytest.raises(UsageError, match=r"\[train\] batch_rows is 3; allowed: a multiple of the 2 processes"):
        training_arguments(replace(scratch, train=replace(scratch.train, batch_rows=3)), Path(scratch.run_dir), 2)
