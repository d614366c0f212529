"""Trunk and heads trained together: from scratch, continued, resumed, loaded again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import foretell
from foretell.errors import CheckpointError, ForetellError, UsageError
from foretell.training import run_log, trainer
from foretell.training.gradient_check import GradientCheck
from foretell.training.recipe import Recipe
from foretell.training.recipe_file import load_recipe
from foretell.training.trainer import train
from tests.training.runs import assert_same_tensors, change, metrics, recipe

__all__ = ["recipe"]  # a fixture

SCRATCH = """
output = "{folder}/model"
run_dir = "{folder}/run"

[model]
model_type = "llama"
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
tie_word_embeddings = true
max_position_embeddings = 128

[tokenizer]
kind = "bytes"

[heads]
num_depths = 2

[data]
texts = ["{folder}/texts"]
max_length = 32
held_out = 0.2

[train]
trunk = "joint"
max_steps = 6
batch_rows = 4
learning_rate = 1e-2
precision = "float32"
save_steps = 3
log_steps = 1
"""

FAMILIES = {
    "qwen3": 'model_type = "qwen3"\nhead_dim = 16',
    "qwen3_next": 'model_type = "qwen3_next"\nnum_hidden_layers = 4\nhead_dim = 16\nlinear_num_key_heads = 2\n'
    "linear_num_value_heads = 2\nlinear_key_head_dim = 8\nlinear_value_head_dim = 8\nnum_experts = 4\n"
    "num_experts_per_tok = 2\nmoe_intermediate_size = 16\nshared_expert_intermediate_size = 16",
    "deepseek_v3": 'model_type = "deepseek_v3"\nnum_key_value_heads = 2\nq_lora_rank = 16\nkv_lora_rank = 16\n'
    "qk_nope_head_dim = 8\nqk_rope_head_dim = 8\nv_head_dim = 8\nmoe_intermediate_size = 16\nn_routed_experts = 4\n"
    "num_experts_per_tok = 2\nn_group = 1\ntopk_group = 1\nfirst_k_dense_replace = 1",
    "qwen3_moe": 'model_type = "qwen3_moe"\nhead_dim = 16\nnum_experts = 4\nnum_experts_per_tok = 2\n'
    "moe_intermediate_size = 16",
}


@pytest.fixture
def scratch(tmp_path: Path) -> Recipe:
    """A bytes model from scratch on fifteen short texts."""
    (tmp_path / "texts").mkdir()
    for i in range(15):
        words = " ".join(f"word{(i * j) % 7}" for j in range(12))
        (tmp_path / "texts" / f"{i:02}.txt").write_text(f"text {i}: {words}\n")
    return read(tmp_path, SCRATCH)


def read(folder: Path, text: str) -> Recipe:
    (folder / "recipe.toml").write_text(text.format(folder=folder))
    return load_recipe(folder / "recipe.toml")


def ids(model: Any, depth: int) -> list[int]:
    [done] = foretell.Engine(model).generate(["text 3: w"], foretell.SamplingParams(max_tokens=20), depth=depth)
    return done.token_ids


@pytest.mark.parametrize("kind", ["sequential", "parallel", "medusa", "none"])
def test_from_scratch_to_decoding(scratch: Recipe, tmp_path: Path, kind: str) -> None:
    """The folder loads in transformers and here, with its heads; the text is that of depth 0."""
    text = SCRATCH.replace("[heads]\nnum_depths = 2", f'[heads]\nkind = "{kind}"')
    run = read(tmp_path, text)
    report = train(run)
    logged = metrics(run)
    assert logged[6]["loss_0"] < logged[1]["loss_0"]
    per_byte = report.data["held_out"]["num_tokens"] / report.data["held_out"]["num_bytes"]
    assert report.held_out["bits_per_byte"] == pytest.approx(report.held_out["loss"] / 0.6931 * per_byte, rel=1e-3)
    assert report.data["training"]["num_documents"] == 12
    model = foretell.load(run.output)
    assert (model.heads is None) == (kind == "none")
    if kind != "none":
        assert {"loss_3", "top1_3", "agreement_3", "chained_1", "lambda", "grad_norm_trunk", "grad_norm_heads"} <= set(
            logged[6]
        )
        assert ids(model, 3) == ids(model, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_from_scratch(scratch: Recipe, tmp_path: Path, family: str) -> None:
    """Recurrent and routed trunks train; those that can be decoded load again."""
    text = SCRATCH.replace('model_type = "llama"', FAMILIES[family])
    for key in ("num_hidden_layers = 2", "num_key_value_heads = 1"):
        if FAMILIES[family].count(key.split(" = ")[0] + " ="):
            text = text.replace("\n" + key, "", 1)
    run = read(tmp_path, text)
    report = train(run)
    assert report.held_out["loss"] < 6
    if family != "qwen3_next":
        model = foretell.load(run.output)
        assert ids(model, 2) == ids(model, 0)


@pytest.mark.parametrize("kind", ["sequential", "parallel"])
def test_resumed_is_uninterrupted(scratch: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """C08: weights, losses and learning rates of a run stopped after step 3."""
    text = SCRATCH.replace("num_depths = 2", f'num_depths = 2\nkind = "{kind}"')
    whole = read(tmp_path, text)
    train(whole)
    run = change(whole, "stopped")

    def stop(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_log.JsonlMetrics, "on_step_end", stop, raising=False)
        with pytest.raises(KeyboardInterrupt):
            train(run)
    report = train(run, resume=True)
    assert report.resumed_at == 3
    for name in ("model.safetensors", "mtp.safetensors"):
        assert_same_tensors(load_file(Path(whole.output) / name), load_file(Path(run.output) / name))
    one, other = metrics(whole), metrics(run)
    for step in range(1, 7):
        for name in ("loss", "loss_0", "loss_2", "learning_rate", "grad_norm_heads"):
            assert one[step][name] == other[step][name]


def test_a_checkpoint_is_a_model_folder(scratch: Recipe) -> None:
    """With the weights that were trained, in float32, and heads where there are some."""
    train(scratch)
    folder = Path(scratch.run_dir) / "checkpoint-6"
    for name in ("model.safetensors", "mtp.safetensors"):
        assert_same_tensors(load_file(folder / name), load_file(Path(scratch.output) / name))
    model = foretell.load(folder)
    assert model.heads is not None
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")  # tied: one copy on disk (C14)
    assert not any("norm" not in name and "embed" in name for name in load_file(folder / "mtp.safetensors"))


def test_continued_from_a_trunk_and_from_heads(scratch: Recipe, tmp_path: Path) -> None:
    """A loaded trunk gets heads and trains with them; then both go on, the heads as they were left."""
    train(scratch)
    loaded = SCRATCH[SCRATCH.index("[data]") :]
    first = read(
        tmp_path,
        f'trunk = "{scratch.output}"\noutput = "{{folder}}/second"\n'
        'run_dir = "{folder}/r2"\n[heads]\nkind = "medusa"\n' + loaded,
    )
    train(first)
    assert not torch.equal(
        load_file(Path(scratch.output) / "model.safetensors")["model.norm.weight"],
        load_file(Path(first.output) / "model.safetensors")["model.norm.weight"],
    )
    second = read(
        tmp_path,
        f'trunk = "{first.output}"\ninit_from = "{first.output}"\n'
        'output = "{folder}/third"\nrun_dir = "{folder}/r3"\n'
        + loaded.replace("learning_rate = 1e-2", "learning_rate = 1e-9"),
    )
    train(second)
    for name, tensor in load_file(Path(first.output) / "mtp.safetensors").items():
        torch.testing.assert_close(load_file(Path(second.output) / "mtp.safetensors")[name], tensor)


def test_the_config_claims_no_heads_that_are_not_there(scratch: Recipe, tmp_path: Path) -> None:
    """C10: a native claim of the trunk's config is taken back where its tensors are not written."""
    train(scratch)
    path = Path(scratch.output) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_nextn_predict_layers": 1}))
    for kind in ("none", "sequential"):
        text = f'trunk = "{scratch.output}"\noutput = "{{folder}}/{kind}"\nrun_dir = "{{folder}}/r{kind}"\n'
        run = read(tmp_path, text + f'[heads]\nkind = "{kind}"\n' + SCRATCH[SCRATCH.index("[data]") :])
        train(run)
        assert json.loads((Path(run.output) / "config.json").read_text())["num_nextn_predict_layers"] == 0
        assert (Path(run.output) / "mtp_config.json").exists() == (kind != "none")


