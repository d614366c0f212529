from __future__ import annotations

from foretell.cli.origins import marked, pieces
from tests.fixtures import byte_tokenizer, encode


def test_pieces_join_to_the_text_and_keep_characters_whole() -> None:
    ids = encode("hi😀!<eos>")
    origins = ["recovered", "accepted", "accepted", "recovered", "accepted", "accepted", "bonus", "recovered"]
    parts = pieces(byte_tokenizer(), ids, origins)  # type: ignore[arg-type]
    assert parts == [("h", False), ("i😀", True), ("!", False)]
    assert marked(parts, colour=False).plain == "h‹i😀›!"
    assert marked(parts, colour=True).plain == "hi😀!"
