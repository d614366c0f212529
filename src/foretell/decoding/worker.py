"""Worker: a thread that runs an engine's steps while requests are streamed, so that no event loop computes."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from foretell.decoding.core import EngineCore
from foretell.decoding.sequence import Sequence
from foretell.decoding.text_stream import TextStream
from foretell.types import Completion, FinishReason, Origin, TokenLogprob

_LAST_STEP_S = 30.0
"""How long the end of the program waits for the step that runs."""
_IDLE_S = 10.0
"""A thread with nothing to do ends, so that an engine that nobody holds any more gives its memory back."""


@dataclass
class Chunk:
    """What one step brought to a request: tokens, who guessed them, and the text that is certain by now.

    ``logprobs`` has an entry a token where those were asked for, ``prompt_logprobs`` comes with the first chunk. The
    last one has ``finish_reason`` and ``completion``; joined, the texts are the completion's.
    """

    token_ids: list[int]
    text: str
    finish_reason: FinishReason | None = None
    completion: Completion | None = None
    origins: list[Origin] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None


class Worker:
    """Runs steps as long as rows wait or run, then sleeps. ``lock`` is held during a step; ``generate`` shares it.

    Rows come and go through an inbox that is emptied between steps, so no event loop ever waits for the lock: a thread
    that gives it back and takes it again hardly lets another one in.
    """

    def __init__(self, core: EngineCore, lock: threading.Lock) -> None:
        self._core = core
        self._lock = lock
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_stopping = False
        _workers.add(self)
        self._listeners: dict[Sequence, _Listener] = {}

    async def stream(self, row: Sequence) -> AsyncIterator[Chunk]:
        """Chunks of ``row`` until it ends. Leaving early aborts it; an error in a step is raised here."""
        listener = _Listener(row, asyncio.get_running_loop())
        row.on_step = listener.on_step
        self._send(lambda: self._add(row, listener))
        try:
            while True:
                chunk = await listener.queue.get()
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            self._send(lambda: self._leave(row))

    def _send(self, command: Callable[[], None]) -> None:
        self._inbox.put(command)
        with self._starting:  # streams are added from several threads
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="foretell-engine", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """The program ends. A thread that computes while the interpreter goes down takes the whole process with it."""
        self._is_stopping = True
        self._inbox.put(lambda: None)
        if (thread := self._thread) is not None:
            thread.join(_LAST_STEP_S)

    def _add(self, row: Sequence, listener: _Listener) -> None:
        try:
            self._core.add(row)
        except Exception as error:
            listener.put(error)
        else:
            self._listeners[row] = listener

    def _leave(self, row: Sequence) -> None:
        self._listeners.pop(row, None)
        row.on_step = None
        self._core.abort(row)  # nothing happens where it has ended

    def _run(self) -> None:
        while not self._is_stopping:
            # Rows of ``generate`` may be in the core too; whoever has the lock takes them on.
            try:
                commands = [self._inbox.get(timeout=_IDLE_S)] if self._core.is_idle else []
            except Empty:
                with self._starting:
                    if self._inbox.empty():
                        self._thread = None
                        return
                continue
            try:
                with self._lock:
                    while commands or not self._inbox.empty():
                        (commands.pop() if commands else self._inbox.get())()
                    self._core.advance()
            except BaseException as error:  # whoever waits must hear of it, and the next one finds a thread
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # a panic of a library in Rust is none, and nobody would hear of it
            error = RuntimeError(f"the engine's thread was stopped by {error!r}")
        with self._lock:
            listeners, self._listeners = self._listeners, {}
            for row, listener in list(listeners.items()):
                row.on_step = None
                self._core.abort(row)
                listener.put(error)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for worker in _workers:
        worker.stop()


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
        first, new = self._num_sent == 0, slice(self._num_sent, len(row.token_ids))
        self._num_sent = len(row.token_ids)
        try:
            done = row.completion() if row.finish_reason is not None else None
            self.put(
                Chunk(
                    row.token_ids[new],
                    self._text.take(),
                    row.finish_reason,
                    done,
                    row.origins[new],
                    None if row.params.logprobs is None else row.logprobs[new],
                    [None, *row.prompt_logprobs] if first and row.params.prompt_logprobs is not None else None,
                )
            )
        except Exception as error:  # the tokenizer's; other rows are told of the same step
            self.put(error)

    def put(self, item: Chunk | BaseException) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody listens
            self._loop.call_soon_threadsafe(self.queue.put_nowait, item)