def test_clip_groups(scratch: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Separate: heads with huge gradients leave the trunk's step alone."""
    norms = {}
    for clip in ("separate", "together"):
        run = change(scratch, clip, clip=clip, max_grad_norm=1e-3, max_steps=1)
        found: dict[str, float] = {}
        clipped = torch.nn.utils.clip_grads_with_norm_

        def note(params: Any, *args: Any, found: dict[str, float] = found, clipped: Any = clipped) -> None:
            clipped(params, *args)
            found[str(len(found))] = float(torch.nn.utils.get_total_norm([p.grad for p in params]))

        monkeypatch.setattr(torch.nn.utils, "clip_grads_with_norm_", note)
        train(run)
        monkeypatch.setattr(torch.nn.utils, "clip_grads_with_norm_", clipped)
        norms[clip] = list(found.values())
    assert norms["separate"] == pytest.approx([1e-3, 1e-3], rel=1e-2)
    assert sum(n * n for n in norms["together"]) == pytest.approx(1e-6, rel=1e-2)


def test_rates_of_trunk_and_heads(scratch: Recipe) -> None:
    """heads_learning_rate 0 means the same one; otherwise the heads' groups go by their own."""
    train(change(scratch, "own", heads_learning_rate=1e-30, weight_decay=0.1, max_steps=2))
    train(change(scratch, "start", learning_rate=1e-30, max_steps=1))
    own, start = (load_file(Path(f"{scratch.output}-{name}") / "mtp.safetensors") for name in ("own", "start"))
    for name, tensor in own.items():
        torch.testing.assert_close(tensor, start[name], rtol=0, atol=1e-20)


@pytest.mark.parametrize("setting", ["checkpointing", "compile"])
def test_how_it_is_computed_does_not_matter(scratch: Recipe, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """Recomputed activations and compiled layers give the same losses."""
    compile_layer = torch.nn.Module.compile  # inductor takes a minute here; what it is given is the same
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer: compile_layer(layer, backend="aot_eager"))
    train(scratch)
    run = change(scratch, setting, **{setting: True})
    train(run)
    for step, line in metrics(scratch).items():
        for name in ("loss_0", "loss_1", "loss_2", "grad_norm_trunk"):
            assert metrics(run)[step][name] == pytest.approx(line[name], rel=1e-4)


@pytest.mark.parametrize("storage", ["cached", "streaming"])
def test_storage_does_not_matter(scratch: Recipe, storage: str) -> None:
    """Rows on disk train as rows in memory do; streamed ones train in file order."""
    train(scratch)
    run = change(scratch, storage, data={"storage": storage})
    train(run)
    if storage == "cached":
        assert_same_tensors(
            load_file(Path(scratch.output) / "model.safetensors"), load_file(Path(run.output) / "model.safetensors")
        )
    assert len(metrics(run)) == 6


def test_gradient_shares_are_logged(scratch: Recipe) -> None:
    """On the steps asked for, for the trunk's own loss and every depth; they sum to 1."""
    run = replace(scratch, objective=replace(scratch.objective, gradient_share_steps=2))
    train(run)
    shares = [
        [line[f"gradient_share_{k}"] for k in range(3)] for line in metrics(run).values() if "gradient_share_0" in line
    ]
    assert len(shares) == 3
    assert all(sum(share) == pytest.approx(1) for share in shares)


def test_a_tensor_without_a_gradient_stops_the_run(scratch: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its name, at the end of a short run or after ten steps of a long one."""

    def cut(*args: Any) -> Any:
        heads = original(*args)
        heads.forgotten = torch.nn.Parameter(torch.ones(3))
        return heads

    original = trainer.starting_heads
    monkeypatch.setattr(trainer, "starting_heads", cut)
    with pytest.raises(ForetellError, match=r"no gradient reached 1 of the tensors.*heads\.forgotten"):
        train(scratch)


def test_patience_of_the_gradient_check() -> None:
    """An expert may come late; nobody may come after the tenth step."""
    layers = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False) for _ in range(2))
    check = GradientCheck(layers)
    layers[0].weight.grad = torch.ones(2, 2)
    for step in range(9):
        check(step, 100)
    layers[1].weight.grad = torch.ones(2, 2)
    check(9, 100)
    late = GradientCheck(layers)
    layers[1].weight.grad = torch.zeros(2, 2)
    for step in range(9):
        late(step, 100)
    with pytest.raises(ForetellError, match=r"1\.weight"):
        late(9, 100)


def test_outputs_that_hold_something_else(scratch: Recipe) -> None:
    """Neither a folder of other files nor a finished model is overwritten unasked."""
    Path(scratch.output).mkdir()
    (Path(scratch.output) / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"thesis\.txt"):
        train(scratch, overwrite=True)
    (Path(scratch.output) / "thesis.txt").unlink()
    train(scratch, overwrite=True)
    with pytest.raises(UsageError, match="exists"):
        train(scratch)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('trunk = "joint"', 'trunk = "frozen"', r':\d+: \[train\] trunk is .frozen.; allowed: "joint"'),
        ('kind = "bytes"', 'kind = "byte"', r":\d+: \[tokenizer\] kind is 'byte'; allowed"),
        ("hidden_size = 32", "hiden_size = 32", r"unknown key 'hiden_size' for llama; did you mean 'hidden_size'"),
        ('model_type = "llama"', 'preset = "2m"', r"preset is '2m'; allowed: 1m"),
        ('model_type = "llama"', "", r":\d+: \[model\] preset or model_type missing"),
        ("num_attention_heads = 2", "num_attention_heads = 3", "llama: these sizes do not go together"),
        ("num_depths = 2", 'kind = "none"\nnum_depths = 2', r'\[heads\] kind = "none" leaves nothing to set'),
        ("num_hidden_layers = 2", "num_hidden_layers = 0", r":\d+: \[model\] num_hidden_layers is 0; allowed: a whole"),
        ("max_position_embeddings = 128", "max_position_embeddings = 16", r"max_length is 32; allowed: at most 16"),
        ("num_depths = 2", "num_depths = 31", r":\d+: \[heads\] num_depths is 31; allowed: at most 30"),
        ('output = "{folder}/model"', 'output = "{folder}/run"', "output .* is the run_dir too"),
        ('output = "{folder}/model"', 'output = ""', r":\d+: output is empty; give a folder"),
        ('output = "{folder}/model"', 'output = "/proc/none/x"', r"output: /proc.* cannot be written to"),
        (
            "[train]",
            '[objective]\ngradient_share_steps = 2\n[train]\nsharding = "fsdp"',
            r":\d+: \[objective\] gradient_share_steps is 2; allowed: 0",
        ),
        ("batch_rows = 4", "cache_states = true", r"cache_states is True; allowed: false"),
        ("[model]", 'trunk = "demo"\n[model]', r":\d+: trunk or \[model\]: both are given"),
    ],
)
def test_wrong_recipes(scratch: Recipe, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SCRATCH
    with pytest.raises(UsageError, match=message):
        train(read(tmp_path, SCRATCH.replace(old, new, 1)))
