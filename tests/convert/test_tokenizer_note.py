"""An export keeps its tokenizer, for whoever loads it; where transformers takes another, it says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from foretell.checkpoints.load import load_trunk
from foretell.convert.export import export
from foretell.training.recipe import TokenizerConfig
from foretell.training.tokenizer import make_tokenizer
from tests.convert.models import write
from tests.convert.test_export import PRE, adapter
from tests.fixtures import byte_tokenizer, tiny_llama, tiny_mistral, tiny_qwen2, tiny_qwen3

TEXT = "x = 12\n"


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and "12" as one token: Qwen2's own splits digits first."""
    vocab = {token: n for n, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))} | {"12": 256}
    tokenizer = Tokenizer(models.BPE(vocab, [("1", "2")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def exported(
    tmp_path: Path, trunk: Any, tokenizer: PreTrainedTokenizerFast, to: str = "mimo", **heads: Any
) -> tuple[Path, list[str]]:
    folder = write(trunk, tmp_path / "trunk")
    tokenizer.save_pretrained(folder)
    report = export(folder, adapter(tmp_path / "heads", folder, **heads), tmp_path / "out", to)
    return folder, [note for note in report.notes if "tokenizer" in note]


@pytest.mark.parametrize(
    ("make", "to", "heads"),
    [
        (tiny_llama, "mimo", PRE),
        (lambda: tiny_mistral(sliding_window=None), "mimo", PRE),
        (tiny_qwen3, "mellum", {}),
        (tiny_llama, "deepseek-style", {}),
    ],
    ids=["mimo-llama", "mimo-mistral", "mellum-qwen3", "deepseek-llama"],
)
def test_every_loader_reads_the_file(tmp_path: Path, make: Callable[[], Any], to: str, heads: dict[str, Any]) -> None:
    """The model type decides whose tokenizer transformers loads: qwen2 for a Llama would be another."""
    _, notes = exported(tmp_path, make(), merging_tokenizer(), to, **heads)
    right = merging_tokenizer()(TEXT)["input_ids"]
    assert notes == [] and 256 in right
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(TEXT)["input_ids"] == right
    assert load_trunk(tmp_path / "out").tokenizer(TEXT)["input_ids"] == right


def test_another_tokenizer_is_told(tmp_path: Path) -> None:
    """A Qwen2 with a tokenizer of its own, as a trunk trained from scratch has."""
    trunk, notes = exported(tmp_path, tiny_qwen2(), merging_tokenizer(), **PRE)
    [note] = notes
    assert "Qwen2Tokenizer" in note and "give them token ids" in note
    assert note in json.loads((tmp_path / "out" / "conversion.json").read_text())["notes"]
    right = merging_tokenizer()(TEXT)["input_ids"]
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(TEXT)["input_ids"] != right
    for folder in (trunk, tmp_path / "out"):
        assert load_trunk(folder).tokenizer(TEXT)["input_ids"] == right
        assert make_tokenizer(TokenizerConfig(kind="folder", folder=str(folder)), [])(TEXT)["input_ids"] == right


def test_the_same_tokens_are_not_spoken_of(tmp_path: Path) -> None:
    assert exported(tmp_path, tiny_qwen2(), byte_tokenizer(), **PRE)[1] == []
