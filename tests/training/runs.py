"""A small run on a tiny trunk, and what it leaves: shared by the tests of training runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from foretell.models.trunk import Trunk
from foretell.training import start, trainer
from foretell.training.recipe import Recipe
from foretell.training.recipe_file import load_recipe
from tests.fixtures import byte_tokenizer, tiny_llama

RECIPE = """
trunk = "{folder}/trunk"
output = "{folder}/adapter"
run_dir = "{folder}/run"
dtype = "float32"

[heads]
num_depths = 2

[data]
files = ["{folder}/data.jsonl"]
max_length = 16
held_out = 0.2
draft_vocab_size = 0

[objective]
target = "argmax"

[train]
max_steps = 10
batch_rows = 2
accumulation = 2
learning_rate = 1e-2
weight_decay = 0.1
precision = "float32"
cache_states = false
save_steps = 5
log_steps = 1
"""


def write_trunk(folder: Path, **config: Any) -> None:
    tiny_llama(hidden_size=32, **config).save_pretrained(folder / "trunk")
    byte_tokenizer().save_pretrained(folder / "trunk")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Eight steps an epoch and 10 steps, so the run stops and goes on in the middle of an epoch."""
    write_trunk(tmp_path)
    generator = torch.Generator().manual_seed(0)
    with (tmp_path / "data.jsonl").open("w") as sink:
        for i in range(40):
            length = int(torch.randint(9, 16, (), generator=generator))
            ids = torch.randint(97, 123, (length,), generator=generator).tolist()
            sink.write(json.dumps({"id": i, "prompt_token_ids": ids[:3], "token_ids": ids[3:]}) + "\n")
    (tmp_path / "recipe.toml").write_text(RECIPE.format(folder=tmp_path))
    return load_recipe(tmp_path / "recipe.toml")


def change(
    recipe: Recipe, name: str = "", heads: dict[str, Any] | None = None, data: Any = None, **settings: Any
) -> Recipe:
    if name:
        recipe = replace(recipe, output=f"{recipe.output}-{name}", run_dir=f"{recipe.run_dir}-{name}")
    return replace(
        recipe,
        heads=replace(recipe.heads, **(heads or {})),
        data=replace(recipe.data, **(data or {})),
        train=replace(recipe.train, **settings),
    )


def adapter(recipe: Recipe) -> dict[str, torch.Tensor]:
    return load_file(Path(recipe.output) / "mtp.safetensors")


def metrics(recipe: Recipe) -> dict[int, dict[str, float]]:
    """By step; of a step logged twice, the last."""
    lines = [json.loads(line) for line in (Path(recipe.run_dir) / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in lines if "loss" in line}


def assert_same_adapter(first: Recipe, second: Recipe) -> None:
    assert_same_tensors(adapter(first), adapter(second))


def assert_same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


class Watched:
    """The trunk and the heads that ``train`` uses, and copies of them from before the first step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        load_trunk, build_heads = start.load_trunk, trainer.starting_heads

        def watched_trunk(*args: Any, **kwargs: Any) -> Trunk:
            self.trunk = load_trunk(*args, **kwargs)
            self.trunk_before = {name: t.clone() for name, t in self.trunk.model.state_dict().items()}
            return self.trunk

        def watched_heads(*args: Any) -> Any:
            self.heads = build_heads(*args)
            self.heads_before = {name: p.detach().clone() for name, p in self.heads.named_parameters()}
            return self.heads

        monkeypatch.setattr(start, "load_trunk", watched_trunk)
        monkeypatch.setattr(trainer, "starting_heads", watched_heads)

    def changed(self) -> set[str]:
        return {name for name, p in self.heads.named_parameters() if not torch.equal(p, self.heads_before[name])}
