"""A whole recipe on a tiny trunk: what is trained and what is not, going on after a stop."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from foretell.checkpoints.adapter import load_adapter
from foretell.errors import CheckpointError, DataError, ForetellError, UsageError
from foretell.training import arguments, run_log, start, trainer
from foretell.training.recipe import Recipe
from foretell.training.trainer import TrainReport, train
from tests.training.runs import (
    Watched,
    adapter,
    assert_same_adapter,
    assert_same_tensors,
    change,
    metrics,
    recipe,
    write_trunk,
)

__all__ = ["recipe"]  # a fixture


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_only_the_heads_are_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recipe: Recipe, tied: bool, cached: bool
) -> None:
    write_trunk(tmp_path, tie_word_embeddings=tied)
    files = {path.name: path.read_bytes() for path in (tmp_path / "trunk").iterdir()}
    watched = Watched(monkeypatch)
    modules = {"unrolled": False, "num_modules": 2, "own_output": True}
    said: list[str] = []
    run = change(recipe, cache_states=cached, heads=modules)
    report = train(run, on_progress=lambda stage, done, total: said.append(stage))
    assert report.num_steps == 10
    [line] = [stage for stage in said if stage.startswith("trained: ")]
    numbers = [sum(p.numel() for p in module.parameters()) for module in (watched.heads, watched.trunk)]
    assert line == (
        f"trained: heads {len(watched.heads_before)} tensors ({numbers[0]:,} parameters); "
        f"frozen: trunk {len(list(watched.trunk.parameters()))} tensors ({numbers[1]:,} parameters)"
    )

    now = watched.trunk.model.state_dict()
    assert all(torch.equal(now[name], tensor) for name, tensor in watched.trunk_before.items())
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "trunk").iterdir()}
    assert not any(p.requires_grad or p.grad is not None for p in watched.trunk.parameters())
    assert watched.changed() == set(watched.heads_before)

    [*_, checkpoint] = sorted((tmp_path / "run").glob("checkpoint-*"))
    assert set(load_file(checkpoint / "mtp.safetensors")) == set(adapter(recipe))
    optimizer = torch.load(checkpoint / "optimizer.pt", weights_only=True)
    assert set(optimizer["state"]) == {f"heads.{name}" for name in watched.heads_before}
    moments = sorted(tuple(state["exp_avg"].shape) for state in optimizer["state"].values())
    assert moments == sorted(tuple(p.shape) for p in watched.heads_before.values())
    assert len(adapter(recipe)) == len(watched.heads_before)


def test_the_adapter_is_what_was_trained(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    watched = Watched(monkeypatch)
    report = train(recipe)
    loaded = load_adapter(watched.trunk, recipe.output)
    for name, parameter in loaded.named_parameters():
        torch.testing.assert_close(parameter, watched.heads.get_parameter(name), rtol=0.01, atol=1e-4)  # stored in bf16
    stored = json.loads((Path(recipe.output) / "mtp_config.json").read_text())["training"]
    assert stored["num_steps"] == 10
    assert stored["held_out"] == json.loads(json.dumps(report.held_out))
    assert stored["recipe"]["train"]["learning_rate"] == 0.01
    logged = metrics(recipe)
    assert list(logged) == list(range(1, 11))
    assert logged[10]["loss_1"] < logged[1]["loss_1"]
    for line in logged.values():
        weights = [1 / 1.8, 0.8 / 1.8]
        assert line["loss"] == pytest.approx(sum(w * line[f"loss_{k}"] for k, w in enumerate(weights, 1)), rel=1e-3)
        assert 0 <= line["agreement_2"] <= 1


def test_a_norm_that_is_the_trunks_is_not_trained(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    """It is the trunk's tensor itself, no parameter of the heads."""
    watched = Watched(monkeypatch)
    train(change(recipe, heads={"final_norm": "trunk"}, max_steps=2))
    assert not any("layers.0.post_norm" in name for name in adapter(recipe))
    assert watched.changed() == set(watched.heads_before)
    now = watched.trunk.model.state_dict()
    assert all(torch.equal(now[name], tensor) for name, tensor in watched.trunk_before.items())


def test_cached_states_give_the_same_run(recipe: Recipe) -> None:
    cached, again = change(recipe, "cached", cache_states=True), change(recipe, "again")
    reports = [train(run) for run in (recipe, cached, again)]
    assert_same_adapter(recipe, again)
    for step, line in metrics(recipe).items():
        for name, value in line.items():
            if name.startswith(("loss", "agreement")):
                assert metrics(cached)[step][name] == pytest.approx(value, rel=1e-4), name
    assert reports[1].mean_loss == pytest.approx(reports[0].mean_loss, rel=1e-5)
    assert (Path(cached.run_dir) / "cache" / "states.bin").stat().st_size == 16 * 32 * 4 * _num_rows(cached)


