"""Errors of the server, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from foretell.errors import ContextLengthError, ForetellError, SamplingError, UsageError
from foretell.serving.complaints import complaint

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES = {400: "invalid_value", 404: "unknown_url", 405: "method_not_supported"}
"""For programs, where nothing closer is said."""


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
        self.code = _CODES.get(status) if code is None else code
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
        if error.field == "json_schema" and _IS_EMPTY in error.message:
            message = f"{schema_param}: no text fits this schema; does it refer to itself without an end? Correct it"
            return APIError(400, message, schema_param, "invalid_value")
        field = schema_param if error.field == "json_schema" else _FIELDS.get(error.field, error.field)
        return APIError(400, f"{field}: {error.message}", field, "invalid_value")
    if isinstance(error, UsageError):
        return APIError(400, str(error), None, "invalid_value")
    return APIError(500, "the engine failed; see the server's log", None, "engine_error")


_FIELDS = {"json_object": "response_format", "prompt_logprobs": "logprobs"}
"""Sampling parameters that have another name in a request."""
_IS_EMPTY = "left the grammar at token ids []"
"""What is said of a grammar that allows no token at all."""


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
        return APIError(400, *complaint(error.errors())).response()

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers) if error.headers else {}
        return APIError(error.status_code, *_of_http(request, error, headers.get("Allow")), headers).response()

    @app.exception_handler(Exception)
    async def _fault(_: Request, error: Exception) -> JSONResponse:
        return as_api_error(error).response()


def _of_http(request: Request, error: HTTPException, allowed: str | None) -> tuple[str, None, str | None]:
    """Message, field and code of an error of the framework."""
    path = request.url.path[:200]
    if error.status_code == 404:
        slash = "addresses have no slash at their end; " if path.endswith("/") else ""
        return f"there is nothing at {path}; {slash}see /openapi.json for what there is", None, None
    if error.status_code == 405:
        return f"{request.method[:20]} is not allowed at {path}; send {allowed or 'another method'}", None, None
    if error.status_code == 400:
        return "the body is no JSON that can be read; send JSON in UTF-8", None, "invalid_json"
    return str(error.detail), None, None
