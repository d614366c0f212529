"""Guards before the app: the API key, and bodies that are too long or come too slowly. Plain ASGI, so that nothing is
read twice and a client that leaves is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foretell.serving.errors import APIError
from foretell.serving.settings import Settings

_DRAINED = 16
"""A body so many times too long is still read to its end, and thrown away: who is still sending hears no answer."""
_MOST_BODIES = 16
"""Bodies of the longest kind that are held at a time; together, those of all requests have no more bytes."""
_OPEN_PATHS = ("/health", "/ready", "/")
"""What orchestrators and the page's visitors need before they have a key; /metrics needs one."""


class KeyGuard:
    """401 without the right ``Authorization: Bearer KEY``, compared in constant time."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._expected = settings.api_key.encode() if settings.api_key is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and self._expected is not None and scope["path"] not in _OPEN_PATHS:
            scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
            if not hmac.compare_digest(given.strip(), self._expected) or scheme.lower() != b"bearer":
                headers = {"WWW-Authenticate": "Bearer"}
                error = APIError(
                    401, "no valid API key; send Authorization: Bearer KEY", None, "invalid_api_key", headers
                )
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyGuard:
    """400 for a body that is too long, 408 for one that takes too long; the whole body is there before the app runs.

    Who does not read an answer loses it after ``send_timeout_s``. 503 where all bodies together are too long.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._num_held = 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        try:
            await self._serve(body, scope, receive, send)
        finally:
            self._num_held -= len(body)

    async def _serve(self, body: bytearray, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                is_whole = await self._read(body, receive)
        except TimeoutError:
            message = f"the body took more than {self._settings.body_timeout_s:g} s"
            await APIError(408, message, None, "timeout").response()(scope, receive, send)
            return
        except APIError as error:
            await error.response()(scope, receive, send)
            return
        if not is_whole:  # the client has gone
            return
        given = False

        async def patient_send(message: Message) -> None:
            async with asyncio.timeout(self._settings.send_timeout_s):
                await send(message)

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        with contextlib.suppress(TimeoutError):  # no more is sent
            await self._app(scope, replay, patient_send)

    async def _read(self, body: bytearray, receive: Receive) -> bool:
        most, num_bytes = self._settings.max_body_bytes, 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return False
            part = message.get("body", b"")
            num_bytes += len(part)
            if num_bytes <= most:
                body += part
                self._num_held += len(part)
            if self._num_held > _MOST_BODIES * most:
                text = "the requests that are here have too long bodies together; come again later"
                raise APIError(503, text, None, "bodies_too_large", {"Connection": "close", "Retry-After": "1"})
            more = message.get("more_body", False)
            if num_bytes > most and (not more or num_bytes > _DRAINED * most):
                text = f"the body has more than {most:,} bytes; send less"
                raise APIError(400, text, None, "body_too_large", {"Connection": "close"})
            if not more:
                return True
