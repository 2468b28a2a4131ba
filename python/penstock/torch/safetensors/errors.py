"""The exceptions that programs for safetensors catch, each also one of Penstock's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import (
    Error,
    IncompatibleError,
    InvalidError,
    IOFailure,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
)

if TYPE_CHECKING:

    class SafetensorError(Exception):
        """The exception of the package safetensors."""
else:
    try:
        from safetensors import SafetensorError
    except ImportError:

        class SafetensorError(Exception):
            """The base of all errors of weights, where the package safetensors is not installed."""


class WeightsError(InvalidError, SafetensorError):
    """A file of weights, or what is asked of it, is not valid."""


class WeightsIndexError(WeightsError, IndexError):
    """An index selects nothing of its tensor, or what cannot be read alone."""


class WeightsTypeError(IncompatibleError, SafetensorError):
    """There is no array for a data type, framework or device, or an index has a wrong type."""


class WeightsNotFoundError(NotFoundError, SafetensorError):
    """The folder of a new file does not exist."""


class WeightsPermissionError(PermissionDeniedError, SafetensorError):
    """The system refused to write a file of weights."""


class WeightsNoSpaceError(NoSpaceError, SafetensorError):
    """The file system is full."""


class WeightsIOError(IOFailure, SafetensorError):
    """A system call failed."""


_OF_SAVE: tuple[tuple[type[OSError], type[Error]], ...] = (
    (FileNotFoundError, WeightsNotFoundError),
    (PermissionError, WeightsPermissionError),
    (NoSpaceError, WeightsNoSpaceError),
    (OSError, WeightsIOError),
)


def of_save(error: OSError, path: str) -> Error:
    """Return an error of a system call as one that is also a ``SafetensorError``."""
    kind = next(made for caught, made in _OF_SAVE if isinstance(error, caught))
    if isinstance(error, Error):
        made = error.of_kind(kind, f"Error while serializing: {error}")
        return made if made.path else made.of_file(path)
    cause = error.strerror or str(error)
    return kind(f"Error while serializing: {path}: {cause}", path=path, errno=error.errno)
