"""The OpenAPI document: what every address may answer, errors included."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """What is wrong: for people, of which kind, in which field, and for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorDetail


def _errors(**texts: str) -> dict[int | str, dict[str, Any]]:
    return {int(code[1:]): {"model": ErrorBody, "description": text} for code, text in texts.items()}


ANYWHERE = _errors(
    _401="No valid API key, where the server wants one.",
    _405="This method is not allowed here.",
    _500="A fault of the server.",
)
WITH_BODY = _errors(_400="A request that cannot be met; param names the field.", _408="The body came too slowly.")
WITH_MODEL = _errors(_404="No model of that name.")
ANSWERS = (
    WITH_BODY
    | WITH_MODEL
    | _errors(
        _429="The queue is full; Retry-After says when to come again.",
        _503="The engine failed; the server needs a restart.",
        _504="The answer took too long.",
    )
)
TROUBLE: dict[int | str, dict[str, Any]] = {503: {"description": "The engine failed, or makes no step."}}


def describe(app: FastAPI) -> None:
    """Make the document without FastAPI's own 422, which this server answers with 400."""

    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for methods in found["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        found.get("components", {}).get("schemas", {}).pop(name, None)
    app.openapi = lambda: found  # type: ignore[method-assign]
