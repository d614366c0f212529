"""Settings of a server, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.errors import UsageError
from foretell.types import Depth


@dataclass(frozen=True)
class Settings:
    """``name``: the model's, for clients. ``depth``: drafted tokens a step where a request says nothing, and
    ``fixed_depth`` where it asks for a fixed one, or has a seed, without saying how deep.

    ``max_waiting``: completions that may wait for a place in the batch; more are told to come again. ``timeout_s``: a
    request may take so long. ``api_key``: what clients have to send; None: nothing. ``max_body_bytes``: of a request.
    """

    name: str
    depth: Depth = 0
    fixed_depth: int = 0
    max_waiting: int = 256
    timeout_s: float = 600.0
    body_timeout_s: float = 20.0
    send_timeout_s: float = 60.0
    api_key: str | None = None
    max_body_bytes: int = 4 * 2**20

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("the model's name is empty; give some text")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable() and self.api_key):
            raise UsageError("the API key must be printable ASCII text, not empty")
