"""Worker: a thread that runs an engine's steps while requests are streamed, so that no event loop computes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

from foretell.decoding.core import EngineCore
from foretell.decoding.sequence import Sequence
from foretell.decoding.text_stream import TextStream
from foretell.types import Completion, FinishReason


@dataclass
class Chunk:
    """What one step brought to a request: tokens, and the text that is certain by now.

    The last chunk has ``finish_reason`` and ``completion``; joined, the texts are the completion's.
    """

    token_ids: list[int]
    text: str
    finish_reason: FinishReason | None = None
    completion: Completion | None = None


class Worker:
    """Runs steps as long as rows wait or run, then sleeps. ``lock`` is held during a step; ``generate`` shares it."""

    def __init__(self, core: EngineCore, lock: threading.Lock) -> None:
        self._core = core
        self._lock = lock
        self._work = threading.Event()
        self._thread: threading.Thread | None = None
        self._listeners: dict[Sequence, _Listener] = {}

    async def stream(self, row: Sequence) -> AsyncIterator[Chunk]:
        """Chunks of ``row`` until it ends. Leaving early aborts it; an error in a step is raised here."""
        listener = _Listener(row, asyncio.get_running_loop())
        row.on_step = listener.on_step
        try:
            await asyncio.to_thread(self._add, row, listener)
            while True:
                chunk = await listener.queue.get()
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            if row.finish_reason is None:
                await asyncio.shield(asyncio.to_thread(self._abort, row))
            self._listeners.pop(row, None)

    def _add(self, row: Sequence, listener: _Listener) -> None:
        with self._lock:
            if row.finish_reason is not None:  # cancelled meanwhile
                return
            self._core.add(row)
            self._listeners[row] = listener
            if (
                self._thread is None or not self._thread.is_alive()
            ):  # with the lock held: streams are added from several threads
                self._thread = threading.Thread(target=self._run, name="foretell-engine", daemon=True)
                self._thread.start()
        self._work.set()

    def _abort(self, row: Sequence) -> None:
        with self._lock:
            self._core.abort(row)

    def _run(self) -> None:
        while True:
            self._work.wait()
            try:
                with self._lock:
                    if self._core.is_idle:
                        self._work.clear()
                    else:
                        self._core.advance()
            except BaseException as error:  # whoever waits must hear of it, and the next one finds a thread
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            listeners, self._listeners = self._listeners, {}
            for row, listener in list(listeners.items()):
                row.on_step = None
                self._core.abort(row)
                listener.put(error)


class _Listener:
    """Carries chunks from the engine's thread to the event loop of whoever reads them."""

    def __init__(self, row: Sequence, loop: asyncio.AbstractEventLoop) -> None:
        self.queue: asyncio.Queue[Chunk | BaseException] = asyncio.Queue()
        self._loop = loop
        self._text = TextStream(row)
        self._num_sent = 0

    def on_step(self, row: Sequence) -> None:
        if row.error is not None:
            self.put(row.error)
            return
        token_ids = row.token_ids[self._num_sent :]
        self._num_sent = len(row.token_ids)
        try:
            done = row.completion() if row.finish_reason is not None else None
            self.put(Chunk(token_ids, self._text.take(), row.finish_reason, done))
        except Exception as error:  # the tokenizer's; other rows are told of the same step
            self.put(error)

    def put(self, item: Chunk | BaseException) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody listens
            self._loop.call_soon_threadsafe(self.queue.put_nowait, item)
