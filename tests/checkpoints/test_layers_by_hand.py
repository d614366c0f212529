"""Heads whose layer is none of the trunk's as it stands: MiMo-V2, Step-3.5, LongCat-Flash.

What they compute is held against the parts of transformers' layers, run one by one in the order that the engines do.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.step3p7 import Step3p7Config
from transformers.models.step3p7.modeling_step3p7 import Step3p7ForConditionalGeneration

import foretell
from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.files import CheckpointWarning
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from foretell.convert.export import export
from foretell.convert.graft import graft
from foretell.convert.import_heads import import_heads
from foretell.convert.strip import strip
from foretell.errors import CheckpointError, UnsupportedModel
from foretell.models.build import build_heads
from foretell.models.copies import copy_without_hooks
from foretell.models.trunk import Trunk
from tests.checkpoints.family_folders import (
    BEHIND,
    LOADABLE,
    Tensors,
    finish,
    random_modules,
    tiny_longcat,
    write_random,
    write_trunk,
)
from tests.fixtures import byte_tokenizer, random_heads, tiny_glm4_moe

LENGTH = 16
WINDOW = 8


@dataclass(frozen=True)
class Parts:
    """Stored prefixes of a module: ``at`` its layer, ``norm`` its final norm, ``mlp``, ``mlp_norm``; and the trunk's
    own ``attention`` and ``dense`` MLP that its tensors go into, with the names in which they differ.
    """

    at: str
    norm: str
    mlp: str
    mlp_norm: str
    attention: Any
    dense: Any
    renames: tuple[tuple[str, str], ...] = ()
    fusion: str = ""
    centred: bool = False
    kind: str | None = None


def parts_of(name: str, trunk: Trunk, k: int) -> Parts:
    """Written by hand, as the folders' names are."""
    layers = trunk.decoder.layers
    if name == "mimo_v2":
        at = f"model.mtp.layers.{k}."
        sinks = (("sinks", "attention_sink_bias"),)
        own = (layers[1].self_attn, layers[0].mlp, sinks)
        return Parts(at, f"{at}final_layernorm", f"{at}mlp.", f"{at}pre_mlp_layernorm", *own, kind="sliding_attention")
    if name == "step3p5":
        at = f"model.layers.{4 + k}."
        own = (layers[0].self_attn, layers[0].mlp)
        norms = (f"{at}transformer.shared_head.norm", f"{at}mlp.", f"{at}post_attention_layernorm")
        return Parts(at, *norms, *own, centred=True, kind="sliding_attention")
    at = "model.mtp.layers.0."
    norms = ("model.mtp.norm", f"{at}transformer_layer.mlp.", f"{at}post_attention_layernorm")
    return Parts(at, *norms, layers[0].self_attn[0], layers[0].mlps[0], fusion=".m")


def filled(module: Any, stored: Tensors, at: str, renames: tuple[tuple[str, str], ...] = ()) -> Any:
    """A copy of ``module`` with the stored tensors."""
    own = copy_without_hooks(module)
    names = dict(renames)
    own.load_state_dict({name: stored[at + names.get(name, name)] for name in own.state_dict()})
    return own


