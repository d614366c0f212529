"""What the trunk makes of the training rows: states and argmax, computed per batch, or once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from foretell.models.decoder import States
from foretell.models.packed import pack_linears, unpack_linears
from foretell.models.trunk import Trunk
from foretell.training.data import PackedRows


@torch.no_grad()
def trunk_outputs(trunk: Trunk, token_ids_BT: torch.Tensor, doc_ids_BT: torch.Tensor) -> tuple[States, torch.Tensor]:
    """States (B, T, D) and the trunk's argmax (B, T) of one batch; the argmax is taken row by row to bound memory."""
    states = trunk.text_states(token_ids_BT, doc_ids_BT)
    argmax_BT = torch.stack([trunk.project(row_TD).max(-1).indices for row_TD in states.post_BTD])
    return states, argmax_BT


class StateCache:
    """States before the final norm (the post-norm side follows from them) and argmax, memory-mapped from ``folder``."""

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
        num_done = self._num_done()
        size = num_rows * num_positions
        self.states_RTD = torch.from_file(
            str(folder / "states.bin"), shared=True, size=size * trunk.hidden_size, dtype=trunk.dtype
        ).view(self._shape)
        self.argmax_RT = torch.from_file(str(folder / "argmax.bin"), shared=True, size=size, dtype=torch.int32).view(
            self._shape[:2]
        )
        self._done = num_done

    @staticmethod
    def num_bytes(trunk: Trunk, rows: PackedRows) -> int:
        """Disk space the cache of these rows takes."""
        return rows.token_ids_RT.numel() * (trunk.hidden_size * trunk.dtype.itemsize + 4)

    def fill(self, batch_rows: int = 16, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Compute what is missing; a killed run goes on where it stopped."""
        rows = self._rows
        pack_linears(self.trunk)
        for start in range(self._done, len(rows), batch_rows):
            part = slice(start, min(start + batch_rows, len(rows)))
            states, argmax_BT = trunk_outputs(self.trunk, rows.token_ids_RT[part].long(), rows.doc_ids_RT[part].long())
            self.states_RTD[part] = states.pre_BTD
            self.argmax_RT[part] = argmax_BT.int()
            self._done = part.stop
            self._progress_file.write_text(json.dumps({"key": self._key, "num_done": self._done}))
            if on_progress:
                on_progress(self._done, len(rows))
        unpack_linears(self.trunk)  # heads copy the trunk's layers and train them

    def _num_done(self) -> int:
        if self._progress_file.exists():
            stored = json.loads(self._progress_file.read_text())
            if stored.get("key") == self._key:
                return int(stored["num_done"])
        for name in ("states.bin", "argmax.bin", "states.json"):
            (self.folder / name).unlink(missing_ok=True)
        return 0


def room_for(folder: Path, num_bytes: int) -> bool:
    """True where the disk of ``folder`` keeps at least a tenth free, or 2 GiB, after a cache of this size."""
    parent = next(p for p in (folder, *folder.resolve().parents) if p.exists())
    usage = shutil.disk_usage(parent)
    return usage.free - num_bytes > max(2 << 30, usage.total // 10)