def _num_rows(recipe: Recipe) -> int:
    return (Path(recipe.run_dir) / "cache" / "argmax.bin").stat().st_size // (16 * 4)


def test_the_cache_is_filled_once_and_for_these_rows_only(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    recipe = change(recipe, cache_states=True, max_steps=1)
    calls: list[str] = []

    def run(recipe: Recipe) -> int:
        calls.clear()
        train(recipe, overwrite=True, on_progress=lambda stage, done, total: calls.append(stage))
        return calls.count("computing trunk states")

    assert run(recipe) > 0
    assert run(recipe) == 0
    assert run(change(recipe, data={"max_documents": 30})) > 0
    assert run(recipe) > 0


class Stopped(Exception):
    """The process is gone."""


@pytest.mark.parametrize(
    ("event", "step", "cached"), [("on_save", 5, True), ("on_step_end", 7, False)], ids=["at a checkpoint", "between"]
)
def test_a_stopped_run_goes_on_as_if_it_had_not(
    monkeypatch: pytest.MonkeyPatch, recipe: Recipe, event: str, step: int, cached: bool
) -> None:
    """Same learning rates, losses and weights; between two checkpoints the steps are done again."""
    recipe = change(recipe, cache_states=cached, max_steps=12)
    unbroken = change(recipe, "unbroken")
    train(unbroken)

    def stop(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == step:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(run_log.JsonlMetrics, event, stop, raising=False)
        with pytest.raises(Stopped):
            train(recipe)
    assert not Path(recipe.output).exists()
    assert sorted(p.name for p in Path(recipe.run_dir).glob("checkpoint-*")) == ["checkpoint-5"]
    report = train(recipe, resume=True)
    assert report.num_steps == 12
    assert_same_adapter(recipe, unbroken)
    resumed, expected = metrics(recipe), metrics(unbroken)
    assert resumed.keys() == expected.keys()
    for number in expected:
        for name in ("loss", "loss_1", "loss_2", "learning_rate", "agreement_1"):
            assert resumed[number][name] == pytest.approx(expected[number][name], rel=1e-6), (number, name)


def stop_at(monkeypatch: pytest.MonkeyPatch, recipe: Recipe, step: int) -> None:
    """Train, and be gone after ``step``."""

    def stop(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == step:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(run_log.JsonlMetrics, "on_step_end", stop, raising=False)
        with pytest.raises(Stopped):
            train(recipe)


def test_resume_without_a_checkpoint_begins(recipe: Recipe) -> None:
    recipe = change(recipe, max_steps=2)
    said: list[str] = []
    report = train(recipe, resume=True, on_progress=lambda stage, done, total: said.append(stage))
    assert (report.num_steps, report.resumed_at) == (2, 0)
    assert said[0].startswith("no checkpoint in ") and said[0].endswith("begins anew")


def test_resume_of_an_output_without_a_checkpoint(recipe: Recipe) -> None:
    """An adapter of another run is not replaced by mistake."""
    other = change(recipe, "other", max_steps=1)
    train(other)
    before = adapter(other)
    with pytest.raises(UsageError, match=r"run_dir .*run holds no checkpoint to resume from, and output .* exists"):
        train(replace(recipe, output=other.output), resume=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in adapter(other).items())


def test_a_finished_run_takes_no_further_step(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    """Killed after the last checkpoint, it still writes its adapter; a loss it did not compute is not made up."""
    recipe = change(recipe, max_steps=2)
    train(recipe)
    before, logged = adapter(recipe), (Path(recipe.run_dir) / "metrics.jsonl").read_text()
    shutil.rmtree(recipe.output)
    monkeypatch.setattr(trainer.MTPTrainer, "train", None)
    report = train(recipe, resume=True)
    assert (report.num_steps, report.resumed_at, report.train_s, report.mean_loss) == (2, 2, 0.0, None)
    assert_same_tensors(before, adapter(recipe))
    assert (Path(recipe.run_dir) / "metrics.jsonl").read_text() == logged


def test_metrics_hold_every_step_once(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    stop_at(monkeypatch, recipe, 8)
    with (Path(recipe.run_dir) / "metrics.jsonl").open("a") as sink:
        sink.write('{"step": 8, "lo')  # torn
    report = train(recipe, resume=True)
    lines = [json.loads(line) for line in (Path(recipe.run_dir) / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 11))
    assert (report.num_steps, report.resumed_at) == (10, 5)
    assert report.mean_loss == pytest.approx(sum(losses[step] for step in range(6, 11)) / 5, rel=1e-4)


@pytest.mark.parametrize(
    ("different", "words"),
    [
        ({"heads": {"concat": "hidden_first"}}, r"\[heads\] concat 'hidden_first' \(was 'embedding_first'\);"),
        ({"data": {"max_length": 32}}, r"\[data\] max_length 32 \(was 16\), the documents '"),
        ({"max_steps": 20, "seed": 3}, r"\[train\] max_steps 20 \(was 10\), \[train\] seed 3 \(was 0\);"),
    ],
)
def test_resume_under_another_recipe(
    monkeypatch: pytest.MonkeyPatch, recipe: Recipe, different: dict[str, Any], words: str
) -> None:
    stop_at(monkeypatch, recipe, 6)
    with pytest.raises(UsageError, match=words):
        train(change(recipe, **different), resume=True)


def test_resume_on_other_files_or_another_trunk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recipe: Recipe
) -> None:
    stop_at(monkeypatch, recipe, 6)
    [data] = map(Path, recipe.data.files)
    moved = data.rename(tmp_path / "moved.jsonl")
    recipe = change(recipe, data={"files": (str(moved),)}, save_steps=4)
    kept = moved.read_text()
    moved.write_text(kept.replace("[1", "[2"))
    with pytest.raises(UsageError, match="the documents '"):
        train(recipe, resume=True)
    moved.write_text(kept)
    write_trunk(tmp_path, num_hidden_layers=1)
    with pytest.raises(UsageError, match="recipe: trunk '"):
        train(recipe, resume=True)
    write_trunk(tmp_path)
    assert train(recipe, resume=True).num_steps == 10  # what the files are called does not matter


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "mtp.safetensors"])
def test_an_incomplete_checkpoint(monkeypatch: pytest.MonkeyPatch, recipe: Recipe, name: str) -> None:
    stop_at(monkeypatch, recipe, 6)
    (Path(recipe.run_dir) / "checkpoint-5" / name).unlink()
    with pytest.raises(CheckpointError, match=rf"checkpoint-5: {name} missing"):
        train(recipe, resume=True)


def test_heads_can_be_trained_further(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    """Conventions and draft vocabulary are the adapter's own, whatever the recipe says."""
    first = change(recipe, heads={"concat": "hidden_first"}, data={"draft_vocab_size": 20}, max_steps=2)
    train(first)
    watched = Watched(monkeypatch)
    further = replace(change(recipe, "further", max_steps=2), init_from=first.output)
    train(further)
    assert watched.heads.config.concat == "hidden_first"
    assert watched.heads.draft_ids_V is not None and len(watched.heads.draft_ids_V) == 20
    assert watched.changed() == set(watched.heads_before)
    old, new = adapter(first), adapter(further)
    for name, tensor in watched.heads_before.items():
        assert torch.equal(tensor.bfloat16(), load_adapter(watched.trunk, first.output).get_parameter(name).bfloat16())
    assert torch.equal(old["mtp.draft_ids"], new["mtp.draft_ids"])
    weighted = replace(further, objective=replace(further.objective, weights=(1.0, 1.0, 1.0)))
    with pytest.raises(UsageError, match=r"adapter: \[objective\] weights is .*; allowed: 2 numbers, one a depth"):
        train(weighted, overwrite=True)


def test_held_out_documents_are_probed_and_not_trained_on(recipe: Recipe) -> None:
    report = train(change(recipe, max_steps=1))
    # A target for every token of an answer: each is at least the fourth of its document.
    lengths = [len(json.loads(line)["token_ids"]) for line in Path(recipe.data.files[0]).read_text().splitlines()]
    held_out = [length + 3 for length in lengths][4::5]
    assert report.held_out["depths"][0]["num_positions"] == sum(length - 2 for length in held_out)
    assert report.num_train_tokens == sum(length + 3 for length in lengths) - sum(held_out)
    trained = [length + 3 for i, length in enumerate(lengths) if i % 5 != 4]
    assert report.num_targets_by_depth == [sum(length - k for length in trained) for k in (1, 2, 3)]
    assert train(change(recipe, "all", max_steps=1, data={"held_out": 0.0})).held_out == {}


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [("bfloat16", "bfloat16"), ("float32", "bfloat16"), ("bfloat16", "auto"), ("float32", "auto")],
)
def test_every_precision_trains(recipe: Recipe, dtype: Any, precision: Any) -> None:
    half = dtype == "bfloat16"
    run = change(recipe, heads={"own_output": half}, precision=precision, cache_states=half, max_steps=2)
    run = replace(run, dtype=dtype, objective=replace(run.objective, target="distribution"))
    report = train(run)
    assert 0 < report.mean_loss < 20
    assert all(tensor.isfinite().all() for tensor in adapter(run).values())


def test_precision_where_torch_lacks_the_questions(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    """They are private functions of torch, and missing in builds without oneDNN."""
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert arguments.computes_in_bf16(change(recipe, precision="auto")) is False


def test_the_trunk_is_loaded_where_the_trainer_trains(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    devices: list[str] = []

    def load(trunk: str, dtype: str, device: str, **_: Any) -> None:
        devices.append(device)
        raise Stopped

    monkeypatch.setattr(start, "load_trunk", load)
    for has_cuda in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_cuda=has_cuda: has_cuda)
        with pytest.raises(Stopped):
            train(recipe)
    assert devices == ["cuda", "cpu"]


def test_one_gpu_a_process(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    monkeypatch.setattr(arguments, "TrainingArguments", lambda **_: SimpleNamespace(n_gpu=4))
    assert arguments.training_arguments(recipe, Path(recipe.run_dir))._n_gpu == 1


def test_rows_with_nothing_to_learn_are_named(recipe: Recipe) -> None:
    records: list[dict[str, Any]] = [{"token_ids": [5] * 16}, {"prompt_token_ids": [1] * 16, "token_ids": []}]
    Path(recipe.data.files[0]).write_text("".join(json.dumps(record) + "\n" for record in records))
    run = change(
        recipe,
        data={"held_out": 0.0, "supervise": "answer"},
        batch_rows=1,
        accumulation=1,
        max_steps=2,
        cache_states=True,
    )
    with pytest.warns(UserWarning, match=r"Its rows: 1$"):
        assert train(run).num_steps == 2


def test_tensorboard_where_it_is_installed(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    for installed in (True, False):
        monkeypatch.setattr(arguments, "is_tensorboard_available", lambda installed=installed: installed)
        found = arguments.training_arguments(recipe, Path(recipe.run_dir))
        assert found.report_to == ["tensorboard"] * installed


# What is refused, before anything is trained


@pytest.mark.parametrize(
    "records",
    [[{"text": ""}], [{"text": "ab"}], [{"prompt_token_ids": [1, 2, 3], "token_ids": []}]],
    ids=["empty", "short", "no answers"],
)
def test_data_without_a_target(recipe: Recipe, records: list[dict[str, Any]]) -> None:
    Path(recipe.data.files[0]).write_text("".join(json.dumps(record) + "\n" for record in records * 3))
    with pytest.raises(DataError, match=r"data\.jsonl: nothing to learn"):
        train(change(recipe, data={"supervise": "answer"}))


def test_checkpoints_of_an_earlier_run(recipe: Recipe) -> None:
    """A new run beside them would lose its own (the lower numbers), and later resume from theirs."""
    old = change(recipe, max_steps=6)
    train(old)
    recipe = replace(change(recipe, max_steps=3, save_steps=1), output=recipe.output + "-new")
    with pytest.raises(UsageError, match=r"run_dir .*run holds checkpoints of an earlier run; .*--resume.*--overwrite"):
        train(recipe)
    train(recipe, overwrite=True)
    assert {path.name for path in Path(recipe.run_dir).glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-3"}
    assert list(metrics(recipe)) == [1, 2, 3]


def test_states_that_do_not_fit_the_disk(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    monkeypatch.setattr(start, "room_for", lambda folder, num_bytes, reserve=True: reserve)
    with pytest.raises(UsageError, match=r"cache_states is true, and the states take 0\.0 GB.*not have free"):
        train(change(recipe, cache_states=True))
    assert not (Path(recipe.run_dir) / "cache").exists()


def test_an_output_that_exists(recipe: Recipe) -> None:
    recipe = change(recipe, max_steps=1)
    train(recipe)
    before = adapter(recipe)
    with pytest.raises(UsageError, match=r"output .*adapter exists; .*--overwrite"):
        train(recipe)
    report = train(change(recipe, max_steps=2), overwrite=True)
    assert isinstance(report, TrainReport) and report.num_steps == 2
    assert any(not torch.equal(before[name], tensor) for name, tensor in adapter(recipe).items())


def test_an_output_that_holds_other_files_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch, recipe: Recipe
) -> None:
    Path(recipe.output).mkdir()
    (Path(recipe.output) / "thesis.txt").write_text("mine")
    monkeypatch.setattr(start, "load_trunk", None)
    with pytest.raises(ForetellError, match="thesis.txt"):
        train(recipe, overwrite=True)
