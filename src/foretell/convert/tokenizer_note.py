"""tokenizer_note: a folder of another model type may have its text read by another tokenizer than its files hold."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

_PROBE = "def f(x):\n    return 12 + x[34]\n\n\nIt's 1,234.5 - na\u00efve \u4e16\u754c,\tI'LL  be\r\n there.  \n"


def tokenizer_note(source: Path, folder: Path) -> str | None:
    """What to tell where transformers splits text otherwise for ``folder`` than for ``source``; None where alike.

    For some model types (qwen2 among them) transformers takes a class of its own, whatever tokenizer.json says, and
    engines load tokenizers through transformers.
    """
    if not (folder / "tokenizer.json").is_file():
        return None
    before, after = (
        AutoTokenizer.from_pretrained(each, trust_remote_code=False, local_files_only=True) for each in (source, folder)
    )
    if before(_PROBE)["input_ids"] == after(_PROBE)["input_ids"]:
        return None
    return (
        f"transformers, and engines with it, read this folder's text with {type(after).__name__}, for its model "
        f"type, and its tokens are not those of tokenizer.json: give engines the source's tokenizer (vLLM: --tokenizer "
        f"{source}, SGLang: --tokenizer-path); Foretell goes by the file"
    )
