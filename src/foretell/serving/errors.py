"""Errors of the server, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from foretell.errors import ContextLengthError, ForetellError, SamplingError, UsageError

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_KINDS = ("str", "int", "float", "bool", "dict", "list", "tuple", "none", "body")
"""Parts of pydantic's locations that name a type, not a field."""


class APIError(Exception):
    """An answer that is no success. ``param``: the field that is wrong; ``code``: for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body, self.status, self.headers)


def as_api_error(error: BaseException, schema_param: str = "response_format") -> APIError:
    """What a client may know of ``error``; of a fault of our own no more than that there was one.

    ``schema_param``: the field that a JSON schema came from.
    """
    if isinstance(error, APIError):
        return error
    if isinstance(error, ContextLengthError):
        return APIError(400, str(error), "messages", "context_length_exceeded")
    if isinstance(error, SamplingError):
        field = schema_param if error.field == "json_schema" else _FIELDS.get(error.field, error.field)
        return APIError(400, f"{field}: {error.message}", field, "invalid_value")
    if isinstance(error, UsageError):
        return APIError(400, str(error), None, "invalid_value")
    return APIError(500, "the engine failed; see the server's log", None, "engine_error")


_FIELDS = {"json_object": "response_format", "prompt_logprobs": "logprobs"}
"""Sampling parameters that have another name in a request."""


def add_handlers(app: FastAPI) -> None:
    """Every error, also of the framework, leaves in this shape."""

    @app.exception_handler(APIError)
    async def _own(_: Request, error: APIError) -> JSONResponse:
        return error.response()

    @app.exception_handler(ForetellError)
    async def _refused(_: Request, error: ForetellError) -> JSONResponse:
        return as_api_error(error).response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return invalid(error.errors()).response()

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        messages = {
            404: f"there is nothing at {request.url.path[:200]}; see /openapi.json for what there is",
            405: f"{request.method[:20]} is not allowed here",
            400: "the body is no JSON that can be read",
        }
        message = messages.get(error.status_code, str(error.detail))
        headers = dict(error.headers) if error.headers else None
        return APIError(error.status_code, message, None, None, headers).response()

    @app.exception_handler(Exception)
    async def _fault(_: Request, error: Exception) -> JSONResponse:
        return as_api_error(error).response()


def invalid(errors: Any) -> APIError:
    """The first of pydantic's complaints."""
    field = _path(errors[0])
    # Of a value that fits none of several types, what is wrong with it where its type is right, and goes deepest.
    about = [error for error in errors if _path(error)[: len(field)] == field]
    first = max(about, key=lambda error: (not error["type"].endswith("_type"), len(error["loc"])))
    location = _path(first)
    if first["type"] == "refused":
        location.append(first["ctx"]["field"])
    if first["type"] == "extra_forbidden" and first["loc"][-1] not in location[-1:]:
        location.append(str(first["loc"][-1])[:80])
    param = ".".join(map(str, location)) or None
    if first["type"] == "json_invalid":
        return APIError(400, f"the body is no JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if first["type"] == "extra_forbidden":
        return APIError(400, f"{param}: unknown field; leave it out", param, "unknown_parameter")
    if first["type"] == "missing":
        what = f"{param} is missing" if param else "the body is missing; send JSON"
        return APIError(400, what, param, "missing_required_parameter")
    if isinstance(first.get("input"), bytes):
        return APIError(400, "the body is not marked as JSON; send Content-Type: application/json")
    if first["type"] == "refused":
        return APIError(400, f"{param}: {first['msg']}", param, "invalid_value")
    given = repr(first.get("input"))
    shown = given if len(given) <= 60 else given[:57] + "..."
    return APIError(400, f"{param or 'body'}: {shown} is not allowed: {first['msg']}", param, "invalid_value")


def _path(error: Any) -> list[Any]:
    return [part for part in error["loc"] if isinstance(part, int) or _is_field(part)]


def _is_field(part: str) -> bool:
    return part.isidentifier() and part not in _KINDS and part[:1].islower()
