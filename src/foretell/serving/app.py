"""The app: which address answers what. The event loop computes nothing: text is encoded in threads, tokens are made in
the engine's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.routing import APIRoute

from foretell.serving.answer import Answer
from foretell.serving.chat_answer import chat_answer
from foretell.serving.chat_request import ChatRequest
from foretell.serving.classes import label_of
from foretell.serving.errors import APIError, add_handlers
from foretell.serving.fields import SamplingFields
from foretell.serving.guards import BodyGuard, KeyGuard
from foretell.serving.openapi import ANSWERS, ANYWHERE, TROUBLE, WITH_BODY, WITH_MODEL, describe
from foretell.serving.page_answer import page_answer
from foretell.serving.service import Service
from foretell.serving.status import status_of
from foretell.serving.text_answer import text_answer
from foretell.serving.text_request import TextRequest
from foretell.serving.tokenising import DetokeniseRequest, TokeniseRequest, detokenised, tokenised
from foretell.serving.until_gone import until_gone

ClassHeader = Annotated[str | None, Header(alias="X-Request-Class")]


def make_app(service: Service) -> FastAPI:
    """An ASGI app over ``service``."""
    app = FastAPI(
        title="Foretell",
        description="Several tokens a step; the same text.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a client that posts would follow with half a request
        responses=ANYWHERE,
    )
    tokenising = asyncio.Semaphore(2)  # long texts take seconds, and requests for answers need threads too
    add_handlers(app)
    app.add_middleware(BodyGuard, settings=service.settings)
    app.add_middleware(KeyGuard, settings=service.settings)

    @app.post("/v1/chat/completions", responses=ANSWERS)
    async def _chat(body: ChatRequest, request: Request, request_class: ClassHeader = None) -> Response:
        return await _answered(service, chat_answer, body, request, request_class)

    @app.post("/v1/completions", responses=ANSWERS)
    async def _completions(body: TextRequest, request: Request, request_class: ClassHeader = None) -> Response:
        return await _answered(service, text_answer, body, request, request_class)

    @app.get("/v1/models")
    async def _models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(service)]}

    @app.get("/v1/models/{name:path}", responses=WITH_MODEL)
    async def _one_model(name: str) -> dict[str, Any]:
        _check_name(service, name)
        return _model(service)

    @app.post("/v1/tokenize", responses=WITH_BODY | WITH_MODEL)
    async def _tokenize(body: TokeniseRequest) -> dict[str, Any]:
        _check_name(service, body.model)
        async with tokenising:
            return await asyncio.to_thread(tokenised, service, body)

    @app.post("/v1/detokenize", responses=WITH_BODY | WITH_MODEL)
    async def _detokenize(body: DetokeniseRequest) -> dict[str, Any]:
        _check_name(service, body.model)
        async with tokenising:
            return await asyncio.to_thread(detokenised, service, body)

    @app.get("/v1/status")
    async def _status() -> dict[str, Any]:
        return status_of(service)

    @app.get("/health", responses=TROUBLE)
    @app.get("/ready", responses=TROUBLE)
    async def _health() -> JSONResponse:
        trouble = service.trouble
        return JSONResponse({"status": trouble or "ok"}, 200 if trouble is None else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def _metrics() -> PlainTextResponse:
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def _page() -> HTMLResponse:
        return page_answer()

    describe(app)
    for route in app.routes:
        if isinstance(route, APIRoute) and route.path in ("/health", "/ready"):
            # As load balancers ask; behind ``describe``, for which it would be a second operation.
            route.methods = {*(route.methods or ()), "HEAD"}
    return app


async def _answered(
    service: Service,
    make: Callable[[Service, Any, str], Answer],
    body: SamplingFields,
    request: Request,
    header: str | None,
) -> Response:
    _check_name(service, body.model)
    since = time.perf_counter()
    service.admit(body.n)
    answer = await asyncio.to_thread(lambda: make(service, body, label_of(body, header)))
    answer.since = since
    service.admit(answer.ask.num_rows)
    if body.stream:
        events = answer.events()
        first = await until_gone(request, _first(events))  # what goes wrong before it has a status of its own
        return StreamingResponse(
            _with_first(first, events), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
    whole: Coroutine[Any, Any, dict[str, Any]] = answer.whole()
    return await asyncio.to_thread(JSONResponse, await until_gone(request, whole))  # it may have megabytes


async def _first(events: AsyncGenerator[str, None]) -> str:
    return await anext(events)


async def _with_first(first: str, events: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event


def _check_name(service: Service, name: str | None) -> None:
    if name is not None and name != service.settings.name:
        raise APIError(
            404, f"there is no model {name[:200]!r} here; it is {service.settings.name!r}", "model", "model_not_found"
        )


def _model(service: Service) -> dict[str, Any]:
    return {
        "id": service.settings.name,
        "object": "model",
        "created": service.created,
        "owned_by": "foretell",
        "max_model_len": service.engine.max_length,
    }
