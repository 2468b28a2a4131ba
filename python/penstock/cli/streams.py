"""The standard streams of a command, which may be closed, full, or a pipe without a reader."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class PipeClosed(SystemExit):
    """A standard stream is a pipe without a reader.

    An exception of this kind is not caught below `main`, so all temporary files are removed.
    """

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGPIPE)


class _Stream(io.FileIO):
    """A standard stream. Its first failure is an exception; what is written later is dropped."""

    def __init__(self, descriptor: int, *, fails: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._fails = fails
        self._lost = False

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        if self._lost:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            self._lost = True
            raise PipeClosed from None
        except OSError as error:
            self._lost = True
            if self._fails:
                raise OSError(f"cannot write standard output: {error.strerror}") from None
            return memoryview(data).nbytes


def set_up() -> None:
    """Open standard streams that are closed, and have writes fail in one way.

    Output to a closed standard output is an error, and messages to a closed standard error are
    dropped. A stream that is open keeps its encoding and buffering.
    """
    _open_if_closed("stdin", os.O_RDONLY)
    # The wrong mode, so that a write to standard output fails.
    _open_if_closed("stdout", os.O_RDONLY)
    _open_if_closed("stderr", os.O_WRONLY)
    sys.stdout = _text(_Stream(sys.stdout.fileno(), fails=True), sys.stdout)
    sys.stderr = _text(_Stream(sys.stderr.fileno(), fails=False), sys.stderr)


def _open_if_closed(name: str, mode: int) -> None:
    """Open a stream, at its own number unless a file has that already."""
    if getattr(sys, name) is None:
        descriptor = os.open(os.devnull, mode)
        way = "r" if name == "stdin" else "w"
        setattr(sys, name, open(descriptor, way, closefd=False))  # noqa: SIM115


def _text(raw: _Stream, like: TextIO) -> io.TextIOWrapper:
    like.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding,
        errors="backslashreplace",  # names of datasets and files may not be valid text
        line_buffering=bool(getattr(like, "line_buffering", False)),
        write_through=bool(getattr(like, "write_through", False)),
    )


def end_by_sigpipe() -> NoReturn:
    """End this process by SIGPIPE, as a write to a closed pipe does by default."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})
    os.kill(os.getpid(), signal.SIGPIPE)
    raise AssertionError("SIGPIPE was delivered")
