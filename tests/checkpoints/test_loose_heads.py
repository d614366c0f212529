"""Heads without a trunk, imported as an adapter: a family's tensors alone, speculators, Medusa's and Meta's files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import foretell
from foretell.convert.import_heads import import_heads
from foretell.errors import CheckpointError
from foretell.models.heads import Heads
from tests.checkpoints.family_folders import LOADABLE, SPECULATORS, Script, Stored, finish, write_script
from tests.fixtures import VOCAB_SIZE, byte_tokenizer, tiny_llama, tiny_qwen3

HIDDEN = 64
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def trunk(tmp_path: Path) -> Path:
    """A random Llama of three layers."""
    tiny_llama(num_hidden_layers=3).save_pretrained(tmp_path / "trunk")
    byte_tokenizer().save_pretrained(tmp_path / "trunk")
    return tmp_path / "trunk"


def noise(*shape: int, seed: int) -> torch.Tensor:
    """Values that are no identity."""
    return 0.2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def logits_by_depth(heads: Heads, ids_BT: torch.Tensor) -> list[torch.Tensor]:
    """What every depth says of whole texts."""
    documents = torch.zeros_like(ids_BT)
    states = heads.trunk.text_states(ids_BT, documents)
    found = heads.training_states(states, heads.trunk.embed(ids_BT), documents)
    return [heads.project(state, depth) for depth, state in enumerate(found, start=1)]


def imported(heads: Path, out: Path, trunk: Path) -> Heads:
    """The adapter's heads, as another run loads them."""
    import_heads(heads, out, trunk)
    loaded = foretell.load(trunk, heads=out, pack=False).heads
    assert loaded is not None
    return loaded


# A family's tensors alone


SPECULATORS_OF_QWEN3 = replace(LOADABLE["qwen3_5"], make=tiny_qwen3, names=SPECULATORS, centred=False)


@pytest.mark.parametrize(
    ("stored", "source"),
    [(LOADABLE["qwen3_5"], "embedding"), (SPECULATORS_OF_QWEN3, "embedding"), (SPECULATORS_OF_QWEN3, "hidden")],
)
def test_head_only_folder(stored: Stored, source: Any, tmp_path: Path) -> None:
    """Always right on its trunk; speculators borrows MiMo's names, but not the order of MiMo's halves."""
    folder = write_script(stored, tmp_path / "trunk", source)
    tensors = load_file(folder / "model.safetensors")
    heads = {name: tensor for name, tensor in tensors.items() if name.startswith("mtp")}
    (tmp_path / "heads").mkdir()
    save_file(heads, tmp_path / "heads" / "model.safetensors")
    (tmp_path / "heads" / "config.json").write_text(json.dumps({"speculators_model_type": "mtp"}))
    finish(folder, {name: tensor for name, tensor in tensors.items() if name not in heads}, mtp_num_hidden_layers=0)
    report = import_heads(tmp_path / "heads", tmp_path / "out", folder)
    assert set(report.renamed) == set(heads) and len(heads) == 15
    engine = foretell.Engine(foretell.load(folder, heads=tmp_path / "out", pack=False))
    [done] = engine.generate([[1, 2, 3]], foretell.SamplingParams(max_tokens=20), depth=2)
    assert done.token_ids == [(4 + i) % Script().size for i in range(20)]
    assert (done.stats.num_draft_tokens, done.stats.accepted_per_position) == (12, [6, 6])


# Medusa


def medusa_file(num_heads: int, num_blocks: int) -> Tensors:
    """As FasterDecoding/Medusa saves them: ModuleList of Sequential(ResBlock..., Linear)."""
    found = {}
    for k in range(num_heads):
        for j in range(num_blocks):
            found[f"{k}.{j}.linear.weight"] = noise(HIDDEN, HIDDEN, seed=10 * k + j)
            found[f"{k}.{j}.linear.bias"] = noise(HIDDEN, seed=100 + 10 * k + j)
        found[f"{k}.{num_blocks}.weight"] = noise(VOCAB_SIZE, HIDDEN, seed=200 + k)
    return found


