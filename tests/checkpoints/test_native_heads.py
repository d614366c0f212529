"""Native heads of every family in the table: they decode, mean what their family means, and are refused when damaged.

Folders are written by hand (tests/checkpoints/family_folders). What they compute is held against transformers in
tests/parity.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import foretell
from foretell.checkpoints.files import CheckpointWarning
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from foretell.convert.import_heads import import_heads
from foretell.errors import CheckpointError, UsageError
from foretell.models.copies import copy_without_hooks
from foretell.models.sequential import SequentialHeads
from foretell.training.recipe_file import load_recipe
from foretell.training.trainer import train
from foretell.types import Completion
from tests.checkpoints.family_folders import LOADABLE, SHARED_NAMES, Script, finish, write_random, write_script
from tests.fixtures import tiny_gemma

NUM_TOKENS = 20
TWO_MODULES = ("llama behind", "llama shared names", "glm4_moe", "mimo_v2", "step3p5")
DAMAGED = ("deepseek_v3", "mellum", "mimo", "ernie4_5_moe")


def decode(folder: Path, depths: tuple[int, ...], prompt: tuple[int, ...] = (1, 2, 3)) -> list[Completion]:
    """One text at every depth, each NUM_TOKENS long."""
    engine = foretell.Engine(foretell.load(folder, pack=False))
    params = foretell.SamplingParams(max_tokens=NUM_TOKENS)
    return [engine.generate([list(prompt)], params, depth=depth)[0] for depth in depths]


def counts(folder: Path, *depths: int, prompt: tuple[int, ...] = (1, 2, 3)) -> list[tuple[int, list[int]]]:
    """Tokens drafted, and accepted by depth, on a script; its text is right whatever the heads say."""
    done = decode(folder, depths, prompt)
    for one in done:
        assert one.token_ids == [(prompt[-1] + 1 + i) % Script().size for i in range(NUM_TOKENS)]
    return [(one.stats.num_draft_tokens, one.stats.accepted_per_position) for one in done]


@pytest.mark.parametrize("name", LOADABLE)
def test_random_heads_are_lossless(name: str, tmp_path: Path) -> None:
    """They load, a single one serves every depth, they draft, and the text is plain decoding's."""
    folder = write_random(LOADABLE[name], tmp_path)
    model = foretell.load(folder)
    assert model.heads is not None and model.heads.config.unrolled and model.heads.config.num_modules == 1
    engine, params = foretell.Engine(model), foretell.SamplingParams(max_tokens=NUM_TOKENS)
    plain, one, two = [engine.generate(["abc"], params, depth=depth)[0] for depth in (0, 1, 2)]
    assert plain.token_ids == one.token_ids == two.token_ids
    assert plain.stats.num_draft_tokens == 0 < one.stats.num_draft_tokens < two.stats.num_draft_tokens
    if not model.trunk.is_recurrent:  # those read one branch only
        [tree] = engine.generate(["abc"], params, depth=2, num_nodes=5)
        assert plain.token_ids == tree.token_ids and tree.stats.num_draft_tokens > two.stats.num_draft_tokens


@pytest.mark.parametrize("name", LOADABLE)
def test_heads_that_read_the_token(name: str, tmp_path: Path) -> None:
    """Every draft is right; with the halves of the projection in the other order none is.

    20 tokens: one by the prompt's pass, then 9 rounds of 2 and one more, or 6 rounds of 3 and one more.
    """
    stored = LOADABLE[name]
    assert counts(write_script(stored, tmp_path / "right", "embedding"), 1, 2) == [(9, [9]), (12, [6, 6])]
    assert counts(write_script(stored, tmp_path / "wrong", "embedding", wrong="halves"), 1) == [(18, [0])]


