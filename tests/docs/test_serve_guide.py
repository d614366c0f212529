"""The table of fields in the guide for serving: every field of OpenAI's and of ours is in it, and it says the truth."""

from __future__ import annotations

import re
from typing import Any, get_type_hints

import pytest
from openai.types import completion_create_params as text_params
from openai.types.chat import completion_create_params as chat_params
from pydantic import ValidationError

from foretell.serving.chat_request import ChatRequest
from foretell.serving.complaints import complaint
from foretell.serving.text_request import TextRequest
from tests.docs.conftest import ROOT

KINDS: dict[str, Any] = {
    "chat": (ChatRequest, chat_params, {"messages": [{"role": "user", "content": "x"}]}),
    "text": (TextRequest, text_params, {"prompt": "x"}),
}
CASES = [(kind, place) for place, kind in enumerate(KINDS)]


def rows() -> list[tuple[str, list[str]]]:
    """(field, what is said of it for chat and for text)."""
    table = (ROOT / "docs" / "guides" / "serve.md").read_text(encoding="utf-8").partition("## Every field")[2]
    cells = [line.strip("|").split("|") for line in table.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return [(field, [c.strip() for c in row[1:3]]) for row in cells for field in re.findall(r"`(\w+)`", row[0])]


@pytest.mark.parametrize(("kind", "place"), CASES)
def test_every_field_is_in_the_table(kind: str, place: int) -> None:
    request, theirs, _ = KINDS[kind]
    known = set(get_type_hints(theirs.CompletionCreateParamsBase)) | {"stream"} | set(request.model_fields)
    told = [field for field, said in rows() if said[place]]
    assert len(told) == len(set(told)) and set(told) == known


@pytest.mark.parametrize(("kind", "place"), CASES)
def test_what_the_table_says_is_so(kind: str, place: int) -> None:
    request, _, least = KINDS[kind]
    for field, said in rows():
        taken = field in request.model_fields
        assert said[place] in (("works", "idle") if taken else ("refused", "")), field
        if said[place] == "refused":
            with pytest.raises(ValidationError) as caught:
                request.model_validate({**least, field: {"any": "value"}})
            assert complaint(caught.value.errors()).param == field
        elif taken and field not in least:
            request.model_validate({**least, field: None})


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("chat", "store", True),
        ("chat", "service_tier", "flex"),
        ("chat", "modalities", ["audio"]),
        ("text", "suffix", "x"),
        ("text", "best_of", 3),
    ],
)
def test_idle_fields_take_no_value_that_asks_for_something(kind: str, field: str, value: Any) -> None:
    request, _, least = KINDS[kind]
    with pytest.raises(ValidationError):
        request.model_validate({**least, field: value})
