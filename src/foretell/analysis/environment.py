"""Where a measurement was made: machine, library versions, threads, command."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.threads import num_cores

if TYPE_CHECKING:
    import torch


def environment(dtype: torch.dtype, command: str) -> dict[str, Any]:
    """Plain values for a bench file; ``command`` is what was typed."""
    import torch

    return {
        "cpu": cpu_model(),
        "cores": num_cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "transformers": package_version("transformers"),
        "foretell": package_version("foretell"),
        "threads": torch.get_num_threads(),
        "spin_count": os.environ.get("GOMP_SPINCOUNT", "default"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "dtype": str(dtype).removeprefix("torch."),
        "command": command,
    }


def cpu_model() -> str:
    """The processor's own name for itself."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def package_version(name: str) -> str:
    """Version of an installed package; "not installed" where it runs from a folder instead."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
