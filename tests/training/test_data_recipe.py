"""What [data] and [tokenizer] of a recipe may say; a refusal names the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.errors import UsageError
from foretell.training.recipe_file import load_recipe

FILES = 'files = ["a.jsonl"]'


def write(tmp_path: Path, data: str, rest: str = "", top: str = 'trunk = "t"') -> Path:
    path = tmp_path / "r.toml"
    path.write_text(f'output = "o"\n{top}\n[data]\n{data}\n{rest}\n')
    return path


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("held_out = 0.1", r"\[data\] files is \(\); allowed: at least one data file"),
        (f'{FILES}\nstorage = "disk"', r":5: \[data\] storage is 'disk'; allowed: .*'memory'|\"memory\""),
        (f'{FILES}\nstorage = "streaming"', r":5: \[data\] storage is 'streaming'; .*max_steps says when to stop"),
        (f"{FILES}\nshuffle_buffer = 9", r":5: \[data\] shuffle_buffer is 9; allowed: 0, unless storage"),
        (f'{FILES}\ntext_field = ""', r":5: \[data\] text_field is ''"),
        (f'{FILES}\nheld_out = 0.1\nheld_out_files = ["b.jsonl"]', r":5: \[data\] held_out or held_out_files"),
        (f'{FILES}\ndraft_vocab_size = "all"', r":5: \[data\] draft_vocab_size is 'all'"),
        (f"{FILES}\ndraft_vocab_size = -1", r":5: \[data\] draft_vocab_size is -1; allowed: 0 or more"),
        (f"{FILES}\nappend_eos = 1", r":5: \[data\] append_eos is 1"),
    ],
)
def test_wrong_data_settings(tmp_path: Path, data: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load_recipe(write(tmp_path, data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ("vocab_size = 100", r":6: \[tokenizer\] vocab_size is 100; allowed: 260"),
        ('kind = "bytes"\nvocab_size = 300', r':7: \[tokenizer\] vocab_size goes with kind = "bpe"'),
        ('kind = "folder"', r"\[tokenizer\] folder is ''; allowed: a model folder"),
        ('folder = "t"', r":6: \[tokenizer\] folder is 't'; allowed: a model folder, with kind"),
        ('kind = "folder"\nfolder = "t"\nchat = true', r":8: \[tokenizer\] chat is True; allowed: false"),
    ],
)
def test_wrong_tokenizer_settings(tmp_path: Path, tokenizer: str, message: str) -> None:
    rest = f'[tokenizer]\n{tokenizer}\n[model]\npreset = "1m"\n[train]\ntrunk = "joint"'
    with pytest.raises(UsageError, match=message):
        load_recipe(write(tmp_path, FILES, rest, top=""))


def test_what_is_allowed(tmp_path: Path) -> None:
    data = f'{FILES}\nstorage = "streaming"\nshuffle_buffer = 9\nheld_out_files = ["b.txt"]\nappend_eos = true'
    read = load_recipe(write(tmp_path, data, "[train]\nmax_steps = 3")).data
    assert (read.storage, read.shuffle_buffer, read.held_out_files, read.append_eos) == (
        "streaming",
        9,
        ("b.txt",),
        True,
    )
