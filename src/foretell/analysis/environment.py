"""Where a measurement was made: machine, library versions, threads, command."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from foretell.threads import num_cores


def environment(dtype: str, command: str) -> dict[str, Any]:
    """Plain values for a bench file. ``dtype``: as for ``load``; ``command`` is what was typed."""
    import torch

    return {
        "cpu": cpu_model(),
        "cores": num_cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "transformers": package_version("transformers"),
        "foretell": package_version("foretell"),
        "commit": commit(),
        "threads": torch.get_num_threads(),
        "spin_count": os.environ.get("GOMP_SPINCOUNT", "default"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "dtype": dtype,
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


def commit() -> str | None:
    """The commit that runs, with "-dirty" where files differ from it; None outside a checkout of the project."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    line = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(line, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def package_version(name: str) -> str:
    """Version of an installed package; "not installed" where it runs from a folder instead."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
