"""Foretell: multi-token-prediction heads for any Hugging Face causal LM.

Names are imported on first use, so that ``import foretell`` and the command line start without torch.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretell.threads import BUSY, share_busy_cores

if TYPE_CHECKING:
    from foretell.checkpoints.load import load
    from foretell.config import HeadsConfig, SamplingParams
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.decoding.engine import Engine
    from foretell.errors import ForetellError
    from foretell.types import Completion

    __version__: str

_HOMES = {
    "Completion": "foretell.types",
    "DrafterConfig": "foretell.decoding.drafter_config",
    "Engine": "foretell.decoding.engine",
    "ForetellError": "foretell.errors",
    "HeadsConfig": "foretell.config",
    "SamplingParams": "foretell.config",
    "load": "foretell.checkpoints.load",
}

__all__ = [
    "Completion",
    "DrafterConfig",
    "Engine",
    "ForetellError",
    "HeadsConfig",
    "SamplingParams",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("foretell")
        except PackageNotFoundError:  # run from the source tree
            return "0+source"
    if name not in _HOMES:
        raise AttributeError(f"module 'foretell' has no attribute {name!r}; it has {', '.join(__all__)}")
    if name in ("Engine", "load") and share_busy_cores():
        warnings.warn(BUSY, stacklevel=2)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
