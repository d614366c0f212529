"""Connection: uvicorn's, but one on which no request runs ends after a while, whatever bytes come, and what is no HTTP
is answered as every other error is.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from foretell.serving.errors import APIError


class Connection(H11Protocol):
    """uvicorn limits the time from an answer to the next byte alone (``timeout_keep_alive``). Here a whole head has
    that time, from the connection's beginning or the first byte behind an answer on, and no byte gives it more.
    """

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, a body, or both."""
        super().data_received(data)
        if not self._is_idle:
            self._rest()
        elif self._patience is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._rest()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP; the connection ends."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is under way
            self.transport.close()
            return
        answer = APIError(400, "this is no HTTP/1.1 request that can be read", None, "invalid_http").response()
        headers = [*answer.raw_headers, (b"connection", b"close")]
        body = bytes(answer.body)
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._patience = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def _rest(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._patience = None
        if self._is_idle:
            self.transport.abort()