@pytest.mark.parametrize("name", LOADABLE)
def test_heads_that_read_the_state(name: str, tmp_path: Path) -> None:
    """The trunk's state from the right side of its final norm, and then their own from behind theirs.

    MiMo's head reads the trunk's state from before the norm, but its own from behind: this one cannot do both.
    """
    stored = LOADABLE[name]
    deeper = (12, [6, 6]) if (stored.reads, stored.feeds) != ("pre", "normed") else (18, [9, 0])
    assert counts(write_script(stored, tmp_path / "right", "hidden"), 1, 2) == [(9, [9]), deeper]
    [(drafted, accepted)] = counts(write_script(stored, tmp_path / "wrong", "hidden", wrong="source"), 1)
    assert accepted[0] <= 3 < drafted  # directions that have nothing in common, so right by chance alone


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_5", "ernie4_5_moe", "mimo"])
def test_own_final_norm(name: str, tmp_path: Path) -> None:
    """Its gain counts, where the family has one: the output head undoes the signs that a wrong one leaves out."""
    [(drafted, accepted)] = counts(write_script(LOADABLE[name], tmp_path, "embedding", wrong="norm"), 1)
    assert accepted[0] == drafted if name == "ernie4_5_moe" else accepted[0] <= 3 < drafted


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_5", "ernie4_5_moe", "mimo"])
def test_first_position(name: str, tmp_path: Path) -> None:
    """Families in which the embedding beside a text's first state counts as zeros: the first draft knows nothing."""
    folder = write_script(LOADABLE[name], tmp_path, "embedding")
    assert counts(folder, 1, prompt=(5,)) == [(10 if LOADABLE[name].zero_first else 9, [9])]


@pytest.mark.parametrize("depth", [3, 5])
def test_one_module_serves_every_depth(depth: int, tmp_path: Path) -> None:
    """C30: a single module is used again, as in vLLM and SGLang."""
    [(_, accepted)] = counts(write_script(LOADABLE["glm4_moe"], tmp_path, "embedding"), depth)
    assert len(accepted) == depth and min(accepted) >= 3


@pytest.mark.parametrize("name", TWO_MODULES)
def test_two_modules_serve_two_depths(name: str, tmp_path: Path) -> None:
    """C30: each its own depth, in order; a third depth is refused with both numbers."""
    stored = LOADABLE[name]
    layers = {} if stored.mlp is not None or stored.kinds else {"mtp_layer_types": ["full_attention"] * 2}
    right = write_script(stored, tmp_path / "right", "embedding", num_modules=2)
    assert counts(right, 1, 2) == [(9, [9]), (12, [6, 6])]
    wrong = write_script(stored, tmp_path / "wrong", "embedding", num_modules=2, wrong="second")
    assert counts(wrong, 1, 2) == [(9, [9]), (18, [9, 0])]
    with pytest.raises(UsageError, match=r"3.*2"):
        decode(right, (3,))
    random = write_random(stored, tmp_path / "random", num_modules=2, claim=layers)
    heads = load_native_heads(load_trunk(random))
    assert not heads.config.unrolled and heads.config.num_depths == 2
    plain, one, two = decode(random, (0, 1, 2))
    assert plain.token_ids == one.token_ids == two.token_ids and two.stats.num_draft_tokens > 0


def test_a_module_of_two_layers(tmp_path: Path) -> None:
    """Nemotron-H: attention, then experts, each a layer of its own; held against transformers' layers run by hand."""
    folder = write_random(LOADABLE["nemotron_h"], tmp_path)
    trunk = load_trunk(folder)
    heads = load_native_heads(trunk)
    assert (heads.config.block_layer, heads.config.then_layer) == (-1, 1) and heads.layer_kinds == ["full_attention"]
    stored = {name: t for name, t in load_file(folder / "model.safetensors").items() if name.startswith("mtp.")}
    attention, experts = (copy_without_hooks(trunk.decoder.layers[index]) for index in (2, 1))
    for layer, at in ((attention, "mtp.layers.0."), (experts, "mtp.layers.1.")):
        own = layer.state_dict()
        for name, tensor in own.items():
            one_by_one = [stored.get(f"{at}{name.replace('experts.', f'experts.{i}.')}.weight") for i in range(4)]
            tensor.copy_(stored[at + name] if at + name in stored else torch.stack(one_by_one))
    token_ids = torch.tensor([[5, 9, 3, 7, 11, 2, 8]])
    states = trunk.text_states(token_ids, torch.zeros_like(token_ids))
    embeddings = trunk.embed(token_ids)

    def norm(name: str, x_BTD: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x_BTD, x_BTD.shape[-1:], stored[name], trunk.config.layer_norm_epsilon)

    pair = [norm("mtp.layers.0.enorm.weight", embeddings[:, 1:]), norm("mtp.layers.0.hnorm.weight", states.post_BTD)]
    fused_BTD = torch.cat([pair[0], pair[1][:, :-1]], dim=-1) @ stored["mtp.layers.0.eh_proj.weight"].T
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril()
    expected = norm("mtp.layers.1.final_layernorm.weight", experts(attention(fused_BTD, attention_mask=mask)))
    [ours] = heads.training_states(states, embeddings, torch.zeros_like(token_ids), 1)
    assert torch.allclose(ours[:, :-1], expected, atol=1e-5)


