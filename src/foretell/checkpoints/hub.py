"""Ask the hub once, and briefly, before a load: its library's own retries take half a minute without a network."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

from foretell.checkpoints.files import one_line
from foretell.errors import CheckpointError

_TIMEOUT_S = 3.0
_FILE = "config.json"


def hub_answers(name: str) -> bool:
    """True where the hub has ``name``; False where it does not give it now, but the local cache holds ``name``.

    HF_HUB_OFFLINE counts as a hub that cannot be asked. Raises CheckpointError where neither has it.
    """
    try:
        get_hf_file_metadata(hf_hub_url(name, _FILE), timeout=_TIMEOUT_S)
    except EntryNotFoundError:
        return True  # the name is right; what is missing in it, the load says
    except Exception as error:  # no such name, no network, a proxy's refusal, offline mode, a hub that is down, ...
        if isinstance(try_to_load_from_cache(name, _FILE), str):
            return False
        nowhere = f"{name}: no folder of that name here, no copy in the hub's cache, and the hub"
        if isinstance(error, GatedRepoError):
            raise CheckpointError(f"{nowhere} gives it out on request; ask there, then run: hf auth login") from error
        if isinstance(error, RepositoryNotFoundError):
            raise CheckpointError(f"{nowhere} knows no such model; for a private one, run: hf auth login") from error
        raise CheckpointError(f"{nowhere} cannot be asked ({one_line(error)})") from error
    return True


def cached_folder(name: str) -> Path | None:
    """The folder of the local cache that holds the files of ``name``; None where there is none."""
    config = try_to_load_from_cache(name, _FILE)
    return Path(config).parent if isinstance(config, str) else None
