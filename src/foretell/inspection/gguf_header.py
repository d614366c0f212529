"""The header of a GGUF file: metadata, and name, size and type of every tensor. Tensors stay on disk.

Format: ggml-org/ggml, docs/gguf.md, versions 2 and 3. Long arrays (vocabularies) are passed over; their length is kept.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from foretell.checkpoints.files import one_line
from foretell.errors import CheckpointError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_SHORT_ARRAY = 1024
_TYPE_NAMES = """
F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS IQ3_XXS
IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 Q4_0_4_4 Q4_0_4_8 Q4_0_8_8 TQ1_0 TQ2_0
IQ4_NL_4_4 IQ4_NL_4_8 IQ4_NL_8_8 MXFP4 NVFP4 Q1_0
"""
_TYPES = dict(enumerate(_TYPE_NAMES.split()))


class GGUFTensor(NamedTuple):
    """Number of values, and ggml's name of their type."""

    num_values: int
    dtype: str


@dataclass(frozen=True)
class GGUFHeader:
    """``values``: metadata; of arrays longer than 1024 the length alone, in ``lengths`` as of the others."""

    values: dict[str, Any]
    lengths: dict[str, int]
    tensors: dict[str, GGUFTensor]


def read_gguf_header(path: Path) -> GGUFHeader:
    """Read the header alone. Raises CheckpointError where the file is damaged or of another version."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size).header()
    except (OSError, ValueError, struct.error, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a readable GGUF file ({one_line(error)})") from error


class _Reader:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size

    def header(self) -> GGUFHeader:
        magic, version = self._take("4s"), self._take("I")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"version {version}; versions 2 and 3 are read")
        num_tensors, num_values = self._count(), self._count()
        values: dict[str, Any] = {}
        lengths: dict[str, int] = {}
        for _ in range(num_values):
            name, kind = self._text(), self._take("I")
            if kind == _ARRAY:
                lengths[name], values[name] = self._array()
            else:
                values[name] = self._value(kind)
        tensors = {}
        for _ in range(num_tensors):
            name = self._text()
            shape = [self._take("Q") for _ in range(self._take("I"))]
            kind, _offset = self._take("I"), self._take("Q")
            tensors[name] = GGUFTensor(math.prod(shape), _TYPES.get(kind, f"type {kind}"))
        return GGUFHeader(values, lengths, tensors)

    def _array(self) -> tuple[int, list[Any] | None]:
        """Length of an array, and its values where it is short."""
        kind, length = self._take("I"), self._count()
        if length <= _SHORT_ARRAY:
            return length, [self._value(kind) for _ in range(length)]
        if kind == _STRING:
            for _ in range(length):
                self._skip(self._count())
        else:
            self._skip(length * struct.calcsize(f"<{self._scalar(kind)}"))
        return length, None

    def _value(self, kind: int) -> Any:
        if kind == _ARRAY:
            return self._array()[1]
        return self._text() if kind == _STRING else self._take(self._scalar(kind))

    def _scalar(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ValueError(f"a value of unknown type {kind}")
        return _SCALARS[kind]

    def _text(self) -> str:
        return self._bytes(self._count()).decode("utf-8", errors="replace")

    def _count(self) -> int:
        """A number of things, none of which takes no room: more than the file has bytes is damage."""
        count: int = self._take("Q")
        if count > self._size:
            raise ValueError(f"a length of {count} in a file of {self._size} bytes")
        return count

    def _take(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}")))[0]

    def _bytes(self, count: int) -> bytes:
        found = self._file.read(count)
        if len(found) < count:
            raise ValueError("it ends within its header")
        return found

    def _skip(self, count: int) -> None:
        self._file.seek(count, 1)