def test_modules_that_share_what_stands_before_their_layer(tmp_path: Path) -> None:
    """Exaone's layout stores the projection and the norms once, whatever the number of layers."""
    folder = write_random(LOADABLE["exaone_moe"], tmp_path, num_modules=2)
    heads = load_native_heads(load_trunk(folder))
    first, second = heads.modules_by_depth.children()
    stored = load_file(folder / "model.safetensors")
    for index, module in enumerate((first, second)):
        values = module.state_dict()
        assert torch.equal(
            values["layer.self_attn.q_proj.weight"], stored[f"mtp.layers.{index}.self_attn.q_proj.weight"]
        )
        assert torch.equal(values["eh_proj.weight"], stored["mtp.fc.weight"])
        assert torch.equal(values["norm.weight"], stored["mtp.norm.weight"])


@pytest.mark.parametrize("name", ["glm4_moe", "llama shared names"])
def test_a_module_that_the_config_announces_and_no_file_holds(name: str, tmp_path: Path) -> None:
    """The second of two: never a start with one alone."""
    folder = write_random(LOADABLE[name], tmp_path, claim={LOADABLE[name].claim: 2})
    with pytest.raises(CheckpointError, match="all of module 2, which the config announces"):
        foretell.load(folder)


@pytest.mark.filterwarnings("ignore:.*were left out")
@pytest.mark.parametrize("damage", ["missing", "misshapen", "unexpected", "nan", "all missing", "other prefix"])
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_heads_are_refused_by_name(name: str, damage: str, tmp_path: Path) -> None:
    """C11: never a silent start with noise; the message says how to run without them."""
    stored = LOADABLE[name]
    folder = write_random(stored, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    at = {part: prefix.format(k=0, n=2) for part, prefix in stored.names.items()}
    projection, extra = f"{at['eh_proj']}.weight", f"{at['layer']}.self_attn.extra.weight"
    heads = [key for key in tensors if key.startswith(tuple(f"{prefix}." for prefix in at.values()))]
    parts = {
        "missing": (projection, f"1 missing: {projection}. Nothing"),
        "misshapen": (projection, rf"1 misshapen: {projection} \[4, 4\] instead of \[64, 128\]\. Nothing"),
        "unexpected": (extra, f"1 unexpected: {extra}. Nothing"),
        "nan": (projection, f"NaN or infinite values in {projection}. Nothing"),
        "all missing": ("", "no MTP tensor is in its files"),
        "other prefix": ("", "no MTP tensor is in its files"),
    }
    changed, message = parts[damage]
    if damage == "missing":
        del tensors[changed]
    elif damage == "nan":
        tensors[changed][0, 0] = float("nan")
    elif damage in ("misshapen", "unexpected"):
        tensors[changed] = torch.zeros(4, 4)
    elif damage == "all missing":
        tensors = {key: tensor for key, tensor in tensors.items() if key not in heads}
    else:
        tensors = {f"x.{key}" if key in heads else key: tensor for key, tensor in tensors.items()}
    finish(folder, tensors)
    trunk = load_trunk(folder)
    with pytest.raises(CheckpointError, match=message) as refused:
        load_native_heads(trunk)
    assert 'give heads="none"' in str(refused.value)
    if changed:
        with pytest.raises(CheckpointError, match=message):
            foretell.load(folder)
    else:  # as after a fine-tuning that lost them (C10): the trunk is sound
        with pytest.warns(CheckpointWarning, match=message):
            assert foretell.load(folder, pack=False).heads is None


@pytest.mark.parametrize("part", ["embed_tokens", "shared_head.head"])
@pytest.mark.parametrize("copy", ["absent", "equal", "different"])
def test_copies_of_the_trunk_in_the_heads(part: str, copy: str, tmp_path: Path) -> None:
    """C11 (e): they may be there or not; one that is no copy is left unread, with a warning."""
    folder = write_script(LOADABLE["deepseek_v3"], tmp_path, "embedding")
    tensors = load_file(folder / "model.safetensors")
    own = tensors["model.embed_tokens.weight" if part == "embed_tokens" else "lm_head.weight"]
    if copy != "absent":
        tensors[f"model.layers.2.{part}.weight"] = own + (copy == "different")
    finish(folder, tensors)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert counts(folder, 1) == [(9, [9])]
    texts = [str(one.message) for one in heard if issubclass(one.category, CheckpointWarning)]
    expected = [f"model.layers.2.{part}.weight is not the trunk's"] if copy == "different" else []
    assert len(texts) == len(expected) and all(text in texts[0] for text in expected)


def test_copies_in_another_type(tmp_path: Path) -> None:
    """A trunk loaded in fewer bits than its file has is still the same one."""
    folder = write_random(LOADABLE["deepseek_v3"], tmp_path)
    tensors = load_file(folder / "model.safetensors")
    finish(folder, tensors | {"model.layers.2.embed_tokens.weight": tensors["model.embed_tokens.weight"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        assert load_native_heads(load_trunk(folder, dtype="bfloat16")).config.num_modules == 1


@pytest.mark.parametrize("name", ["deepseek_v3", "hy_v3", "ernie4_5_moe", "qwen3_next"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_types_are_those_of_the_trunks_layers(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Routers stay in float32 where the family keeps them so: rounded, they choose other experts."""
    trunk = load_trunk(write_random(replace(LOADABLE[name], donor=-1), tmp_path), dtype="bfloat16")
    heads = load_native_heads(trunk, dtype)
    theirs = {name: tensor.dtype for name, tensor in trunk.decoder.layers[-1].state_dict().items()}
    ours = {name: tensor.dtype for name, tensor in heads.modules_by_depth[0].layer.state_dict().items()}
    assert theirs.keys() == ours.keys() and (torch.float32 in theirs.values()) == (name != "qwen3_next")
    assert all(ours[name] == (torch.float32 if theirs[name] == torch.float32 else dtype) for name in ours)
    assert heads.modules_by_depth[0].eh_proj.weight.dtype == dtype


def test_a_routers_bias_goes_through_an_adapter_unrounded(tmp_path: Path) -> None:
    """Stored in float32 beside matrices of bfloat16, as DeepSeek-V3 has it."""
    folder = write_random(LOADABLE["deepseek_v3"], tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    bias = tensors["model.layers.2.mlp.gate.e_score_correction_bias"]
    halved = {name: tensor if tensor.dim() == 1 else tensor.bfloat16() for name, tensor in tensors.items()}
    finish(folder, halved, dtype="bfloat16")
    import_heads(folder, tmp_path / "out")
    heads = foretell.load(folder, heads=tmp_path / "out", pack=False).heads
    assert heads is not None and not torch.equal(bias, bias.bfloat16().float())
    assert torch.equal(heads.state_dict()["modules_by_depth.0.layer.mlp.gate.e_score_correction_bias"], bias)


@pytest.mark.parametrize("name", ["glm4_moe", "qwen3_5_moe"])
@pytest.mark.parametrize("fused", ["heads", "trunk", "both"])
def test_experts_one_by_one_or_in_one_tensor(name: str, fused: str, tmp_path: Path) -> None:
    """Published files have either, and heads need not have what their trunk has."""
    tensors = load_file(write_random(LOADABLE[name], tmp_path / "as saved") / "model.safetensors")
    start = "model.layers.2." if name == "glm4_moe" else "mtp."
    parts = {
        "heads": {key: tensor for key, tensor in tensors.items() if key.startswith(start)},
        "trunk": {key: tensor for key, tensor in tensors.items() if not key.startswith(start)},
    }
    for part in parts if fused == "both" else (fused,):
        parts[part] = fuse_experts(parts[part])
    folder = finish(write_random(LOADABLE[name], tmp_path / "fused"), parts["heads"] | parts["trunk"])
    heads, expected = (load_native_heads(load_trunk(path)).state_dict() for path in (folder, tmp_path / "as saved"))
    assert all(torch.equal(heads[key], expected[key]) for key in expected) and heads.keys() == expected.keys()
    if fused == "heads":
        del parts["heads"][next(key for key in parts["heads"] if key.endswith("experts.down_proj"))]
        with pytest.raises(CheckpointError, match=r"1 missing: \S+experts\.down_proj\."):
            load_native_heads(load_trunk(finish(folder, parts["heads"] | parts["trunk"])))


def fuse_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Four experts' matrices in one tensor, gate above up."""
    result = {key: tensor for key, tensor in tensors.items() if ".experts." not in key}
    for key in [key for key in tensors if key.endswith("experts.0.gate_proj.weight")]:
        at = key.removesuffix("0.gate_proj.weight")
        gate, up, down = (
            torch.stack([tensors[f"{at}{i}.{part}_proj.weight"] for i in range(4)]) for part in ("gate", "up", "down")
        )
        result |= {f"{at}gate_up_proj": torch.cat([gate, up], dim=1), f"{at}down_proj": down}
    return result


def test_model_with_images(tmp_path: Path) -> None:
    """Qwen3.5 as it is published: settings nested, the language model one name deeper, heads beside it."""
    folder = write_script(LOADABLE["qwen3_5"], tmp_path, "embedding")
    stored = load_file(folder / "model.safetensors")
    deeper = {name.replace("model.", "model.language_model.", 1): t for name, t in stored.items() if "mtp" not in name}
    save_file(deeper | {name: t for name, t in stored.items() if "mtp" in name}, folder / "model.safetensors")
    flat = json.loads((folder / "config.json").read_text())
    nested = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": flat}
    (folder / "config.json").write_text(json.dumps(nested))
    assert counts(folder, 1, 2) == [(9, [9]), (12, [6, 6])]


def test_stored_sizes_are_the_published_ones(tmp_path: Path) -> None:
    """Qwen3.5's 15 tensors and MiMo-7B's 16, gate and biases included, and no other is wanted."""
    qwen = load_file(write_random(LOADABLE["qwen3_5"], tmp_path / "qwen") / "model.safetensors")
    mimo = load_file(write_random(LOADABLE["mimo"], tmp_path / "mimo") / "model.safetensors")
    assert sum(name.startswith("mtp.") for name in qwen) == 15
    assert sum(name.startswith("model.mtp_layers.0.") for name in mimo) == 16
    assert qwen["mtp.layers.0.self_attn.q_proj.weight"].shape == (2 * 4 * 16, 64)
    assert mimo["model.mtp_layers.0.input_proj.weight"].shape == (64, 128)
    assert "model.mtp_layers.0.self_attn.k_proj.bias" in mimo


@pytest.mark.parametrize("name", ["deepseek_v3", "glm4_moe"])
def test_trained_together_and_kept(name: str, tmp_path: Path) -> None:
    """C10: a joint run goes on with the native heads; without a rate it writes back what it read."""
    folder = write_random(LOADABLE[name], tmp_path / "model")
    (tmp_path / "text.txt").write_text("some words to learn, and some more of them to hold out\n" * 20)
    (tmp_path / "recipe.toml").write_text(
        f'trunk = "{folder}"\ninit_from = "native"\noutput = "{tmp_path}/out"\nrun_dir = "{tmp_path}/run"\n'
        f'[data]\nfiles = ["{tmp_path}/text.txt"]\nmax_length = 32\n'
        '[train]\ntrunk = "joint"\nmax_steps = 1\nbatch_rows = 2\nprecision = "float32"\n'
    )
    train(load_recipe(tmp_path / "recipe.toml"))
    before = load_native_heads(load_trunk(folder))
    after = foretell.load(tmp_path / "out", pack=False).heads
    assert isinstance(after, SequentialHeads) and after.config == before.config
    names = [name for name, _ in before.named_parameters()]
    assert names == [name for name, _ in after.named_parameters()]
    assert torch.equal(*(h.state_dict()["modules_by_depth.0.eh_proj.weight"] for h in (before, after)))


def test_layout_of_a_trunk_with_other_norms(tmp_path: Path) -> None:
    """Names that several families share say nothing of norms: they are stored as the trunk's are."""
    stored = replace(LOADABLE["llama shared names"], make=tiny_gemma, names=SHARED_NAMES, centred=True)
    folder = write_random(stored, tmp_path)
    heads = load_native_heads(load_trunk(folder))
    values = load_file(folder / "model.safetensors")["mtp.layers.0.post_norm.weight"]
    assert torch.equal(heads.state_dict()["modules_by_depth.0.norm.weight"], values)
