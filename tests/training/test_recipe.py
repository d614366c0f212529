"""Reading a recipe: what is wrong is named with its line, its value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.errors import DataError, UsageError
from foretell.training.recipe_file import load_recipe
from tests.training.runs import RECIPE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "batch_rows",
            "batch_row",
            r"recipe\.toml:\d+: \[train\] unknown key 'batch_row'; did you mean 'batch_rows'\?",
        ),
        ("[objective]", "[objectives]", r"unknown key 'objectives'; did you mean 'objective'\?"),
        ("num_depths = 2", "quux = 2", r"\[heads\] unknown key 'quux'; known: kind, num_modules"),
        ("num_depths = 2", 'concat = "both"', r"\[heads\] concat is 'both'; allowed: .*hidden_first"),
        ("num_depths = 2", "num_modules = 2", r"\[heads\] .*2 distinct modules serve exactly that many depths"),
        ("trunk =", "# trunk =", r"recipe\.toml: trunk or \[model\]: give trunk"),
        ('target = "argmax"', 'target = "best"', r"\[objective\] target is 'best'; allowed: .*distribution"),
        ('target = "argmax"', "weights = [1.0]", r"\[objective\] weights is \(1\.0,\); allowed: 2 numbers"),
        ("held_out = 0.2", "held_out = 0.9", r"held_out is 0\.9"),
        ("max_length = 16", "max_length = 4", r"max_length is 4"),
        ("learning_rate = 1e-2", "learning_rate = 0", r"learning_rate is 0"),
        ('files = ["', 'texts = []\nfiles = []\n# ["', r"\[data\] files is \(\); allowed: at least one"),
        ("batch_rows = 2", 'batch_rows = "2"', r"recipe\.toml:\d+: \[train\] batch_rows is '2'; allowed: int"),
        ("batch_rows = 2", "batch_rows = true", r"batch_rows is True; allowed: int"),
        ("learning_rate = 1e-2", 'learning_rate = "high"', r"learning_rate is 'high'; allowed: float"),
        (
            'files = ["{folder}/data.jsonl"]',
            'files = "data.jsonl"',
            r"files is 'data\.jsonl'; allowed: a list of strings",
        ),
        ('files = ["{folder}/data.jsonl"]', "files = [3]", r"files is \(3,\); allowed: a list of strings"),
        ("max_steps = 10", "max_steps = 2.5", r"max_steps is 2\.5; allowed: int"),
        ("num_depths = 2", "unrolled = 1", r"\[heads\] unrolled is 1; allowed: bool"),
        ('dtype = "float32"', 'dtype = "float16"', r"dtype is 'float16'; allowed: 'auto', 'float32', 'bfloat16'"),
        ('dtype = "float32"', 'dtype = "bfloat16"', r"precision is 'float32'; allowed: bfloat16 or auto"),
        ("max_steps = 10", "max_steps = -1", r"max_steps is -1"),
        ("cache_states = false", 'cache_states = "yes"', r"cache_states is 'yes'; allowed: bool"),
        ("save_steps = 5", "save_steps = 0", r"\[train\] save_steps is 0; allowed: 1 or more"),
        ("num_depths = 2", "draft_vocab_size = 9", r"\[heads\] draft_vocab_size belongs to \[data\]"),
        ("draft_vocab_size = 0", "draft_vocab_size = -1", r"\[data\] draft_vocab_size is -1; allowed: 0 or more"),
        ('target = "argmax"', "decay = 0.0", r"\[objective\] decay is 0\.0; allowed: above 0"),
        ('target = "argmax"', "weights = [0.0, 0.0]", r"weights is \(0\.0, 0\.0\); allowed: .* one above 0"),
        ('target = "argmax"', "weights = [2.0, -1.0]", r"weights is \(2\.0, -1\.0\); allowed: 0 or more each"),
        ("save_steps = 5", "seed = -1", r"\[train\] seed is -1; allowed: 0 to 2\*\*32"),
        ("save_steps = 5", "epochs = inf", r":\d+: \[train\] epochs is inf; allowed: above 0, and finite"),
        ("learning_rate = 1e-2", "learning_rate = inf", r"learning_rate is inf; allowed: above 0, and finite"),
        ('output = "{folder}/adapter"\n', "", r"recipe\.toml: output missing; give a value"),
        ("[data]", "[dato]", r"recipe\.toml:\d+: unknown key 'dato'; did you mean 'data'\?"),
        ("num_depths = 2", 'kind = "mudusa"', r"kind is 'mudusa'; allowed: 'sequential', 'parallel', 'medusa', 'none'"),
        ("num_depths = 2", "extra = {{a = 1}}", r":\d+: \[heads\] extra is what Foretell notes"),
        ("save_steps = 5", "warmup_ratio = 1.0", r"\[train\] warmup_ratio is 1\.0; allowed: 0 to below 1"),
        ("save_steps = 5", "max_grad_norm = -1.0", r"\[train\] max_grad_norm is -1\.0; allowed: 0 or more"),
        ("weight_decay = 0.1", "weight_decay = -0.1", r"\[train\] weight_decay is -0\.1; allowed: 0 or more"),
        ("weight_decay = 0.1", "weight_decay = nan", r"\[train\] weight_decay is nan; allowed: 0 or more"),
        (
            'dtype = "float32"',
            'init_from = "x"',
            r"\[heads\] and \[data\] draft_vocab_size given together with init_from",
        ),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "recipe.toml"
    assert old in RECIPE
    path.write_text(RECIPE.replace(old, new).format(folder=tmp_path))
    with pytest.raises(UsageError, match=message):
        load_recipe(path)


def test_a_broken_recipe_is_named(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("trunk = \n")
    with pytest.raises(DataError, match=r"recipe\.toml: not valid TOML"):
        load_recipe(tmp_path / "recipe.toml")
    with pytest.raises(DataError, match="no such file"):
        load_recipe(tmp_path / "none.toml")
