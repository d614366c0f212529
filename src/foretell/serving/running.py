"""Several completions as one stream of chunks, within a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from foretell.decoding.worker import Chunk
from foretell.serving.errors import APIError

Indexed = tuple[int, Chunk]
"""A chunk and the number of its completion."""


Queue = asyncio.Queue[Indexed | BaseException]
"""What comes, or why nothing more does."""


async def merged(
    streams: Sequence[AsyncIterator[Chunk]],
    queue: Queue,
    timeout_s: float,
    on_chunk: Callable[[int, Chunk], None],
    on_end: Callable[[], None],
) -> AsyncIterator[Indexed]:
    """Chunks as they come, through ``queue``. Leaving early, the end of the time, and an error, in one of them or put
    into the queue, abort them all.

    ``on_chunk`` and ``on_end`` are called as chunks come and streams end, however slowly chunks are taken here.
    """
    tasks = [asyncio.create_task(_pump(index, stream, queue, on_chunk)) for index, stream in enumerate(streams)]
    for task in tasks:
        task.add_done_callback(lambda _: on_end())
    end = asyncio.get_running_loop().time() + timeout_s
    num_left = len(tasks)
    try:
        while num_left:
            left_s = end - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(max(left_s, 0.001)):
                    item = await queue.get()
            except TimeoutError:
                raise APIError(
                    504, f"the answer took more than {timeout_s:g} s; ask for fewer tokens", None, "timeout"
                ) from None
            if isinstance(item, BaseException):
                raise item
            yield item
            num_left -= item[1].finish_reason is not None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(index: int, stream: AsyncIterator[Chunk], queue: Queue, on_chunk: Callable[[int, Chunk], None]) -> None:
    try:
        async for chunk in stream:
            on_chunk(index, chunk)
            queue.put_nowait((index, chunk))
    except Exception as error:
        queue.put_nowait(error)
