"""Runs the server until it is told to stop."""

from __future__ import annotations

import contextlib
import math
import signal
import socket

import uvicorn
from fastapi import FastAPI

from foretell.errors import UsageError

BACKLOG = 4096
"""Connections that may wait to be taken on."""


def bind(host: str, port: int) -> socket.socket:
    """A socket with an address, not yet listening; port 0 takes a free one. Raises UsageError where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"--host {host} --port {port}: {reason}; choose another port, or 0 for any free one"
        ) from error
    return listener


def serve_app(app: FastAPI, listener: socket.socket, grace_s: float) -> None:
    """Answer requests until SIGTERM or SIGINT; those that run then have ``grace_s`` to end, and are cancelled after."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(grace_s),
        timeout_keep_alive=30,
        backlog=BACKLOG,
        lifespan="off",
    )
    # uvicorn raises the signal again when it is done; being told to stop is no failure here.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
