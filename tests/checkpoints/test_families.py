"""Which family's heads lie in a folder, told from names alone; every family's folder is written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foretell
from foretell.checkpoints.families import FAMILIES, detect_family, family_named
from foretell.checkpoints.files import CheckpointWarning
from foretell.checkpoints.stored import StoredModel
from tests.checkpoints.family_folders import FLAT, LOADABLE, not_run, write_random

ALONE = {"bailing": "hy_v3", "glm4_moe": "deepseek", "qwen3_next": "mellum", "qwen3_5": "mellum", "exaone": "mellum"}
"""Whose layout it is where the architecture names no family: that of the first with this layout."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoredModel]:
    """One folder a family, opened."""
    root = tmp_path_factory.mktemp("families")
    return {name: StoredModel.open(write_random(stored, root / name)) for name, stored in LOADABLE.items()}


@pytest.mark.parametrize("name", LOADABLE)
def test_told_by_its_files(name: str, folders: dict[str, StoredModel]) -> None:
    """Family, modules by tensors, modules by the config's claim, and every name there and back."""
    found, stored = folders[name], LOADABLE[name]
    assert found.family is not None and found.family.name == stored.family
    assert (found.num_modules, found.claim.num_layers, found.claim.key) == (1, int(bool(stored.claim)), stored.claim)
    places = {head: found.family.place(head, found.num_layers) for head in found.head_names}
    assert {place.part for place in places.values() if place} == stored.names.keys() and None not in places.values()
    assert all(found.family.stored(place, found.num_layers) == head for head, place in places.items() if place)


@pytest.mark.parametrize("name", LOADABLE)
def test_layout_without_a_name(name: str, folders: dict[str, StoredModel]) -> None:
    """An architecture that nobody knows: the first family of that layout."""
    found = detect_family({"architectures": ["NewForCausalLM"]}, folders[name].head_names, folders[name].num_layers)
    family = LOADABLE[name].family
    assert found is not None and found.name == ALONE.get(family, family)


@pytest.mark.parametrize("name", LOADABLE)
def test_a_lost_tensor_hides_no_family(name: str, folders: dict[str, StoredModel]) -> None:
    """Whichever tensor is missing, so that the load can say which one it is."""
    found = folders[name]
    for lost in found.head_names:
        rest = [head for head in found.head_names if head != lost]
        family = detect_family(found.config, rest, found.num_layers)
        assert family is not None and family.name == LOADABLE[name].family, lost


def test_a_family_that_is_not_run(tmp_path: Path) -> None:
    """Told by name, with the reason; decoding is plain and says so."""
    folder = write_random(LOADABLE["deepseek_v3"], tmp_path)
    with not_run("deepseek", "they are made up"):
        found = StoredModel.open(folder)
        assert found.family is not None and (found.family.name, found.num_modules) == ("deepseek", 1)
        with pytest.warns(CheckpointWarning, match="its deepseek heads cannot be run: they are made up; decoding is"):
            model = foretell.load(folder, pack=False)
    assert model.heads is None
    [done] = foretell.Engine(model).generate([[1, 2]], foretell.SamplingParams(max_tokens=4))
    assert len(done.token_ids) == 4 and done.stats.num_draft_tokens == 0


def test_modules_by_tensors_and_by_claim(tmp_path: Path) -> None:
    """Two in the files, three announced."""
    folder = write_random(LOADABLE["deepseek_v3"], tmp_path / "model", num_modules=2)
    config = json.loads((folder / "config.json").read_text()) | {"num_nextn_predict_layers": 3}
    (folder / "config.json").write_text(json.dumps(config))
    found = StoredModel.open(folder)
    assert (found.num_modules, found.claim.num_layers) == (2, 3)


@pytest.mark.parametrize("nested", ["model.language_model.", "language_model.model."])
def test_models_with_images(nested: str) -> None:
    """GLM-OCR and Kimi-K3: settings in text_config, the language model one name deeper."""
    config = {"architectures": ["GlmOcrForConditionalGeneration"], "text_config": {"num_nextn_predict_layers": 1}}
    parts = ("enorm", "hnorm", "eh_proj", "shared_head.norm", "self_attn.q_proj", "mlp.gate_proj")
    names = [f"{nested}layers.{layer}.{part}.weight" for layer in (15, 16) for part in parts]
    found = detect_family(config, [name for name in names if ".16." in name], 16)
    assert found is not None and found.name == "glm4_moe"
    places = [found.place(name, 16) for name in names]
    assert [place.part for place in places if place] == ["enorm", "hnorm", "eh_proj", "norm", "layer", "layer"]


def test_nested_settings_of_a_folder(tmp_path: Path) -> None:
    """The number of layers, and of modules, where the settings of the language model are nested."""
    folder = write_random(LOADABLE["qwen3_5"], tmp_path)
    flat = json.loads((folder / "config.json").read_text())
    nested = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": flat}
    (folder / "config.json").write_text(json.dumps(nested))
    found = StoredModel.open(folder)
    assert found.family is not None and found.family.name == "qwen3_5"
    assert (found.num_layers, found.num_modules, found.claim.num_layers) == (4, 1, 1)


def test_no_family() -> None:
    """A plain trunk has none; nor has a layer whose place alone is known: it may be anybody's."""
    assert detect_family({"architectures": ["LlamaForCausalLM"]}, ["model.norm.weight", "lm_head.weight"], 2) is None
    wrong_prefix = ["model." + prefix.format(k=0) + ".weight" for prefix in FLAT.values()]
    assert detect_family({"architectures": ["Qwen3_5ForCausalLM"]}, wrong_prefix, 2) is None
    assert detect_family({}, ["model.mtp.layers.0.self_attn.q_proj.weight"], 2) is None


def test_table() -> None:
    """Names are unique, architectures overlap nowhere, and every family says what every engine does."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    assert all(family_named(family.name) is family and all(family.engines) for family in FAMILIES)
    assert all(family.engines[3] for family in FAMILIES)