@torch.no_grad()
def by_hand(
    trunk: Trunk, stored: Tensors, parts: Parts, embeddings_BTD: torch.Tensor, states_BTD: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One module's states before and after its final norm."""

    def norm(name: str, x_BTD: torch.Tensor) -> torch.Tensor:
        weight = stored[f"{name}.weight"] + (1.0 if parts.centred else 0.0)
        return torch.nn.functional.rms_norm(x_BTD, x_BTD.shape[-1:], weight, trunk.config.rms_norm_eps)

    at = parts.at
    pair = [norm(f"{at}enorm{parts.fusion}", embeddings_BTD), norm(f"{at}hnorm{parts.fusion}", states_BTD)]
    x_BTD = torch.cat(pair, dim=-1) @ stored[f"{at}eh_proj.weight"].T
    positions = torch.arange(x_BTD.shape[1])
    seen = positions[:, None] >= positions
    if parts.kind is not None:
        seen = seen & (positions[:, None] - positions < WINDOW)
    rotary = trunk.decoder.rotary_emb(x_BTD, positions[None], **({"layer_type": parts.kind} if parts.kind else {}))
    attention = filled(parts.attention, stored, f"{at}self_attn.", parts.renames)
    normed = norm(f"{at}input_layernorm", x_BTD)
    x_BTD = x_BTD + attention(hidden_states=normed, position_embeddings=rotary, attention_mask=seen[None, None])[0]
    x_BTD = x_BTD + filled(parts.dense, stored, parts.mlp)(norm(parts.mlp_norm, x_BTD))
    return x_BTD, norm(parts.norm, x_BTD)


@pytest.mark.parametrize(
    ("name", "num_modules", "layers", "kind"),
    [
        ("mimo_v2", 1, (1, 0), "sliding_attention"),
        ("mimo_v2", 3, (1, 0), "sliding_attention"),
        ("step3p5", 1, (0, -1), "sliding_attention"),
        ("step3p5", 3, (0, -1), "sliding_attention"),
        ("longcat", 1, (-1, -1), "full_attention"),
    ],
)
def test_states(name: str, num_modules: int, layers: tuple[int, int], kind: str, tmp_path: Path) -> None:
    """Every module's, on the state that the one before hands on; a window is shorter than the text."""
    folder = write_random(LOADABLE[name], tmp_path, num_modules)
    trunk = load_trunk(folder)
    heads = load_native_heads(trunk)
    config = heads.config
    assert (config.num_modules, (config.block_layer, config.mlp_layer)) == (num_modules, layers)
    assert heads.layer_kinds == [kind]
    stored = load_file(folder / "model.safetensors")
    ids = torch.randint(0, 256, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    doc_ids = torch.zeros_like(ids)
    states, embeddings = trunk.text_states(ids, doc_ids), trunk.embed(ids)
    ours = heads.training_states(states, embeddings, doc_ids)
    previous_BTD = states.post_BTD if name == "longcat" else states.pre_BTD
    for k in range(num_modules):
        length = LENGTH - 1 - k
        parts = parts_of(name, trunk, k)
        pair = (embeddings[:, k + 1 :], previous_BTD[:, :length])
        previous_BTD, expected_BTD = by_hand(trunk, stored, parts, *pair)
        assert torch.allclose(ours[k][:, :length], expected_BTD, atol=1e-5)
        own = f"{parts.at}transformer.shared_head.output.weight"
        matrix = stored[own if name == "step3p5" else "lm_head.weight"]
        assert torch.allclose(heads.project(expected_BTD, k + 1), expected_BTD @ matrix.T, atol=1e-5)


@pytest.mark.parametrize("guesses", [True, False])
@pytest.mark.parametrize(("name", "num_modules"), [("mimo_v2", 3), ("step3p5", 3), ("longcat", 1)])
def test_text_is_that_of_transformers(name: str, num_modules: int, guesses: bool, tmp_path: Path) -> None:
    """Plain, at every depth and in trees: what transformers says with its own attention, without a cache or a part of
    ours (of Step-3.5 the output head and the names are ours). Some drafts are right, or layers weigh something.
    """
    folder = write_random(LOADABLE[name], tmp_path, num_modules, guesses=guesses)
    engine, params = foretell.Engine(foretell.load(folder)), foretell.SamplingParams(max_tokens=12)
    prompt = [5, 9, 3, 7]
    shapes = [(0, 0), (1, 0), (3, 0), (3, 7)]
    plain, *drafted = [engine.generate([prompt], params, depth=depth, num_nodes=nodes)[0] for depth, nodes in shapes]
    text = prompt + plain.token_ids
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    assert theirs.config._attn_implementation == "eager"
    logits = theirs(torch.tensor([text]), use_cache=False).logits[0]
    assert logits.argmax(-1)[len(prompt) - 1 : -1].tolist() == plain.token_ids
    assert all(one.token_ids == plain.token_ids for one in drafted)
    assert all(sum(one.stats.accepted_per_position) > 0 for one in drafted if guesses)


@pytest.mark.parametrize(("name", "num_modules"), [("mimo_v2", 3), ("longcat", 1)])
def test_there_and_back(name: str, num_modules: int, tmp_path: Path) -> None:
    """Imported, stripped and exported again under the names of the family: the same tensors."""
    folder = write_random(LOADABLE[name], tmp_path / "model", num_modules)
    import_heads(folder, tmp_path / "adapter")
    strip(folder, tmp_path / "plain")
    export(tmp_path / "plain", tmp_path / "adapter", tmp_path / "again", to="native")
    before, after = load_file(folder / "model.safetensors"), {}
    for file in (tmp_path / "again").glob("*.safetensors"):
        after |= load_file(file)
    copies = {"model.mtp.embed_tokens.weight"} if name == "longcat" else set()
    assert before.keys() == after.keys() - copies
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    assert foretell.load(tmp_path / "again", pack=False).heads is not None


def test_an_adapter_with_an_output_matrix_a_module(tmp_path: Path) -> None:
    """Step-3.5: imported heads decode as the native ones do; no layout that can be written says them."""
    folder = write_random(LOADABLE["step3p5"], tmp_path / "model", 3)
    import_heads(folder, tmp_path / "adapter")
    ours, native = foretell.load(folder, heads=tmp_path / "adapter"), foretell.load(folder)
    assert ours.heads is not None and native.heads is not None and ours.heads.config == native.heads.config
    assert len({id(ours.heads.output_at(depth)) for depth in (1, 2, 3)}) == 3
    params = foretell.SamplingParams(max_tokens=12)
    one, other = (foretell.Engine(model).generate(["abc"], params, depth=3)[0] for model in (ours, native))
    assert (one.token_ids, one.stats.accepted_per_position) == (other.token_ids, other.stats.accepted_per_position)
    strip(folder, tmp_path / "plain")
    said = (
        "heads with output matrices of their own; .* share the trunk's output head, of which every module gets a copy"
    )
    with pytest.raises(CheckpointError, match=said):
        export(tmp_path / "plain", tmp_path / "adapter", tmp_path / "again", to="native")


def test_a_joined_layer_goes_where_it_can_be_said(tmp_path: Path) -> None:
    """Engines give the heads of Glm-4.5 experts; MiMo-V2's layer is joined by its family, and goes back (above)."""
    model = tiny_glm4_moe()
    model.save_pretrained(tmp_path / "trunk")
    byte_tokenizer().save_pretrained(tmp_path / "trunk")
    save_adapter(random_heads(load_trunk(tmp_path / "trunk"), mlp_layer=0, num_depths=1), tmp_path / "adapter")
    for to in ("native", "deepseek-style"):
        with pytest.raises(CheckpointError, match="MLP of layer 0 in a block built as layer 1 .* cannot say so"):
            export(tmp_path / "trunk", tmp_path / "adapter", tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists()


def test_double_layers_are_counted_as_the_config_does(tmp_path: Path) -> None:
    """LongCat-Flash says num_layers: heads do not go onto more of them, and layers behind the last are heads."""
    folder = write_random(LOADABLE["longcat"], tmp_path / "model")
    write_trunk(LOADABLE["longcat"], tmp_path / "deeper", num_layers=3)
    with pytest.raises(CheckpointError, match=r"do not fit .*: num_layers 2 \(here 3\)"):
        graft(tmp_path / "deeper", folder, tmp_path / "out")
    names = {part: prefix.format(n=2) for part, prefix in BEHIND.items()}
    behind = write_random(replace(LOADABLE["longcat"], names=names, renames=()), tmp_path / "behind")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        load_trunk(behind)


def test_a_lost_output_matrix(tmp_path: Path) -> None:
    """Refused by name: the trunk's is no substitute."""
    folder = write_random(LOADABLE["step3p5"], tmp_path, 2)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.5.transformer.shared_head.output.weight"
    with pytest.raises(CheckpointError, match=f"1 missing: {name}"):
        load_native_heads(load_trunk(finish(folder, {key: t for key, t in tensors.items() if key != name})))


def test_step_with_images(tmp_path: Path) -> None:
    """Step-3.7: its text model is the trunk, with the logits of the whole; what sees images is left out unsaid."""
    text = LOADABLE["step3p5"].make().config.to_dict()
    sees = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, mlp_ratio=2.0)
    settings = {key: value for key, value in text.items() if key not in ("architectures", "transformers_version")}
    torch.manual_seed(0)
    whole = Step3p7ForConditionalGeneration(Step3p7Config(text_config=settings, vision_config=sees, image_token_id=255))
    whole.eval().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert "vision_model.conv1.weight" in tensors and "model.layers.3.moe.gate_proj.weight" in tensors
    heads = random_modules(LOADABLE["step3p5"], {n: t for n, t in tensors.items() if "vision" not in n}, 4, 3)
    save_file(tensors | heads, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"] |= {"num_nextn_predict_layers": 3, "mtp_layer_types": ["sliding_attention"] * 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        trunk = load_trunk(tmp_path)
    ids = torch.arange(1, 1 + LENGTH)[None]
    assert torch.equal(trunk.model(ids).logits, whole(ids).logits)
    assert load_native_heads(trunk).config.block_layer == 0


def test_copy_of_the_embedding(tmp_path: Path) -> None:
    """LongCat's files repeat it."""
    folder = write_random(LOADABLE["longcat"], tmp_path)
    tensors = load_file(folder / "model.safetensors")
    finish(folder, tensors | {"model.mtp.embed_tokens.weight": tensors["model.embed_tokens.weight"]})
    assert foretell.load(folder, pack=False).heads is not None


@pytest.mark.parametrize("kind", ["sequential", "parallel"])
def test_fresh_heads_on_layers_with_two_attentions(kind: Any) -> None:
    """LongCat-Flash: a head's layer has one of them, and keeps the context once."""
    assert random_heads(Trunk(tiny_longcat()), kind=kind, num_depths=2).layer_kinds == ["full_attention"]


def test_fresh_heads_with_the_mlp_of_another_layer() -> None:
    """Glm-4.5's last layer has experts, its first none; the trunk's layers are as they were."""
    trunk = Trunk(tiny_glm4_moe())
    layer = random_heads(trunk, mlp_layer=0).modules_by_depth[0].layer
    last = trunk.decoder.layers[-1]
    assert type(layer.mlp) is type(trunk.decoder.layers[0].mlp) is not type(last.mlp)
    assert type(layer) is type(last) and layer.mlp is not trunk.decoder.layers[0].mlp
    assert {id(p) for p in layer.parameters()}.isdisjoint(id(p) for p in trunk.parameters())
    for value, message in ((2, "mlp_layer is 2; .* has layers 0 to 1"), (-2, "mlp_layer is -2")):
        with pytest.raises(CheckpointError, match=message):
            build_heads(trunk, foretell.HeadsConfig(mlp_layer=value))
    mambas = Trunk(LOADABLE["nemotron_h"].make())
    with pytest.raises(UnsupportedModel, match="NemotronHBlock has none under the name 'mlp'; leave it out"):
        build_heads(mambas, foretell.HeadsConfig(mlp_layer=1))
