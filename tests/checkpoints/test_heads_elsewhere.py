"""Heads that a folder holds where nobody looks: under another prefix, or of a kind that is read from an adapter."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import foretell
from foretell.checkpoints.files import CheckpointWarning, TensorHeader
from foretell.checkpoints.native import misnamed_tensors
from foretell.convert.import_heads import import_heads
from foretell.convert.strip import strip
from foretell.errors import CheckpointError
from foretell.inspection.inspect import inspect_checkpoint
from foretell.inspection.model import inspect_stored
from tests.checkpoints.family_folders import LOADABLE, finish, write_random, write_trunk
from tests.checkpoints.test_loose_heads import medusa_file, meta_weights
from tests.convert.models import read
from tests.inspection.manifests import stored

LLAMA = LOADABLE["llama behind"]


def test_a_wrong_prefix_is_not_called_a_loss(tmp_path: Path) -> None:
    """As PEFT names what it wraps; the trunk is whole, and a graft would be the wrong advice alone."""
    folder = write_random(LLAMA, tmp_path)
    tensors = {n.replace("model.layers.2.", "base_model.model.layers.2."): t for n, t in read(folder).items()}
    finish(folder, tensors)
    said = r"13 tensors under other names: base_model\.model\.layers\.2\.eh_proj\.weight, .*: rename them"
    [problem] = inspect_checkpoint(folder).problems
    assert re.search(said, problem) and "they were lost" not in problem
    with pytest.warns(CheckpointWarning, match=said):
        assert foretell.load(folder, pack=False).heads is None


def test_half_of_the_heads_under_a_wrong_prefix(tmp_path: Path) -> None:
    folder = write_random(LLAMA, tmp_path)
    finish(folder, {n.replace("model.layers.2.mlp", "my.layers.2.mlp"): t for n, t in read(folder).items()})
    found = inspect_checkpoint(folder).problems
    assert any("beside the heads 3 tensors under other names: my.layers.2.mlp.down_proj.weight" in p for p in found)


def test_what_speaks_of_heads_and_what_does_not() -> None:
    strange = ["base_model.mtp.fc.weight", "x.layers.4.norm.weight", "y.nextn.eh_proj.weight", "z.h.9.attn.weight"]
    others = ["model.layers.3.mlp.weight", "model.norm.weight", "vision_tower.encoder.layers.20.fc.weight"]
    others += ["model.visual.blocks.11.attn.weight", "model.layers.0.mtp_gate.weight"]
    assert misnamed_tensors(strange + others, 4) == sorted(strange)


@pytest.mark.parametrize("family", ["medusa", "meta"])
def test_heads_of_other_kinds_in_a_model_folder(family: str, tmp_path: Path) -> None:
    """inspect and load say one thing, and what they say can be done; strip takes them out."""
    folder = tmp_path / "m"
    trunk, _ = write_trunk(LLAMA, folder)
    heads = {f"extra_heads.0.{name}": tensor for name, tensor in meta_weights(0).items()}
    if family == "medusa":
        heads = {f"medusa_head.{name}": tensor for name, tensor in medusa_file(2, 1).items()}
    finish(folder, trunk | heads)
    found = inspect_checkpoint(folder)
    assert (found.family, found.num_modules, found.problems) == (family, 2 if family == "medusa" else 1, [])
    assert set(found.mtp_tensors) == set(heads) and "foretell convert import HEADS OUT --trunk MODEL" in found.blocked
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert foretell.load(folder, pack=False).heads is None
    assert any(found.blocked in str(w.message) and family in str(w.message) for w in caught)
    with pytest.raises(CheckpointError, match="convert import HEADS OUT --trunk MODEL"):
        import_heads(folder, tmp_path / "a")
    import_heads(folder, tmp_path / "a", folder)
    loaded = foretell.load(folder, heads=tmp_path / "a", pack=False).heads
    assert loaded is not None and loaded.config.kind == ("medusa" if family == "medusa" else "parallel")
    strip(folder, tmp_path / "plain")
    assert read(tmp_path / "plain").keys() == trunk.keys()


@pytest.mark.parametrize(
    "name",
    ["model.layers.{}.x.weight", "model.mtp_layers.{}.input_proj.weight", "medusa_head.{}.0.weight", "{}.1.weight"],
)
def test_numbers_of_thousands_of_digits_are_no_numbers(name: str) -> None:
    """Python reads no more than 4,300."""
    headers = {
        "model.embed_tokens.weight": TensorHeader((8, 8), "F32"),
        name.format("9" * 5000): TensorHeader((1,), "F32"),
    }
    config = {"num_hidden_layers": 1, "hidden_size": 8, "vocab_size": 8, "num_nextn_predict_layers": 1}
    assert inspect_stored(stored(config, headers)).num_tensors == 2
