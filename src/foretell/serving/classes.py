"""Request classes: a label by which acceptance is told apart; the client's own, or one that the request shows."""

from __future__ import annotations

import re

from foretell.serving.chat_request import ChatRequest
from foretell.serving.errors import APIError
from foretell.serving.fields import SamplingFields

HEADER = "x-request-class"
_LABEL = re.compile(r"[\w .:/+-]{1,64}")
_FENCE = re.compile(r"^```([a-z0-9+#-]{1,16})\s*$", re.MULTILINE | re.IGNORECASE)


def label_of(request: SamplingFields, header: str | None = None) -> str:
    """``metadata.class``, else the header, else a rule: tools, json, the language of a code fence, chat or text."""
    field, name = ("metadata", "metadata.class") if "class" in (request.metadata or {}) else (HEADER, HEADER)
    own = (request.metadata or {}).get("class", header)
    if own is not None:
        if not _LABEL.fullmatch(own):
            raise APIError(
                400,
                f"{name}: {own[:80]!r} is not allowed: give 1 to 64 letters, digits, spaces or _ . : / + -",
                field,
                "invalid_value",
            )
        return own
    if request.response_format is not None and request.response_format.type != "text":
        return "json"
    if not isinstance(request, ChatRequest):
        return "text"
    if request.tools and request.tool_choice != "none":
        return "tools"
    for message in reversed(request.messages):
        if fence := _FENCE.findall(message.rendered()["content"]):
            return f"code:{fence[-1].lower()}"
    return "chat"
