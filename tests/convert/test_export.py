"""Export: every layout, on the trunks it takes; what the result computes, in Foretell and in transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import foretell
from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from foretell.convert.export import export
from foretell.convert.fold_norm import fold_norm
from foretell.convert.graft import graft
from foretell.convert.import_heads import import_heads
from foretell.convert.strip import strip
from foretell.errors import AdapterMismatch, CheckpointError, UnsupportedModel, UsageError
from tests.convert.models import config_of, read, same, with_heads, write
from tests.fixtures import (
    random_heads,
    tiny_deepseek_v3,
    tiny_gemma,
    tiny_glm4_moe,
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_qwen3,
    tiny_qwen3_5,
    tiny_qwen3_next,
)

PRE: dict[str, Any] = {"hidden_source": "pre"}
TWO: dict[str, Any] = {"unrolled": False, "num_modules": 2, "num_depths": 2}


def tied_llama() -> Any:
    """One matrix for embedding and output head."""
    return tiny_llama(tie_word_embeddings=True)


def adapter(folder: Path, trunk: Path, **config: Any) -> Path:
    """Random heads for a trunk, stored in float32 so that nothing is rounded on the way."""
    save_adapter(random_heads(load_trunk(trunk), **config), folder, dtype=torch.float32)
    return folder


CASES: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    ("mimo", tiny_llama, PRE),
    ("mimo", tied_llama, PRE | {"concat": "hidden_first"}),
    ("mimo", tiny_qwen2, PRE | {"final_norm": "trunk"}),
    ("qwen3_5", tiny_qwen3_5, {}),
    ("qwen3_5", tiny_qwen3_next, {"concat": "hidden_first", "final_norm": "trunk"}),
    ("mellum", tiny_qwen3, {}),
    ("native", tiny_deepseek_v3, {}),
    ("native", tiny_glm4_moe, {}),
    ("native", tiny_qwen3_next, {}),
    ("deepseek-style", tied_llama, TWO | {"draft_ids": range(90)}),
    ("deepseek-style", tiny_gemma, TWO),
    ("deepseek-style", tiny_glm4_moe, {}),
    ("deepseek-style", tiny_deepseek_v3, TWO),
]


@pytest.mark.parametrize(("to", "make", "config"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_the_result_drafts_as_the_adapter_did(
    tmp_path: Path, to: str, make: Callable[[], Any], config: dict[str, Any]
) -> None:
    """Same text, same drafts, same bits of the trunk; C14: a tied output head is on disk once, and stays tied."""
    trunk = write(make(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk, **config)
    report = export(trunk, heads, tmp_path / "out", to)
    assert "logits the same bits, states of the heads equal" in report.checks[-1]
    before, after = read(trunk), read(tmp_path / "out")
    assert same(before, {name: after[name] for name in before})
    assert config_of(tmp_path / "out")["tie_word_embeddings"] == config_of(trunk)["tie_word_embeddings"]
    assert ("lm_head.weight" in after) == ("lm_head.weight" in before)
    depth = 2 if config.get("num_modules") == 2 else 1
    models = foretell.load(trunk, heads=heads), foretell.load(tmp_path / "out")
    texts = [
        foretell.Engine(model).generate(["abcabc"], foretell.SamplingParams(max_tokens=16), depth=k)[0]
        for model in models
        for k in (0, depth)
    ]
    assert len({tuple(text.token_ids) for text in texts}) == 1
    if "draft_ids" not in config:
        assert texts[1].stats.num_accepted_tokens == texts[3].stats.num_accepted_tokens
    assert texts[3].stats.num_draft_tokens > 0


def test_names_of_the_mimo_layout(tmp_path: Path) -> None:
    """The sixteen tensors of the released model, hidden first in the projection; a Llama has a bias more."""
    trunk = write(tiny_llama(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk, **PRE)
    export(trunk, heads, tmp_path / "out", "mimo")
    after, ours = read(tmp_path / "out"), load_file(heads / "mtp.safetensors")
    at = "model.mtp_layers.0."
    names = [f"{n}.weight" for n in ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")]
    names += [f"{n}.weight" for n in ("input_layernorm", "post_attention_layernorm", "self_attn.o_proj")]
    names += [f"self_attn.{n}_proj.{w}" for n in "qkv" for w in ("weight", "bias")] + ["self_attn.o_proj.bias"]
    names += [f"mlp.{n}_proj.weight" for n in ("gate", "up", "down")]
    assert {name for name in after if "mtp" in name} == {at + name for name in names} and len(names) == 17
    embedding, hidden = ours["mtp.layers.0.eh_proj.weight"].chunk(2, dim=1)
    assert torch.equal(after[f"{at}input_proj.weight"], torch.cat([hidden, embedding], dim=1))
    assert torch.equal(after[f"{at}token_layernorm.weight"], ours["mtp.layers.0.enorm.weight"])
    assert torch.equal(after[f"{at}hidden_layernorm.weight"], ours["mtp.layers.0.hnorm.weight"])
    assert torch.equal(after[f"{at}final_layernorm.weight"], ours["mtp.layers.0.post_norm.weight"])
    assert not after["model.layers.1.self_attn.k_proj.bias"].any()
    config = config_of(tmp_path / "out")
    assert (config["architectures"], config["model_type"]) == (["MiMoForCausalLM"], "llama")
    assert config["num_nextn_predict_layers"] == 1 and "head_dim" not in config
    biases = {name for name in after if name.endswith(".bias") and "model.layers." in name}
    assert {name.split(".")[-2] for name in biases} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    model, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert type(model) is transformers.LlamaForCausalLM and not report["missing_keys"]
    assert {name.split(".")[1] for name in report["unexpected_keys"]} == {"mtp_layers"}


def test_names_of_the_qwen3_5_layout(tmp_path: Path) -> None:
    """The fifteen tensors of the released models; norms stay offsets from 1, as the trunk's are."""
    trunk = write(tiny_qwen3_5(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk)
    export(trunk, heads, tmp_path / "out", "qwen3_5")
    after, ours = read(tmp_path / "out"), load_file(heads / "mtp.safetensors")
    names = ["fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"]
    names += [f"layers.0.{n}" for n in ("input_layernorm", "post_attention_layernorm")]
    names += [f"layers.0.self_attn.{n}" for n in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")]
    names += [f"layers.0.mlp.{n}_proj" for n in ("gate", "up", "down")]
    assert {name for name in after if "mtp" in name} == {f"mtp.{name}.weight" for name in names} and len(names) == 15
    assert torch.equal(after["mtp.norm.weight"], ours["mtp.layers.0.post_norm.weight"])
    assert after["mtp.norm.weight"].abs().max() < 0.7  # offsets from 1
    config = config_of(tmp_path / "out")
    assert (config["mtp_num_hidden_layers"], config["num_mtp_layers"]) == (1, 1)
    assert config["full_attention_interval"] == 4 and config["mtp_layer_types"] == ["full_attention"]


@pytest.mark.parametrize(
    ("to", "make", "config"), [("deepseek-style", tied_llama, TWO), ("mellum", tiny_qwen3, {})], ids=["llama", "mellum"]
)
def test_transformers_decodes_with_the_exported_heads(
    tmp_path: Path, to: str, make: Callable[[], Any], config: dict[str, Any]
) -> None:
    """generate(use_mtp=True): the text is that of plain decoding, and its heads' states are ours."""
    trunk = write(make(), tmp_path / "t")
    export(trunk, adapter(tmp_path / "a", trunk, **config), tmp_path / "out", to)
    remote = to == "deepseek-style"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=remote).eval()
    ids = torch.tensor([[97, 98, 99, 97]])
    plain, drafted = (
        theirs.generate(ids, max_new_tokens=20, do_sample=False, eos_token_id=None, use_mtp=use)
        for use in (False, True)
    )
    assert torch.equal(plain, drafted)
    found = transformers.modeling_layers.MtpModel.from_pretrained(theirs)
    ours = load_native_heads(load_trunk(tmp_path / "out"))
    for index, layer in enumerate(found.layers):
        assert torch.equal(layer.eh_proj.weight, ours.modules_by_depth[index].eh_proj.weight)
        assert torch.equal(layer.post_norm.weight, ours.modules_by_depth[index].norm.weight)


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_a_folded_final_norm_leaves_nothing_to_disagree_on(tmp_path: Path, spread: float) -> None:
    """With the gain in the output head, the state before and after the final norm are one to hidden_layernorm.

    With a constant gain nothing is approximate: drafts of every depth are those of the adapter.
    """
    model = tied_llama()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(3)
        model.model.norm.weight.copy_(1.7 + spread * torch.randn(64))
    trunk = write(model, tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk, num_depths=3, zero_first=True)
    report = export(trunk, heads, tmp_path / "out", "mimo", fold_norm=True)
    before, after = read(trunk), read(tmp_path / "out")
    gain, embedding = before["model.norm.weight"], before["model.embed_tokens.weight"]
    assert torch.equal(after["model.norm.weight"], torch.ones(64))
    torch.testing.assert_close(after["lm_head.weight"], embedding * gain)
    assert torch.equal(after["model.embed_tokens.weight"], embedding)
    assert config_of(tmp_path / "out")["tie_word_embeddings"] is False
    assert "the final norm's gain" in report.changed["model.norm.weight"]
    loaded, plain = load_trunk(tmp_path / "out"), load_trunk(trunk)
    ids = torch.arange(1, 13).unsqueeze(0)
    states, own = (m.text_states(ids, torch.zeros_like(ids)) for m in (loaded, plain))
    native = load_native_heads(loaded)
    hnorm = native.modules_by_depth[0].hnorm
    torch.testing.assert_close(hnorm(states.pre_BTD), hnorm(states.post_BTD), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loaded.project(states.post_BTD), plain.project(own.post_BTD), rtol=1e-4, atol=1e-4)
    if spread == 0.0:
        ours = foretell.load(trunk, heads=heads, pack=False).heads
        assert ours is not None
        docs = torch.zeros_like(ids)
        drafts = [
            [m.project(s) for s in h.training_states(t, m.embed(ids), docs, 3)]
            for m, h, t in ((plain, ours, own), (loaded, native, states))
        ]
        for first, second in zip(*drafts, strict=True):
            torch.testing.assert_close(first[:, 4:8], second[:, 4:8], rtol=1e-2, atol=1e-2)


def test_heads_for_the_state_before_the_norm_are_not_folded(tmp_path: Path) -> None:
    trunk = write(tiny_llama(), tmp_path / "t")
    with pytest.raises(CheckpointError, match="leave --fold-norm out"):
        export(trunk, adapter(tmp_path / "a", trunk, **PRE), tmp_path / "out", "mimo", fold_norm=True)


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma])
def test_fold_norm_is_exact_where_the_gain_is_constant(tmp_path: Path, make: Callable[[], Any]) -> None:
    """Elsewhere nearly; here the heads for the state before the norm compute what those for the one after it did."""
    model = make()
    with torch.no_grad():
        model.model.norm.weight.fill_(1.7)
    trunk = write(model, tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk)
    fold_norm(trunk, heads, tmp_path / "pre")
    loaded = load_trunk(trunk)
    ids = torch.arange(1, 13).unsqueeze(0)
    states = loaded.text_states(ids, torch.zeros_like(ids))
    first, second = (foretell.load(trunk, heads=h, pack=False).heads for h in (heads, tmp_path / "pre"))
    assert first is not None and second is not None and second.config.hidden_source == "pre"
    norms = [found.modules_by_depth[0].hnorm for found in (first, second)]
    torch.testing.assert_close(norms[0](states.post_BTD), norms[1](states.pre_BTD), rtol=2e-2, atol=2e-2)  # bf16
    with pytest.raises(CheckpointError, match="hidden_source pre"):
        fold_norm(trunk, tmp_path / "pre", tmp_path / "again")


