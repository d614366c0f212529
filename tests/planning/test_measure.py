"""A real measurement of a tiny model, with heads of every kind, and what cannot be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from foretell.checkpoints.adapter import save_adapter
from foretell.config import HeadsConfig
from foretell.errors import UnsupportedModel, UsageError
from foretell.models.build import build_heads
from foretell.models.trunk import Trunk
from foretell.planning import kernels as kernels_module
from foretell.planning import measure as measure_module
from foretell.planning import thin as thin_module
from foretell.planning.adapter_heads import with_adapter
from foretell.planning.averages import steady_mean
from foretell.planning.measure import measure
from foretell.planning.measured_costs import MeasuredCosts
from foretell.planning.model import Linear
from foretell.planning.open_model import open_model
from tests import fixtures
from tests.planning.models import preset


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement of a few steps."""
    monkeypatch.setattr(kernels_module, "_LARGE", 256)
    monkeypatch.setattr(kernels_module, "_BUSY", 256)
    monkeypatch.setattr(measure_module, "ROWS", (1, 2, 4))
    monkeypatch.setattr(measure_module, "BATCHES", (1, 2))
    monkeypatch.setattr(measure_module, "ROUNDS", 2)
    monkeypatch.setattr(thin_module, "_STEPS", 4)
    monkeypatch.setattr(thin_module, "LENGTHS", (4, 8, 200))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers, wider than a thin one."""
    path = tmp_path_factory.mktemp("wide") / "m"
    fixtures.tiny_llama(hidden_size=96, intermediate_size=128).save_pretrained(path)
    return path


def test_a_tiny_model_is_measured_for_real(folder: Path, quick: None) -> None:
    model = open_model(str(folder))
    seen: list[tuple[int, int]] = []
    machine = measure(model, "float32", "cpu", 6, 2, 3, lambda done, total: seen.append((done, total)))
    assert seen == [(k, 10) for k in range(1, 11)]
    assert sorted(machine.passes) == [1, 2, 3] and [x for x, _ in machine.passes[2]] == [1, 2, 3]
    assert [x for x, _ in machine.drafts[3]] == [1, 2]
    # 3 prompts of 200 tokens are no step's work.
    assert [x for x, _ in machine.reads[2]] == [x for x, _ in machine.catch_ups[2]] == [4, 8, 200]
    assert [x for x, _ in machine.reads[3]] == [4, 8]
    assert {(128, 96), (96, 128), (260, 96), (96, 192)} <= machine.kernels.keys()
    # Its two layers have the real one's attention: 4 heads of 16, of width 64 in all, and 2 of keys.
    assert Linear(32, 64, 4) in machine.thin and machine.thin[-1] == Linear(260, 64, 1)
    assert all(seconds > 0 for points in machine.kernels.values() for _, seconds in points)
    assert machine.samples.keys() == machine.kernels.keys()
    for shape, points in machine.kernels.items():
        assert [len(rounds) for rounds in machine.samples[shape]] == [2] * 3
        assert [seconds for _, seconds in points] == [steady_mean(each) for each in machine.samples[shape]]
    costs = MeasuredCosts(machine, model)
    assert costs.pass_s(1, 2) > 0 and costs.draft_s(2, 2, 1.5, 1.0) > 0 and costs.join_s(0, 0, [4], 1) > 0


@pytest.mark.parametrize("kind", ["parallel", "medusa"])
def test_heads_that_read_no_tokens_are_measured_too(
    folder: Path, quick: None, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thin model has such heads: a linear layer of Medusa's and its output matrix, a layer of the trunk's kind."""
    monkeypatch.setattr(measure_module, "BATCHES", (1,))
    monkeypatch.setattr(measure_module, "ROUNDS", 1)
    trunk = Trunk(AutoModelForCausalLM.from_pretrained(folder))
    config = HeadsConfig(kind=kind, num_depths=3, draft_vocab_size=50)
    save_adapter(build_heads(trunk, config, torch.arange(50)), tmp_path / "a")
    model = with_adapter(open_model(str(folder)), str(tmp_path / "a"))
    machine = measure(model, "float32", "cpu", 6, 2)
    assert machine.heads_kind == kind and machine.thin_head[-1] == Linear(50, 64, 1)
    own = (Linear(64, 64, 1),) if kind == "medusa" else machine.thin_head[:-1]
    assert machine.thin_head == (*own, Linear(50, 64, 1)) and sum(one.count for one in own) == (kind == "medusa" or 7)
    costs = MeasuredCosts(machine, model)
    assert costs.draft_s(2, 1, 1.5, 1.0) > 0 and (costs.catch_up_s(1, 2, [8]) > 0) == (kind == "parallel")


def test_long_prompts_of_many_rows_leave_steps_in_which_all_decode(folder: Path) -> None:
    """16 times 256 tokens take eight steps to read, and the first row writes in all of them."""
    model = open_model(str(folder))
    thin = thin_module.thin_model(model, torch.float32, 1)
    rows = thin_module.ThinRows(thin, 16, 256, 1)
    rows.sample()
    assert [len(rows.passes[depth]) for depth in (0, 1)] == [thin_module._STEPS] * 2


def test_a_shape_of_the_trunk_is_not_timed_hot() -> None:
    """What the heads share with the trunk is timed among all of the trunk's layers."""

    class Fake:
        def __init__(self, shapes: dict[Any, float]) -> None:
            self.shapes, self._seconds = list(shapes), shapes

        def sample(self, rows: int) -> dict[Any, float]:
            return {shape: seconds * rows for shape, seconds in self._seconds.items()}

    samples: Any = {shape: [[] for _ in measure_module.ROWS] for shape in ((1, 1), (2, 2))}
    kernels: Any = [Fake({(1, 1): 5.0}), Fake({(1, 1): 1.0, (2, 2): 2.0})]
    measure_module._sample(kernels, samples)
    assert samples == {(n, n): [[s * rows] for rows in measure_module.ROWS] for n, s in ((1, 5.0), (2, 2.0))}


def test_what_cannot_be_measured_is_said() -> None:
    with pytest.raises(UsageError, match="float8 do not run here"):
        measure(preset("smollm2-135m"), "float8", "cpu", 8, 1)
    for name in ("deepseek-v3", "qwen3.5-0.8b"):
        with pytest.raises(UnsupportedModel, match="experts or recurrent"):
            measure(preset(name), "float32", "cpu", 8, 1)


@pytest.mark.parametrize(("most_layers", "kept"), [(4, 4), (2, 2), (0.5, 1)])
def test_the_output_matrix_is_timed_once_however_few_layers_are_made(
    most_layers: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four layers of two matrices, and one output matrix behind the last: of a large model only the first are made."""
    layer_bytes = (2 * 8 * 8 + 16 * 8 / 4) * 4
    monkeypatch.setattr(kernels_module, "MAX_BYTES", most_layers * layer_bytes)
    made = kernels_module.Kernels([Linear(8, 8, 8), Linear(16, 8, 1)], 4, torch.float32)
    assert [shape for shape, _ in made._order] == [*[(8, 8)] * 2 * kept, (16, 8)]
