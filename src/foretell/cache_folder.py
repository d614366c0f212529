"""cache_folder: where what is made once on a machine is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """The folder ``kind`` in ``~/.cache/foretell`` or, where the environment names one, in ``$FORETELL_CACHE``."""
    return Path(os.environ.get("FORETELL_CACHE") or "~/.cache/foretell").expanduser() / kind