@pytest.mark.parametrize("num_blocks", [1, 2])
@pytest.mark.parametrize("prefix", ["", "medusa_head."])
def test_medusa_file(num_blocks: int, prefix: str, trunk: Path, tmp_path: Path) -> None:
    """x + SiLU(W x + b) a block, then the output matrix, on the state after the final norm."""
    saved = medusa_file(3, num_blocks)
    torch.save({prefix + name: tensor for name, tensor in saved.items()}, tmp_path / "medusa_lm_head.pt")
    heads = imported(tmp_path / "medusa_lm_head.pt", tmp_path / "out", trunk)
    assert heads.config.kind == "medusa" and heads.config.num_depths == 3
    ids = torch.randint(0, 256, (1, 7))
    with torch.no_grad():
        for k, logits in enumerate(logits_by_depth(heads, ids)):
            x = heads.trunk.text_states(ids, torch.zeros_like(ids)).post_BTD
            for j in range(num_blocks):
                x = x + F.silu(x @ saved[f"{k}.{j}.linear.weight"].T + saved[f"{k}.{j}.linear.bias"])
            torch.testing.assert_close(logits, x @ saved[f"{k}.{num_blocks}.weight"].T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change", ["a bias", "a head in the middle", "misshapen", "a strange name"])
def test_damaged_medusa_file(change: str, trunk: Path, tmp_path: Path) -> None:
    """Named, and nothing is written."""
    saved = medusa_file(3, 1)
    if change == "a bias":
        del saved["1.0.linear.bias"]
    elif change == "a head in the middle":
        saved = {name: tensor for name, tensor in saved.items() if not name.startswith("1.")}
    elif change == "misshapen":
        saved["1.1.weight"] = noise(VOCAB_SIZE + 1, HIDDEN, seed=1)
    else:
        saved["1.gate.weight"] = noise(3, seed=1)
    torch.save(saved, tmp_path / "medusa_lm_head.pt")
    named = {"misshapen": r"1\.1\.weight \[261, 64\]", "a strange name": r"1\.gate\.weight"}
    expected = {"a bias": r"modules_by_depth\.1\.blocks\.0\.linear\.bias", "a head in the middle": "modules_by_depth.1"}
    with pytest.raises(CheckpointError, match=(named | expected)[change]):
        import_heads(tmp_path / "medusa_lm_head.pt", tmp_path / "out", trunk)
    assert not (tmp_path / "out").exists()


# Meta


def meta_block(x_TD: torch.Tensor, weights: Tensors, num_heads: int, num_kv_heads: int) -> torch.Tensor:
    """A block of Llama 1 as Meta's code writes it: rotary embedding by complex numbers, on pairs side by side."""

    def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain

    length, size = x_TD.shape
    width = size // num_heads
    frequencies = 1.0 / (10000.0 ** (torch.arange(0, width, 2).float() / width))
    turns = torch.polar(torch.ones(length, width // 2), torch.outer(torch.arange(length).float(), frequencies))

    def turned(x_THd: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x_THd.reshape(*x_THd.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs * turns.unsqueeze(1)).flatten(2)

    normed = norm(x_TD, weights["attention_norm.weight"])
    query = turned((normed @ weights["attention.wq.weight"].T).view(length, num_heads, width))
    key = turned((normed @ weights["attention.wk.weight"].T).view(length, num_kv_heads, width))
    value = (normed @ weights["attention.wv.weight"].T).view(length, num_kv_heads, width)
    key, value = (part.repeat_interleave(num_heads // num_kv_heads, dim=1) for part in (key, value))
    attended = F.scaled_dot_product_attention(*(part.transpose(0, 1) for part in (query, key, value)), is_causal=True)
    x_TD = x_TD + attended.transpose(0, 1).reshape(length, size) @ weights["attention.wo.weight"].T
    normed = norm(x_TD, weights["ffn_norm.weight"])
    gate = F.silu(normed @ weights["feed_forward.w1.weight"].T) * (normed @ weights["feed_forward.w3.weight"].T)
    return x_TD + gate @ weights["feed_forward.w2.weight"].T


def meta_weights(seed: int) -> Tensors:
    """One of ``extra_heads``, for 4 heads of width 16, 2 of them with keys, and an inner width of 96."""
    shapes = {
        "attention.wq": (64, 64),
        "attention.wk": (32, 64),
        "attention.wv": (32, 64),
        "attention.wo": (64, 64),
        "feed_forward.w1": (96, 64),
        "feed_forward.w2": (64, 96),
        "feed_forward.w3": (96, 64),
    }
    found = {f"{name}.weight": noise(*shape, seed=seed + i) for i, (name, shape) in enumerate(shapes.items())}
    return found | {f"{name}.weight": 1 + noise(64, seed=seed + 9) for name in ("attention_norm", "ffn_norm")}


def test_meta_file(trunk: Path, tmp_path: Path) -> None:
    """Three blocks beside the trunk's last layer, the trunk's norm and output head behind each."""
    saved = [meta_weights(20 * k) for k in range(3)]
    file = {f"extra_heads.{k}.{name}": tensor for k, head in enumerate(saved) for name, tensor in head.items()}
    others = {"norm.weight": torch.ones(64), "layers.0.attention.wq.weight": noise(64, 64, seed=3)}
    torch.save(file | others, tmp_path / "consolidated.pth")
    heads = imported(tmp_path / "consolidated.pth", tmp_path / "out", trunk)
    assert heads.config.kind == "parallel" and heads.config.num_depths == 3
    ids = torch.randint(0, 256, (1, 11))
    model = heads.trunk.model
    with torch.no_grad():
        below_TD = model(ids, output_hidden_states=True).hidden_states[-2][0]  # what enters the last layer
        for weights, logits in zip(saved, logits_by_depth(heads, ids), strict=True):
            expected = model.lm_head(model.model.norm(meta_block(below_TD, weights, 4, 2)))
            torch.testing.assert_close(logits[0], expected, rtol=1e-3, atol=1e-3)


def test_meta_file_without_a_tensor(trunk: Path, tmp_path: Path) -> None:
    """Named."""
    file = {f"extra_heads.0.{name}": tensor for name, tensor in meta_weights(0).items()}
    del file["extra_heads.0.attention.wk.weight"]
    torch.save(file, tmp_path / "consolidated.pth")
    with pytest.raises(CheckpointError, match=r"layer\.self_attn\.k_proj"):
        import_heads(tmp_path / "consolidated.pth", tmp_path / "out", trunk)


# What is refused


class Runs:
    """An object whose pickle makes a folder when it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def test_code_in_a_file_is_not_run(trunk: Path, tmp_path: Path) -> None:
    """A pickle may run anything; this one would leave a folder behind."""
    torch.save(medusa_file(1, 1) | {"extra": Runs(tmp_path / "ran")}, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(CheckpointError, match="not a file of tensors alone"):
        import_heads(tmp_path / "medusa_lm_head.pt", tmp_path / "out", trunk)
    assert not (tmp_path / "ran").exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\x03\x04 a zip that is cut short"])
def test_damaged_file(content: bytes, trunk: Path, tmp_path: Path) -> None:
    """One line, with the file's name."""
    (tmp_path / "medusa_lm_head.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"medusa_lm_head\.pt: not a file of tensors"):
        import_heads(tmp_path / "medusa_lm_head.pt", tmp_path / "out", trunk)


LAYER = ["self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "post_attention_layernorm"]
FOREIGN = {
    "EAGLE-3": ["fc", "norm", "lm_head", "d2t", "t2d", "midlayer.hidden_norm", *(f"midlayer.{n}" for n in LAYER)],
    "EAGLE-3, its layer by number": ["fc", "norm", "layers.0.hidden_norm", *(f"layers.0.{n}" for n in LAYER)],
    "EAGLE-1": ["fc", *(f"layers.0.{n}" for n in LAYER)],
    "Gemma-4": ["pre_projection", "post_projection", *(f"model.layers.{i}.{n}" for i in range(5) for n in LAYER)],
    "nobody": ["nobody.knows"],
}


@pytest.mark.parametrize("name", FOREIGN)
def test_heads_of_other_kinds(name: str, trunk: Path, tmp_path: Path) -> None:
    """Each is called what it is."""
    (tmp_path / "heads").mkdir()
    save_file({f"{part}.weight": torch.zeros(2) for part in FOREIGN[name]}, tmp_path / "heads" / "model.safetensors")
    message = "in no layout that is known" if name == "nobody" else f"{name.split(',')[0]}.*: not supported"
    with pytest.raises(CheckpointError, match=message):
        import_heads(tmp_path / "heads", tmp_path / "out", trunk)
