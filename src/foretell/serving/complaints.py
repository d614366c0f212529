"""What is wrong with a request's body, in words of our own: the field, the value, and what to give instead."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_KINDS = ("str", "int", "float", "bool", "dict", "list", "tuple", "none", "body")
"""Parts of pydantic's locations that name a type, not a field."""

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""Complaints that a value is of another type, and what it should be."""

_BOUNDS = {
    "greater_than": "a number above {gt:,}",
    "greater_than_equal": "a number that is at least {ge:,}",
    "less_than": "a number below {lt:,}",
    "less_than_equal": "a number that is at most {le:,}",
    "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length:,} characters",
    "too_short": "at least {min_length:,} of them",
    "too_long": "at most {max_length:,} of them",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_unicode": "text without half of a surrogate pair",
}
"""Complaints about a value of the right type; the names in braces are pydantic's."""


class Complaint(NamedTuple):
    """A message for people, the field that is wrong, and a code for programs."""

    message: str
    param: str | None
    code: str


def complaint(errors: Any) -> Complaint:
    """The first of pydantic's ``errors``."""
    field = _path(errors[0])
    # Of a value that fits none of several types, what is wrong with it where its type is right, and goes deepest.
    about = [error for error in errors if _path(error)[: len(field)] == field]
    first = max(about, key=lambda error: (not _is_of_type(error), len(error["loc"]), _index(error)))
    location = _path(first)
    kind = first["type"]
    if kind == "refused":
        location.append(first["ctx"]["field"])
    if kind == "extra_forbidden" and first["loc"][-1] not in location[-1:]:
        location.append(str(first["loc"][-1])[:80])
    param = ".".join(map(str, location)) or None
    if kind == "json_invalid":
        why = f"{first.get('ctx', {}).get('error', first['msg'])}, at character {first['loc'][-1]}"
        return Complaint(f"the body is no JSON: {why}", None, "invalid_json")
    if kind == "extra_forbidden":
        return Complaint(f"{param}: unknown field; leave it out", param, "unknown_parameter")
    if kind == "missing":
        what = f"{param} is missing; it is needed" if param else "the body is missing; send JSON"
        return Complaint(what, param, "missing_required_parameter")
    if isinstance(first.get("input"), bytes):
        message = "the body is not marked as JSON; send Content-Type: application/json"
        return Complaint(message, None, "invalid_content_type")
    if kind == "refused":
        return Complaint(f"{param}: {first['msg']}", param, "invalid_value")
    same = [error for error in about if _path(error) == _path(first)]
    where = f"{param}: " if param else "the body: "
    return Complaint(
        f"{where}{_shown(first.get('input'))} is not allowed; {_advice(first, same)}", param, "invalid_value"
    )


def _advice(first: Any, same: list[Any]) -> str:
    """What to give instead; where several types would do, all of them (``same``: what else is said of the value)."""
    if _is_of_type(first) or first["type"] == "literal_error":
        kinds = [_wanted(error) for error in same if _is_of_type(error) or error["type"] == "literal_error"]
        return f"give {' or '.join(dict.fromkeys(kinds))}"
    return f"give {_wanted(first)}"


def _wanted(error: Any) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == "literal_error":
        return str(context["expected"]).replace("'", '"').replace("False", "false").replace("True", "true")
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**{name: _plain(value) for name, value in context.items()})
    return "what /openapi.json has for it"


def _plain(value: Any) -> Any:
    """2 for 2.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_of_type(error: Any) -> bool:
    return error["type"] in _TYPES


def _index(error: Any) -> int:
    """A list is looked at up to its first fault: the further that lies, the better the type fits."""
    return max((part for part in error["loc"] if isinstance(part, int)), default=-1)


def _shown(value: Any) -> str:
    """As JSON, which is what the client wrote."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        return "the value"
    text = text if len(text) <= 60 else text[:57] + "..."
    return text.encode("utf-8", "backslashreplace").decode()


def _path(error: Any) -> list[Any]:
    return [part for part in error["loc"] if isinstance(part, int) or _is_field(part)]


def _is_field(part: str) -> bool:
    return part.isidentifier() and part not in _KINDS and part[:1].islower()
