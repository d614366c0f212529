"""An export under another model type keeps its tokenizer, in Foretell; where others would take another, it says so."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from foretell.checkpoints.load import load_trunk
from foretell.convert.export import export
from tests.convert.models import write
from tests.convert.test_export import PRE, adapter
from tests.fixtures import byte_tokenizer, tiny_llama, tiny_qwen3

TEXT = "x = 12\n"


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and "12" as one token: Qwen2's own splits digits first."""
    vocab = {token: n for n, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))} | {"12": 256}
    tokenizer = Tokenizer(models.BPE(vocab, [("1", "2")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def exported(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> tuple[Path, list[str]]:
    trunk = write(tiny_llama(), tmp_path / "trunk")
    tokenizer.save_pretrained(trunk)
    report = export(trunk, adapter(tmp_path / "heads", trunk, **PRE), tmp_path / "out", "mimo")
    return trunk, [note for note in report.notes if "tokenizer" in note]


def test_another_tokenizer_is_told(tmp_path: Path) -> None:
    trunk, notes = exported(tmp_path, merging_tokenizer())
    [note] = notes
    assert "Qwen2Tokenizer" in note and f"--tokenizer {trunk}" in note
    assert note in json.loads((tmp_path / "out" / "conversion.json").read_text())["notes"]
    right = merging_tokenizer()(TEXT)["input_ids"]
    assert 256 in right and AutoTokenizer.from_pretrained(tmp_path / "out")(TEXT)["input_ids"] != right
    for folder in (trunk, tmp_path / "out"):
        tokenizer = load_trunk(folder).tokenizer
        assert tokenizer is not None and tokenizer(TEXT)["input_ids"] == right


def test_the_same_tokens_are_not_spoken_of(tmp_path: Path) -> None:
    assert exported(tmp_path, byte_tokenizer())[1] == []


def test_a_type_that_goes_by_the_file_is_not_spoken_of(tmp_path: Path) -> None:
    trunk = write(tiny_qwen3(), tmp_path / "trunk")
    merging_tokenizer().save_pretrained(trunk)
    report = export(trunk, adapter(tmp_path / "heads", trunk), tmp_path / "out", "mellum")
    assert not any("--tokenizer" in note for note in report.notes)
