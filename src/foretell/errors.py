"""Every error that Foretell raises on purpose.

    ForetellError                 exit code 1
    ├── UsageError                exit code 2: the caller asked for something that cannot be
    │   └── SamplingError         a sampling parameter (names the field)
    ├── CheckpointError           a checkpoint or adapter folder cannot be used
    │   └── AdapterMismatch       the adapter was made for another trunk
    ├── UnsupportedModel          no support for this architecture
    ├── DataError                 a bad record in a data file (names file and line)
    └── ContextLengthError        more tokens than the model's context holds

A message gives the wrong value, the allowed ones and the next step. All arguments are kept in `args`, so that an error
survives pickling on its way out of a worker process.
"""

from os import PathLike, fspath
from typing import ClassVar


class ForetellError(Exception):
    """Base of all errors raised on purpose; anything else that escapes is a bug."""

    exit_code: ClassVar[int] = 1
    """Status with which the command line ends."""


class UsageError(ForetellError):
    """A wrong option, argument or combination of them."""

    exit_code = 2


class PlainDecodingWarning(UserWarning):
    """Drafts were asked for, and there is nobody to make them: the text is the same, and no faster."""


class SamplingError(UsageError):
    """A sampling parameter outside its range; `field` is its name."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message, field)
        self.message = message
        self.field = field

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class CheckpointError(ForetellError):
    """A missing, unexpected or misshapen tensor or file; the message lists the names."""


class AdapterMismatch(CheckpointError):
    """An adapter put on a trunk other than the one it was trained for."""


class UnsupportedModel(ForetellError):
    """A model type or head kind that Foretell has no code for."""


class DataError(ForetellError):
    """A record that cannot be read; `line` is 1-based, None where the whole file is meant."""

    def __init__(self, message: str, file: str | PathLike[str], line: int | None = None) -> None:
        super().__init__(message, file, line)
        self.message = message
        self.file = fspath(file)
        self.line = line

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


class ContextLengthError(ForetellError):
    """A prompt, or a prompt with the tokens asked for, that does not fit the context."""
