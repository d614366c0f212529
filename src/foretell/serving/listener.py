"""The socket of a server. Nothing heavy is imported here: a port that is taken is told at once."""

from __future__ import annotations

import socket

from foretell.errors import UsageError

BACKLOG = 4096
"""Connections that may wait to be taken on."""


def bind(host: str, port: int, unread_s: float = 90.0) -> socket.socket:
    """A socket with an address, not yet listening; port 0 takes a free one. Raises UsageError where it is taken.

    Its connections end when their clients have read nothing of what waits for them for ``unread_s`` (on Linux).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(unread_s * 1000))
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise _taken(host, port, error) from error
    return listener


def listen(listener: socket.socket) -> None:
    """Take connections from now on. Raises UsageError where another server, bound meanwhile, was faster."""
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _taken(host, port, error) from error


def _taken(host: str, port: int, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or f"{port} is no port, which has 0 to 65535"
    return UsageError(f"--host {host} --port {port}: {reason}; choose another port, or 0 for any free one")
