"""GGUF headers, as the gguf package writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.errors import CheckpointError
from foretell.inspection.gguf_header import _TYPES, read_gguf_header
from foretell.inspection.inspect import inspect_checkpoint

gguf = pytest.importorskip("gguf")
H, V = 32, 2000


def write(
    path: Path, *, claimed: int = 1, modules: int = 1, recurrent: bool = True, fused: bool = True, **sizes: int
) -> Path:
    """A file of Qwen3.5's architecture with two layers and heads behind them."""
    writer = gguf.GGUFWriter(path, "qwen35")
    writer.add_uint32("qwen35.block_count", 2 + claimed)
    writer.add_uint32("qwen35.embedding_length", H)
    if claimed:
        writer.add_uint32("qwen35.nextn_predict_layers", claimed)
    for name, value in sizes.items():
        writer.add_uint32(f"qwen35.{name}", value)
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(V)])
    writer.add_array("tokenizer.ggml.token_type", [1] * V)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (V, H), "output_norm.weight": (H,)}
    shapes |= {f"blk.{i}.ffn_up_exps.weight": (4, H, H) for i in range(2)}
    shapes |= {"blk.0.ssm_out.weight": (H, H)} if recurrent else {}
    for k in range(modules):
        shapes |= {f"blk.{2 + k}.attn_q.weight": (H, H)}
        if fused:
            shapes |= {f"blk.{2 + k}.nextn.eh_proj.weight": (H, 2 * H)}
            shapes |= {f"blk.{2 + k}.nextn.shared_head_head.weight": (V, H)}
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_file_with_heads(tmp_path: Path) -> None:
    found = inspect_checkpoint(write(tmp_path / "m.gguf", expert_count=4, expert_used_count=1))
    assert (found.kind, found.family, found.num_layers, found.vocab_size) == ("gguf", "qwen3_5", 2, V)
    assert (found.claimed_heads, found.num_modules, len(found.mtp_tensors), found.problems) == (1, 1, 3, [])
    assert found.tied and found.engines == {"llama.cpp": "decodes with the heads"}
    assert found.costs and found.costs.trunk
    assert found.costs.trunk.active == V * H + H + 2 * H * H + H * H  # one of four experts in each layer
    [depth] = found.costs.depths
    assert (depth.parameters, depth.copies, depth.active) == (3 * H * H, V * H, 3 * H * H + V * H)


@pytest.mark.parametrize(
    ("settings", "problem", "line"),
    [
        ({"modules": 0}, "claims 1 native MTP layers, but no MTP tensor", "missing heads"),
        ({"claimed": 0}, "claims no native MTP layer", "does not announce"),
        ({"claimed": 2}, "claims 2 .*, the file holds tensors of 1", "decodes"),
        ({"fused": False}, "block 2 is one of the heads', but has no nextn.eh_proj", "decodes"),
        ({"recurrent": False}, "", "aborts while it decodes"),
    ],
)
def test_disagreements(tmp_path: Path, settings: dict[str, Any], problem: str, line: str) -> None:
    found = inspect_checkpoint(write(tmp_path / "m.gguf", **settings))
    assert line in found.engines["llama.cpp"]
    assert re.search(problem, found.problems[0]) if problem else not found.problems


def test_type_names_are_those_of_the_gguf_package() -> None:
    known = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    assert known.items() <= _TYPES.items()


def test_every_cut_is_one_line(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.gguf").read_bytes()
    end = whole.index(b"attn_q") + 10
    for size in (5, 8, 20, 40, 100, 1000, end // 2, end):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="cut.gguf: not a readable GGUF file") as caught:
            read_gguf_header(tmp_path / "cut.gguf")
        assert "\n" not in str(caught.value)


def test_absurd_lengths_are_refused_at_once(tmp_path: Path) -> None:
    whole = bytearray(write(tmp_path / "m.gguf").read_bytes())
    whole[8:16] = (2**62).to_bytes(8, "little")
    (tmp_path / "bad.gguf").write_bytes(whole)
    with pytest.raises(CheckpointError, match="a length of"):
        read_gguf_header(tmp_path / "bad.gguf")
