"""The processes of a run, as torchrun or accelerate started them; a run of its own is one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from accelerate import PartialState


def processes() -> PartialState:
    """Rank and number of processes; the first call joins them, over gloo where there is no GPU.

    They wait for each other long: one may read a whole corpus while the others do nothing.
    """
    return PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(hours=12))


@contextmanager
def main_first() -> Iterator[bool]:
    """The main process runs the block, then the others do; gives True in the main one."""
    state = processes()
    with state.main_process_first():
        yield state.is_main_process