def test_native_heads_trained_further_go_back_where_they_came_from(tmp_path: Path) -> None:
    """C10: names, shapes and types of a checkpoint with native heads, its copies included, are there again."""
    original = with_heads(tmp_path / "m")
    import_heads(original, tmp_path / "a")
    strip(original, tmp_path / "plain")
    export(tmp_path / "plain", tmp_path / "a", tmp_path / "again", "native")
    assert same(read(tmp_path / "again"), read(original))
    assert config_of(tmp_path / "again")["num_nextn_predict_layers"] == 1
    assert config_of(tmp_path / "again")["architectures"] == config_of(original)["architectures"]
    llama = write(tiny_llama(), tmp_path / "l")
    with pytest.raises(UnsupportedModel, match="no layout for heads is known of LlamaForCausalLM"):
        export(llama, adapter(tmp_path / "la", llama), tmp_path / "o", "native")


def test_only_the_first_module_where_asked(tmp_path: Path) -> None:
    trunk = write(tiny_llama(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk, **TWO | PRE)
    with pytest.raises(CheckpointError, match="2 distinct modules, of which the engines serve 1 .* --modules 1"):
        export(trunk, heads, tmp_path / "out", "mimo")
    report = export(trunk, heads, tmp_path / "out", "mimo", num_modules=1)
    assert any("modules 2 to 2 of the adapter were left behind, as asked" in note for note in report.notes)
    assert foretell.load(tmp_path / "out").heads.config.num_modules == 1  # type: ignore[union-attr]


def test_exported_stripped_and_imported_again(tmp_path: Path) -> None:
    """Every way there and back gives the same bits."""
    trunk = write(tied_llama(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk, **TWO)
    export(trunk, heads, tmp_path / "out", "deepseek-style")
    import_heads(tmp_path / "out", tmp_path / "back")
    assert same(load_file(tmp_path / "back" / "mtp.safetensors"), load_file(heads / "mtp.safetensors"))
    strip(tmp_path / "out", tmp_path / "plain")
    assert same(read(tmp_path / "plain"), read(trunk))
    config = config_of(tmp_path / "plain")
    assert config["architectures"] == ["LlamaForCausalLM"] and "auto_map" not in config
    assert not (tmp_path / "plain" / "modeling_foretell.py").exists()
    graft(tmp_path / "plain", tmp_path / "out", tmp_path / "again")
    assert same(read(tmp_path / "again"), read(tmp_path / "out"))
    for name in ("config.json", "modeling_foretell.py"):
        assert (tmp_path / "again" / name).read_text() == (tmp_path / "out" / name).read_text()


def test_what_is_refused(tmp_path: Path) -> None:
    llama, mistral = write(tiny_llama(), tmp_path / "l"), write(tiny_mistral(), tmp_path / "m")
    other = write(tiny_llama(hidden_size=32, head_dim=8), tmp_path / "o")
    post, pre = adapter(tmp_path / "post", llama), adapter(tmp_path / "pre", llama, **PRE)
    kinds = {
        "kind medusa": adapter(tmp_path / "medusa", llama, kind="medusa"),
        "output matrices of their own": adapter(tmp_path / "own", llama, own_output=True, **PRE),
        "raw state": adapter(tmp_path / "raw", llama, feedback="raw", **PRE),
    }
    out = tmp_path / "out"
    with pytest.raises(CheckpointError, match="state after its final norm.* --fold-norm"):
        export(llama, post, out, "mimo")
    with pytest.raises(CheckpointError, match="state before its final norm"):
        export(llama, pre, out, "deepseek-style")
    for problem, heads in kinds.items():
        with pytest.raises(CheckpointError, match=problem):
            export(llama, heads, out, "mimo")
    with pytest.raises(UnsupportedModel, match="'llama'; --to mellum takes qwen3; deepseek-style takes any trunk"):
        export(llama, post, out, "mellum")
    with pytest.raises(CheckpointError, match="have no sliding_window 16"):
        export(mistral, adapter(tmp_path / "ma", mistral, **PRE), out, "mimo")
    with pytest.raises(AdapterMismatch, match="hidden_size 64 .here 32."):
        export(other, pre, out, "mimo")
    with pytest.raises(UsageError, match="to 'gguf' is not allowed; give mimo"):
        export(llama, pre, out, "gguf")
    with pytest.raises(UsageError, match="modules 4 is not allowed; .* has 1"):
        export(llama, pre, out, "mimo", num_modules=4)
    with pytest.raises(CheckpointError, match="no such folder"):
        export("owner/name", pre, out, "mimo")
    export(llama, pre, out, "mimo")
    with pytest.raises(CheckpointError, match="already there"):
        export(llama, pre, out, "mimo")
    with pytest.raises(CheckpointError, match="has native heads already"):
        export(out, pre, tmp_path / "twice", "mimo")


def test_damaged_heads_are_not_exported(tmp_path: Path) -> None:
    """Missing, misshapen or broken tensors in the adapter: one line, and no folder."""
    trunk = write(tiny_llama(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk, **PRE)
    file = heads / "mtp.safetensors"
    good = load_file(file)
    name = "mtp.layers.0.eh_proj.weight"
    for change in ({}, {name: torch.zeros(4, 4)}, {name: torch.full((64, 128), torch.nan)}):
        save_file({k: v for k, v in good.items() if k != name} | change, file)
        with pytest.raises(CheckpointError, match=r"mtp\.layers\.0\.eh_proj\.weight"):
            export(trunk, heads, tmp_path / "out", "mimo", reload=False)
        assert not (tmp_path / "out").exists()


def test_a_result_that_computes_something_else_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reload check sees a head whose halves were not swapped."""
    trunk = write(tiny_llama(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk, **PRE)
    monkeypatch.setattr("foretell.convert.head_layout.swap_halves", lambda weight: weight)
    with pytest.raises(CheckpointError, match="its heads compute something else"):
        export(trunk, heads, tmp_path / "out", "mimo")
    assert not (tmp_path / "out").exists()


def test_without_room_for_both_models_the_check_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = write(tiny_llama(), tmp_path / "t")
    monkeypatch.setattr("foretell.convert.reload._free_bytes", lambda: 10)
    report = export(trunk, adapter(tmp_path / "a", trunk, **PRE), tmp_path / "out", "mimo")
    assert "names, shapes and bytes alone" in report.checks[-1]


def test_shards_flow_through_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sharded in and out, and never more than a shard of tensors is alive."""
    monkeypatch.setattr("foretell.convert.shards.SHARD_BYTES", 40_000)
    trunk = write(tiny_llama(), tmp_path / "t", max_shard_size="100KB")
    assert len(list(trunk.glob("*.safetensors"))) > 2
    export(trunk, adapter(tmp_path / "a", trunk), tmp_path / "out", "deepseek-style", reload=False)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = sorted({*index["weight_map"].values()})
    assert files == sorted(path.name for path in (tmp_path / "out").glob("*.safetensors")) and len(files) > 4
    assert foretell.load(tmp_path / "out").heads is not None


@pytest.mark.parametrize("make", [tiny_glm4_moe, tiny_deepseek_v3, tiny_qwen3_next])
def test_tensors_have_the_types_that_the_trunks_layers_have(tmp_path: Path, make: Callable[[], Any]) -> None:
    """Routers and their biases stay in float32 where the family keeps them so."""
    full = write(make(), tmp_path / "f")
    half = transformers.AutoModelForCausalLM.from_pretrained(full, dtype=torch.bfloat16)
    trunk = write(half, tmp_path / "t")
    export(trunk, adapter(tmp_path / "a", trunk), tmp_path / "out", "native")
    after = read(tmp_path / "out")
    last = config_of(trunk)["num_hidden_layers"] - 1
    layer = {
        name.split(f"layers.{last}.")[1]: t.dtype
        for name, t in after.items()
        if name.startswith(f"model.layers.{last}.")
    }
    head = f"model.layers.{last + 1}." if "model.layers.2.enorm.weight" in after else "mtp.layers.0."
    assert {name: after[head + name].dtype for name in layer} == layer


@pytest.mark.parametrize("to", ["qwen3_5", "native"])
def test_a_model_with_images(tmp_path: Path, to: str) -> None:
    """Released Qwen3.5 checkpoints nest the language model's names and settings; heads lie beside them."""
    trunk = write(tiny_qwen3_5(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk)
    nested = {name.replace("model.", "model.language_model.", 1): t for name, t in read(trunk).items()}
    save_file(nested, trunk / "model.safetensors", metadata={"format": "pt"})
    flat = config_of(trunk)
    settings = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": flat}
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 64}
    (trunk / "config.json").write_text(json.dumps(settings | {"vision_config": vision}))
    export(trunk, heads, tmp_path / "out", to)
    after = read(tmp_path / "out")
    assert same(nested, {name: after[name] for name in nested}) and "mtp.fc.weight" in after
    assert config_of(tmp_path / "out")["text_config"]["mtp_num_hidden_layers"] == 1
    with pytest.raises(UnsupportedModel, match="layers have another prefix"):
        export(trunk, heads, tmp_path / "deep", "deepseek-style")


def test_a_trunk_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    trunk = write(tiny_llama(), tmp_path / "t")
    settings = config_of(trunk) | {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}
    (trunk / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UnsupportedModel, match="code in the checkpoint"):
        export(trunk, adapter(tmp_path / "a", trunk), tmp_path / "out", "deepseek-style")


def test_the_depth_that_heads_were_trained_for_and_stale_ones(tmp_path: Path) -> None:
    """One module serves every depth: which ones it learnt is kept; C16: heads of another trunk are told in a note."""
    trunk, other = write(tiny_llama(), tmp_path / "t"), write(tiny_llama(initializer_range=0.2), tmp_path / "o")
    heads = adapter(tmp_path / "a", trunk, num_depths=3)
    report = export(other, heads, tmp_path / "out", "deepseek-style")
    assert any("trained against another trunk" in note for note in report.notes)
    loaded = foretell.load(tmp_path / "out").heads
    assert loaded is not None and loaded.config.num_depths == 3 and loaded.config.max_depth is None


def test_adapters_that_were_trained_are_not_replaced(tmp_path: Path) -> None:
    trunk = write(tiny_llama(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk)
    export(trunk, heads, tmp_path / "out", "deepseek-style")
    mine = adapter(tmp_path / "mine", trunk)
    with pytest.raises(CheckpointError, match="heads that were trained"):
        import_heads(tmp_path / "out", mine, overwrite=True)
    with pytest.raises(CheckpointError, match="is the source"):
        fold_norm(trunk, heads, heads, overwrite=True)
    import_heads(tmp_path / "out", tmp_path / "back")
    import_heads(tmp_path / "out", tmp_path / "back", overwrite=True)


def test_what_a_config_leaves_to_its_class_is_written_out(tmp_path: Path) -> None:
    """Qwen2's defaults are not llama's."""
    trunk = write(tiny_llama(num_key_value_heads=4), tmp_path / "t")
    config = config_of(trunk)
    for key in ("num_key_value_heads", "rms_norm_eps", "rope_parameters"):
        config.pop(key, None)
    (trunk / "config.json").write_text(json.dumps(config))
    report = export(trunk, adapter(tmp_path / "a", trunk, **PRE), tmp_path / "out", "mimo")
    assert "logits the same bits" in report.checks[-1]
    assert config_of(tmp_path / "out")["num_key_value_heads"] == 4
