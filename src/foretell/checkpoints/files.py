"""Reading JSON and safetensors headers so that a broken file is one line, and writing a folder whole or not at all."""

from __future__ import annotations

import json
import math
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from foretell.errors import CheckpointError

INDEX_FILE = "model.safetensors.index.json"
"""Which file holds which tensor, in a folder with several."""


class CheckpointWarning(UserWarning):
    """A checkpoint that loads, but is not all that it seems."""


class TensorHeader(NamedTuple):
    """Shape and safetensors type name (``BF16``, ``F32``, ``I64``, ...) of one stored tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Size on disk."""
        bits = int(re.sub(r"\D*(\d+).*", r"\1", self.dtype) if self.dtype != "BOOL" else 8)
        return math.prod(self.shape) * bits // 8


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; CheckpointError where it cannot be read or holds something else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({one_line(error)})") from error
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: broken JSON at line {error.lineno} ({error.msg})") from error
    except (RecursionError, ValueError) as error:  # nested without end, or a number of thousands of digits
        raise CheckpointError(f"{path}: JSON that nobody writes ({one_line(error)})") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: holds a {type(values).__name__}, expected an object {{...}}")
    return values


def read_headers(path: Path) -> dict[str, TensorHeader]:
    """Name -> header of every tensor in a safetensors file; no tensor is read."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return {name: TensorHeader(tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: not a readable safetensors file ({one_line(error)}); it is damaged or cut short, fetch it again"
        ) from error


def refuse_not_finite(what: str, tensors: dict[str, Any], consequence: str) -> None:
    """Raise CheckpointError naming the floating-point tensors that hold NaN or infinity."""
    wrong = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    if wrong:
        shown = ", ".join(sorted(wrong)[:8]) + (", ..." if len(wrong) > 8 else "")
        raise CheckpointError(f"{what}: NaN or infinite values in {shown}. {consequence}")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, by its index where it has one. No file outside the folder is named."""
    index = folder / INDEX_FILE
    if index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{index}: no weight_map in it; the file is damaged")
        for name in weight_map.values():
            if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
                raise CheckpointError(f"{index}: {name!r} is no *.safetensors file of this folder; nothing was read")
        return [folder / name for name in sorted(set(weight_map.values()))]
    files = sorted(path for path in folder.glob("*.safetensors") if path.name != "mtp.safetensors")  # heads of ours
    if not files:
        others = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "none"
        raise CheckpointError(f"{folder}: no *.safetensors file in it (other weight files: {others})")
    return files


def one_line(error: BaseException) -> str:
    """An error's text on one line of bounded length, to be quoted within a message."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(said.split()) or type(error).__name__
    return (text if len(text) <= 300 else text[:297] + "...").rstrip(".:")


def check_folder(folder: Path, what: str, is_ours: Callable[[str], bool], overwrite: bool) -> None:
    """Raise CheckpointError where ``what`` ("an adapter") cannot be written to ``folder``.

    It may be absent or empty; with ``overwrite`` it may hold files whose names ``is_ours``, and never any other.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: is a file; give a folder for the {what.split()[-1]}")
    found = sorted(entry.name for entry in folder.iterdir())
    if others := [name for name in found if not is_ours(name)]:
        shown = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        raise CheckpointError(f"{folder}: holds other files ({shown}) and is not touched; give another folder")
    if found and not overwrite:
        raise CheckpointError(f"{folder}: {what} is already there; give another folder, or ask to overwrite it")


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A fresh sibling folder to write into; it takes the place of ``folder`` when the block ends without an error.

    A folder that was there is set aside until the new one stands, so a crash never leaves half of one.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.new")
        fresh.mkdir()
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be written ({one_line(error)})") from error
    try:
        yield fresh
        old = fresh.with_suffix(".old")
        if folder.exists():
            folder.rename(old)
        try:
            fresh.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: cannot be written ({one_line(error)})") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
