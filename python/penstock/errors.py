"""The exceptions, which are also the builtin exceptions that a Python program expects."""

from __future__ import annotations

import errno as errno_codes
from typing import Any

from penstock._native import last_error, lib, text


class Error(Exception):
    """The base of all errors of this package.

    ``str(error)`` is the whole message. Its parts are attributes, ``None`` where they do not
    apply: ``path`` of the file, ``offset`` and ``length`` in bytes of the range that failed,
    ``cause``, ``remedy`` (what to do about it), ``errno`` of the system call and ``gpu_code``,
    the CUDA or cuFile code.

    >>> try:
    ...     ps.load("missing.bin")
    ... except FileNotFoundError as error:  # or ps.NotFoundError, or ps.Error
    ...     print(error.path, error.remedy)
    """

    default_errno: int | None = None
    errno: int | None

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        length: int | None = None,
        cause: str | None = None,
        remedy: str | None = None,
        errno: int | None = None,
        gpu_code: int | None = None,
    ) -> None:
        self._details: dict[str, Any] = {
            "path": path,
            "offset": offset,
            "length": length,
            "cause": cause,
            "remedy": remedy,
            "errno": errno,
            "gpu_code": gpu_code,
        }
        self.message = message if remedy is None or remedy in message else f"{message}; {remedy}"
        self.path = path
        self.offset = offset
        self.length = length
        self.cause = cause or message
        self.remedy = remedy
        self.gpu_code = gpu_code
        code = errno if errno is not None else self.default_errno
        if isinstance(self, OSError):
            # OSError itself fills errno, strerror and filename from these.
            Exception.__init__(self)
            OSError.__init__(self, code, self.cause, *([] if path is None else [path]))
        else:
            super().__init__(self.message)
            self.errno = code

    def __str__(self) -> str:
        return self.message

    def about(self, subject: str) -> Error:
        """Return the same error with what it is about before its message."""
        return self.of_kind(type(self), f"{subject}: {self.message}")

    def of_kind(self, kind: type[Error], message: str) -> Error:
        """Return an error of another class, with another message about the same failure."""
        return kind(message, **self._details)

    def of_file(self, path: str) -> Error:
        """Return the same error with another name for its file."""
        message = self.message if self.path is None else self.message.replace(self.path, path)
        return type(self)(message, **{**self._details, "path": path})

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self._details)


class NotFoundError(Error, FileNotFoundError):
    """The file or its folder does not exist."""

    default_errno = errno_codes.ENOENT


class PermissionDeniedError(Error, PermissionError):
    """The system refused access to the file."""

    default_errno = errno_codes.EACCES


class InvalidError(Error, ValueError):
    """An argument has an invalid value."""


class IncompatibleError(Error, TypeError):
    """The operation does not support this kind of array, data type or object."""


class IOFailure(Error, OSError):  # noqa: N818 - IOError is OSError's other name
    """A system call failed; ``errno`` says how."""

    default_errno = errno_codes.EIO


class EndOfFileError(Error, OSError, EOFError):
    """The file ends before the end of the range."""

    default_errno = errno_codes.ENODATA


class NoSpaceError(Error, OSError):
    """The file system or a quota is full."""

    default_errno = errno_codes.ENOSPC


class OutOfMemoryError(Error, MemoryError):
    """Host, pinned or device memory could not be allocated."""


class GpuError(Error, RuntimeError):
    """A call of the CUDA driver or of cuFile failed; ``gpu_code`` says how."""


class UnavailableError(Error, RuntimeError):
    """A library, device or route is not available."""


class CancelledError(Error):
    """The request was cancelled before it was finished."""


class WaitTimeout(Error, TimeoutError):  # noqa: N818 - named after what happened, as TimeoutError
    """The request did not finish in time. It continues, and can be waited for again."""

    default_errno = errno_codes.ETIMEDOUT


class ForkedError(Error, RuntimeError):
    """The call came from a child, made by fork(), of a process that had used the library."""


class InternalError(Error, RuntimeError):
    """Penstock has a defect: please report it."""


_BY_STATUS: dict[int, type[Error]] = {
    lib.PENSTOCK_ERR_INVALID: InvalidError,
    lib.PENSTOCK_ERR_NOT_FOUND: NotFoundError,
    lib.PENSTOCK_ERR_PERMISSION: PermissionDeniedError,
    lib.PENSTOCK_ERR_IO: IOFailure,
    lib.PENSTOCK_ERR_END_OF_FILE: EndOfFileError,
    lib.PENSTOCK_ERR_NO_SPACE: NoSpaceError,
    lib.PENSTOCK_ERR_MEMORY: OutOfMemoryError,
    lib.PENSTOCK_ERR_GPU: GpuError,
    lib.PENSTOCK_ERR_UNAVAILABLE: UnavailableError,
    lib.PENSTOCK_ERR_CANCELLED: CancelledError,
    lib.PENSTOCK_ERR_FORKED: ForkedError,
    lib.PENSTOCK_ERR_INTERNAL: InternalError,
}


def check(status: int) -> None:
    """Raise the failure of the last call on this thread, unless it succeeded."""
    if status:
        raise failure(status)


def failure(status: int) -> Error:
    """Return the failure of the last call on this thread, which returned this status."""
    error = last_error()
    if error.status != status:  # a child has called the library of its parent
        kind = _BY_STATUS.get(status, InternalError)
        forked = "the object belongs to another process, which forked"
        return kind(forked if kind is ForkedError else f"status {status}")
    path = text(error.path) or None
    located = path is not None and error.length > 0
    return _BY_STATUS.get(status, InternalError)(
        text(error.message) or f"status {status}",
        path=path,
        offset=error.offset if located else None,
        length=error.length if located else None,
        cause=text(error.cause) or None,
        remedy=text(error.remedy) or None,
        errno=error.os_errno or None,
        gpu_code=error.gpu_code or None,
    )


def _rebuild(kind: type[Error], message: str, details: dict[str, Any]) -> Error:
    return kind(message, **details)
