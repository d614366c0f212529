"""What the trunk makes of the training rows: states and argmax, computed per batch, or once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO

import torch

from foretell.errors import UsageError
from foretell.models.decoder import States
from foretell.models.greedy import argmax
from foretell.models.packed import pack_linears, unpack_linears
from foretell.models.trunk import Trunk
from foretell.training.packing import PackedRows


@torch.no_grad()
def trunk_outputs(trunk: Trunk, token_ids_BT: torch.Tensor, doc_ids_BT: torch.Tensor) -> tuple[States, torch.Tensor]:
    """States (B, T, D) and the trunk's argmax (B, T) of one batch; the argmax is taken row by row to bound memory."""
    states = trunk.text_states(token_ids_BT, doc_ids_BT)
    argmax_BT = torch.stack([argmax(trunk.project(row_TD)) for row_TD in states.post_BTD])
    return states, argmax_BT


class StateCache:
    """States before the final norm (the post-norm side follows from them) and argmax, memory-mapped from ``folder``.

    One process at a time: raises UsageError while another holds the folder, until that one ends or calls ``close``.
    """

    def __init__(self, folder: Path, trunk: Trunk, rows: PackedRows) -> None:
        self.folder = folder
        self.trunk = trunk
        num_rows, num_positions = rows.token_ids_RT.shape
        self._rows = rows
        self._shape = (num_rows, num_positions, trunk.hidden_size)
        digest = hashlib.sha256(trunk.fingerprint().encode())
        for tensor in (rows.token_ids_RT, rows.doc_ids_RT):
            digest.update(tensor.numpy().tobytes())
        self._key = f"{digest.hexdigest()[:16]}-{trunk.dtype}"
        self._progress_file = folder / "states.json"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        size = num_rows * num_positions
        sizes = {"states.bin": size * trunk.hidden_size * trunk.dtype.itemsize, "argmax.bin": size * 4}
        self._done = self._num_done(sizes)
        self.states_RTD = torch.from_file(
            str(folder / "states.bin"), shared=True, size=size * trunk.hidden_size, dtype=trunk.dtype
        ).view(self._shape)
        self.argmax_RT = torch.from_file(str(folder / "argmax.bin"), shared=True, size=size, dtype=torch.int32).view(
            self._shape[:2]
        )

    def close(self) -> None:
        """Let other processes have the folder."""
        self._lock.close()

    @staticmethod
    def num_bytes(trunk: Trunk, rows: PackedRows) -> int:
        """Disk space the cache of these rows takes."""
        return rows.token_ids_RT.numel() * (trunk.hidden_size * trunk.dtype.itemsize + 4)

    def fill(self, batch_rows: int = 16, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Compute what is missing; a killed run goes on where it stopped."""
        rows, device = self._rows, self.trunk.device
        pack_linears(self.trunk)
        for start in range(self._done, len(rows), batch_rows):
            part = slice(start, min(start + batch_rows, len(rows)))
            token_ids, doc_ids = rows.token_ids_RT[part].long(), rows.doc_ids_RT[part].long()
            states, argmax_BT = trunk_outputs(self.trunk, token_ids.to(device), doc_ids.to(device))
            self.states_RTD[part] = states.pre_BTD.to(self.states_RTD.device)
            self.argmax_RT[part] = argmax_BT.int().to(self.argmax_RT.device)
            self._done = part.stop
            partial = self._progress_file.with_suffix(".partial")
            partial.write_text(json.dumps({"key": self._key, "num_done": self._done}))
            os.replace(partial, self._progress_file)
            if on_progress:
                on_progress(self._done, len(rows))
        unpack_linears(self.trunk)  # heads copy the trunk's layers and train them

    def _num_done(self, sizes: dict[str, int]) -> int:
        """Rows that are on disk whole. Files of other rows, or of another size, go: what is left of them is noise."""
        files = {self.folder / name: size for name, size in sizes.items()}
        try:
            stored = json.loads(self._progress_file.read_text())
            if stored["key"] == self._key and all(file.stat().st_size == size for file, size in files.items()):
                return int(stored["num_done"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        for file in (*files, self._progress_file):
            file.unlink(missing_ok=True)
        return 0


def _lock(folder: Path) -> IO[str]:
    import fcntl  # not on Windows, where the rest of this module works

    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise UsageError(
            f"{folder}: another process is using these cached states; wait for it, or give this recipe its own run_dir"
        ) from error
    return lock


def room_for(folder: Path, num_bytes: int, reserve: bool = True) -> bool:
    """True where a cache of this size fits the disk of ``folder``, counting what is there of it already.

    With ``reserve`` a tenth of the disk, or 2 GiB, must stay free.
    """
    parent = next(p for p in (folder, *folder.resolve().parents) if p.exists())
    usage = shutil.disk_usage(parent)
    held = sum(file.stat().st_blocks * 512 for file in folder.glob("*.bin"))
    return usage.free + held - num_bytes > (max(2 << 30, usage.total // 10) if reserve else 0)
