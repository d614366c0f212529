"""tokenizer_note: transformers may read a folder's text with another tokenizer than its files hold."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from foretell.checkpoints.tokenizer import read_tokenizer

_PROBE = "def f(x):\n    return 12 + x[34]\n\n\nIt's 1,234.5 - na\u00efve \u4e16\u754c,\tI'LL  be\r\n there.  \n"


def tokenizer_note(folder: Path) -> str | None:
    """What to tell where transformers splits text otherwise than ``folder``'s tokenizer.json says; None where alike.

    For model type qwen2 it takes Qwen2's class, whatever the files say, and engines load tokenizers through it.
    """
    if not (folder / "tokenizer.json").is_file():
        return None
    theirs = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if theirs(_PROBE)["input_ids"] == read_tokenizer(folder)(_PROBE)["input_ids"]:
        return None
    return (
        f"transformers, and engines with it, read this folder's text with {type(theirs).__name__}, for its model "
        "type, and its tokens are not those of tokenizer.json: give them token ids; Foretell goes by the file"
    )
