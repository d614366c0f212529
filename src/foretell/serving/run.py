"""Runs the server until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import resource
import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from foretell.serving.connection import Connection
from foretell.serving.listener import BACKLOG

_LAST_WORDS_S = 3
"""Time for telling clients that the server stops."""


class _Server(uvicorn.Server):
    """Calls ``on_late`` where requests have not ended ``grace_s`` after the server was told to stop."""

    def __init__(self, config: uvicorn.Config, grace_s: float, on_late: Callable[[], None]) -> None:
        super().__init__(config)
        self._grace_s = grace_s
        self._on_late = on_late

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._grace_s, self._on_late)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def config_of(app: FastAPI, grace_s: float, idle_s: int = 30) -> uvicorn.Config:
    """How ``app`` is served; a connection on which no whole head of a request comes for ``idle_s`` ends."""
    return uvicorn.Config(
        app,
        http=Connection,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(grace_s) + _LAST_WORDS_S,
        timeout_keep_alive=idle_s,
        backlog=BACKLOG,
        lifespan="off",
    )


def serve_app(app: FastAPI, listener: socket.socket, grace_s: float, on_late: Callable[[], None]) -> None:
    """Answer requests until SIGTERM or SIGINT; those that run then have ``grace_s`` to end. Then ``on_late`` is called,
    to end them with an error, and soon after what is left is cancelled.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a connection is a file, and 1,024 are soon used up
    server = _Server(config_of(app, grace_s), grace_s, on_late)
    # Before uvicorn listens for it, and when uvicorn raises it again at the end: being told to stop is no failure.
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
