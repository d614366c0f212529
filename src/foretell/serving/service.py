"""Service: one engine in front of many clients: admission, failure, and what is known of both."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property

from foretell.decoding.engine import Engine
from foretell.errors import ContextLengthError, ForetellError, UsageError
from foretell.sampling_params import SamplingParams
from foretell.serving.class_counts import ClassCounts
from foretell.serving.errors import APIError, as_api_error
from foretell.serving.metrics import Metrics
from foretell.serving.running import Indexed, Queue, merged
from foretell.serving.settings import Settings
from foretell.serving.token_bytes import TokenBytes
from foretell.types import Depth

_log = logging.getLogger("foretell.serving")
_MOST_FAULTS = 3
"""So many requests in a row that cannot be computed are the model's fault, not theirs."""
_STUCK_S = 120.0
"""A step that takes longer is taken for one that will never end."""


@dataclass(frozen=True)
class Ask:
    """What the engine is asked: prompts as token ids, each with ``params.n`` completions. ``schema_param``: the field
    that a JSON schema came from.
    """

    prompts: list[list[int]]
    params: SamplingParams
    depth: Depth
    label: str
    schema_param: str = "response_format"

    @property
    def num_rows(self) -> int:
        """Completions."""
        return len(self.prompts) * self.params.n


class Service:
    """``failure``: why the engine cannot be trusted any more; None while all is well. It stays: restart the server."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.created = int(time.time())
        self.failure: BaseException | None = None
        self.num_rows = 0
        self.metrics = Metrics(engine, settings.name, lambda: self.num_waiting)
        self.classes = ClassCounts(engine, settings.name, self.metrics.label)
        self.metrics.registry.register(self.classes)
        self._queues: set[Queue] = set()
        self._is_stopping = False
        self._num_faults = 0  # in a row
        self._last_step = time.monotonic()
        engine.watch(lambda works, times: self._stepped())

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """Bytes of the tokenizer's tokens; made on first use, which takes up to a second."""
        return TokenBytes(self.engine.model.trunk.tokenizer, self.engine.model.trunk.vocab_size)

    @property
    def capacity(self) -> int:
        """Completions that may run and wait."""
        return self.engine.max_batch + self.settings.max_waiting

    @property
    def num_waiting(self) -> int:
        """Completions that were admitted and have no place in the batch, those too that the engine has not seen yet: it
        looks for new ones between its steps.
        """
        return max(0, self.num_rows - self.engine.num_running)

    @property
    def trouble(self) -> str | None:
        """Why no request should be sent here, in a few words; None where all is well."""
        if self.failure is not None:
            return "the engine failed; restart the server"
        if self.num_rows and time.monotonic() - self._last_step > _STUCK_S:
            return f"the engine has made no step for {_STUCK_S:g} s"
        return None

    def admit(self, num_rows: int) -> None:
        """Raise APIError where so many completions can never, or not now, be taken on."""
        if self._is_stopping:
            raise _stopping()
        if self.failure is not None:
            raise APIError(503, "the engine failed; the server needs a restart", None, "engine_error")
        if num_rows > self.capacity:
            message = (
                f"{num_rows} completions in one request, and this server takes at most {self.capacity}; ask for fewer"
            )
            raise APIError(400, message, "n", "invalid_value")
        if self.num_rows + num_rows > self.capacity:
            wait_s = max(1, math.ceil(self.metrics.mean_seconds * self.num_rows / self.engine.max_batch / 2))
            message = f"the queue is full (completions here: {self.num_rows}); come again in {wait_s} s"
            raise APIError(429, message, None, "queue_full", {"Retry-After": str(wait_s)})

    async def run(self, ask: Ask, since: float) -> AsyncIterator[Indexed]:
        """Chunks of all completions of a request that came at ``since`` (``time.perf_counter``).

        Raises APIError, before the first chunk where the request is at fault.
        """
        self.admit(ask.num_rows)
        self.num_rows += ask.num_rows
        if self.num_rows == ask.num_rows:
            self._last_step = time.monotonic()
        num_left = ask.num_rows
        queue: Queue = asyncio.Queue()
        self._queues.add(queue)

        def on_end() -> None:
            nonlocal num_left
            num_left -= 1
            self.num_rows -= 1

        try:
            streams = await asyncio.to_thread(
                lambda: [
                    stream
                    for prompt in ask.prompts
                    for stream in self.engine.streams(prompt, ask.params, ask.depth, label=ask.label)
                ]
            )
            with self.metrics.request(ask.label, since, sum(map(len, ask.prompts)), ask.num_rows) as seen:
                chunks = merged(streams, queue, self.settings.timeout_s, seen, on_end)
                async with aclosing(chunks):  # type: ignore[type-var]
                    async for item in chunks:
                        yield item
            self._num_faults = 0
        except (APIError, UsageError, ContextLengthError) as error:
            raise as_api_error(error, ask.schema_param) from error
        except ForetellError as error:  # of one row: its states were no numbers, and others go on
            self._num_faults += 1
            self.failure = error if self._num_faults >= _MOST_FAULTS else self.failure
            _log.exception("a request failed")
            raise as_api_error(error) from error
        except Exception as error:
            self.failure = error
            _log.exception("the engine failed")
            raise as_api_error(error) from error
        finally:
            self.num_rows -= num_left
            self._queues.discard(queue)

    def close(self) -> None:
        """The server stops, and has waited long enough: requests that still run end with an error."""
        self._is_stopping = True
        for queue in self._queues:
            queue.put_nowait(_stopping())

    def _stepped(self) -> None:
        self._last_step = time.monotonic()


def _stopping() -> APIError:
    return APIError(503, "the server is stopping; send the request again", None, "server_stopping")
