"""Keeps transformers' progress bars and reports off the terminal; what matters in them is said by us in one line."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

from transformers.utils import logging


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bar and no log line below an error inside the block; settings as before afterwards."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the GGUF reader's own bar knows no switch
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
