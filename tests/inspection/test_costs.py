"""Parameters and FLOPs against published figures, from headers alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from foretell.checkpoints.files import TensorHeader
from foretell.inspection.costs import Experts, module_costs, parameter_counts, trunk_cost
from foretell.inspection.inspect import inspect_checkpoint
from foretell.inspection.model import inspect_stored
from tests.inspection.manifests import DEEPSEEK_V3, Headers, bf16, deepseek_v3, stored, write


@pytest.fixture(scope="module")
def headers() -> Headers:
    return deepseek_v3()


def test_deepseek_v3_is_as_published(headers: Headers) -> None:
    """README_WEIGHTS.md: 671 B, 36.7 B of them active; heads 11.5 B of their own beside copies of 0.9 B and 0.9 B.

    The 2.4 B active parameters that it gives a head count the embedding, which multiplies nothing.
    """
    found = inspect_stored(stored(DEEPSEEK_V3, headers))
    assert found.costs and found.costs.trunk
    trunk, [depth] = found.costs.trunk, found.costs.depths
    assert trunk.parameters == pytest.approx(671e9, rel=1e-3)
    assert trunk.active == pytest.approx(36.7e9, rel=5e-3)
    assert depth.parameters == pytest.approx(11.5e9, rel=0.02)
    assert depth.copies == 2 * 129280 * 7168
    assert depth.active + 129280 * 7168 == pytest.approx(2.4e9, rel=0.1)
    assert depth.share_of_trunk == pytest.approx(0.044, abs=1e-3)
    assert trunk.parameters + depth.parameters + depth.copies == found.num_parameters
    assert found.problems == [] and found.family == "deepseek"
    assert found.quantisation and (found.quantisation.bits, found.quantisation.heads) == (8, "quantised")
    assert found.dtypes["F8_E4M3"] > 600e9


def test_a_folder_of_700_gb_is_read_by_its_headers(headers: Headers, tmp_path: Path) -> None:
    folder = write(tmp_path / "big", DEEPSEEK_V3, headers, num_files=163)
    begin = time.process_time()
    found = inspect_checkpoint(folder)
    assert time.process_time() - begin < 6  # 1.5 s where nothing else runs
    assert (found.num_files, found.num_tensors) == (163, len(headers)) and found.num_bytes > 680e9


def test_experts_that_lie_in_one_tensor_count_like_single_ones() -> None:
    shapes = {"model.embed_tokens.weight": (50, 8), "model.layers.0.mlp.gate.weight": (4, 8)}
    single = {f"model.layers.0.mlp.experts.{e}.up_proj.weight": (16, 8) for e in range(4)}
    fused = {"model.layers.0.mlp.experts.gate_up_proj": (4, 16, 8)}
    experts = Experts(num=4, per_token=2)
    one, _ = trunk_cost(parameter_counts(bf16(shapes | single), None), experts)
    other, _ = trunk_cost(parameter_counts(bf16(shapes | fused), None), experts)
    assert one == other and one and one.active == 50 * 8 + 4 * 8 + 2 * 16 * 8
    all_of_them, _ = trunk_cost(parameter_counts(bf16(shapes | fused), None), Experts())
    assert all_of_them and all_of_them.active == 50 * 8 + 4 * 8 + 4 * 16 * 8


def test_towers_for_images_are_not_the_language_models() -> None:
    shapes = {"model.language_model.embed_tokens.weight": (50, 8), "model.visual.blocks.0.qkv.weight": (24, 8)}
    cost, side = trunk_cost(parameter_counts(bf16(shapes), None), Experts())
    assert cost and (cost.parameters, side) == (400, 192)


@pytest.mark.parametrize(
    ("name", "header", "bits", "expected"),
    [
        ("l.q_proj.qweight", TensorHeader((16, 64), "I32"), 4, 16 * 64 * 8),
        ("l.q_proj.qweight", TensorHeader((32, 64), "I32"), 8, 32 * 64 * 4),
        ("l.q_proj.weight_packed", TensorHeader((64, 16), "I32"), 4, 64 * 16 * 8),
        ("l.q_proj.weight", TensorHeader((64, 16), "U8"), 4, 64 * 16 * 2),
        ("l.q_proj.weight", TensorHeader((64, 16), "I8"), 8, 64 * 16),
        ("l.q_proj.weight", TensorHeader((64, 16), "F8_E4M3"), 8, 64 * 16),
        ("l.mlp.experts.gate_up_proj_blocks", TensorHeader((4, 8, 2, 16), "U8"), 4, 4 * 8 * 2 * 16 * 2),
        ("l.mlp.experts.gate_up_proj_scales", TensorHeader((4, 8, 2), "U8"), 4, 0),
        ("l.q_proj.weight_scale_inv", TensorHeader((4, 4), "F32"), 8, 0),
        ("l.q_proj.qzeros", TensorHeader((4, 4), "I32"), 4, 0),
        ("l.q_proj.weight.absmax", TensorHeader((4,), "F32"), 4, 0),
    ],
)
def test_packed_numbers_count_one_by_one_and_scales_not(
    name: str, header: TensorHeader, bits: int, expected: int
) -> None:
    assert parameter_counts({name: header}, bits)[name] == expected


def test_an_output_matrix_of_its_own_counts_once() -> None:
    module = {"layer": 100, "output": 50}
    trunk, _ = trunk_cost(
        {"model.embed_tokens.weight": 40, "lm_head.weight": 40, "model.layers.0.w.weight": 160}, Experts()
    )
    [own] = module_costs([module], Experts(), 40, trunk, own_outputs=["output"])
    [copy] = module_costs([module], Experts(), 40, trunk, copies=["output"])
    assert (own.parameters, own.copies, own.active, own.share_of_trunk) == (150, 0, 150, 0.75)
    assert copy == replace(own, parameters=100, copies=50, active=140, flops_per_token=280, share_of_trunk=0.7)
