"""library: the compiled kernels, built at first use for this CPU and kept in a cache."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

from foretell.cache_folder import cache_folder

SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
_HEADERS = sorted(Path(__file__).parent.glob("*.h"))
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-shared", "-fPIC")
_TIMEOUT_S = 120


class KernelWarning(UserWarning):
    """Kernels could not be built; slower ones of torch stand in."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None where no C++ compiler builds them (a KernelWarning says why, once).

    ``CXX`` names the compiler; FORETELL_KERNELS=0 leaves them out.
    """
    if os.environ.get("FORETELL_KERNELS") == "0":
        return None
    compiler = shutil.which(os.environ.get("CXX") or "c++")
    if compiler is None:
        _warn(f"no C++ compiler ({os.environ.get('CXX') or 'c++'} is not found)")
        return None
    import torch as torch  # its OpenMP is then the one that the kernels find, with the same threads

    try:
        return ctypes.CDLL(str(_built(compiler)))
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error)
        _warn(" ".join(str(told).split())[:200])
        return None


def kernels() -> ctypes.CDLL:
    """``library`` where something was made that needs it."""
    found = library()
    assert found is not None
    return found


def _built(compiler: str) -> Path:
    root = cache_folder("kernels")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    parts = [*[file.read_text() for file in (*SOURCES, *_HEADERS)], *_FLAGS, compiler, version, _cpu()]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    built = root / f"kernels-{key}.so"
    if not built.is_file():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as folder:
            fresh = Path(folder) / built.name
            together = Path(folder) / "all.cpp"  # what they share is then compiled once
            together.write_text("".join(f'#include "{source}"\n' for source in SOURCES), encoding="utf-8")
            command = [compiler, *_FLAGS, "-o", str(fresh), str(together)]
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
            os.replace(fresh, built)
    return built


def _cpu() -> str:
    """What the code is made for: the cache may lie on a disk that several machines share."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine
    return next((line for line in lines if line.startswith(("flags", "Features"))), os.uname().machine)


def _warn(why: str) -> None:
    warnings.warn(
        f"kernels for this CPU were not built, so torch's run, which are slower: {why}", KernelWarning, stacklevel=3
    )
