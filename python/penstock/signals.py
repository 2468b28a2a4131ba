"""Signals that end a program, handled as Ctrl-C is: by an exception, so that files are removed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_arrived = 0
"""The signal that has ended the block of :func:`ended_by_signals`, 0 if none has."""
_raised: BaseException | None = None
"""The last exception that :func:`end` has raised."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within the block, end this process on SIGTERM and SIGHUP as on Ctrl-C.

    The block then ends by the signal's exception, whatever exception it raises itself.
    """
    global _arrived, _raised
    # A signal that is ignored, as under nohup, stays ignored.
    before = {number: old for number, old in _handlers().items() if old != signal.SIG_IGN}
    _arrived = 0
    for number in before:
        signal.signal(number, end)
    report = sys.unraisablehook

    def report_others(unraisable: Any) -> None:
        # The block raises a dropped exception of a signal again at its end.
        if _raised is None or unraisable.exc_value is not _raised:
            report(unraisable)

    sys.unraisablehook = report_others
    try:
        yield
        raise_overlooked_signal()
    except Exception:
        raise_overlooked_signal()
        raise
    finally:
        _arrived = 0
        _raised = None
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_overlooked_signal() -> None:
    """Raise the exception of a signal that has arrived, if it was lost or became another one.

    CPython drops an exception that a handler raises within a destructor or a callback of a weak
    reference. NumPy's ``fromfile`` continues if a handler raises in ``isinstance(file, PathLike)``.
    It then fails by another error, or CPython raises a SystemError in its stead.
    """
    if _arrived:
        raise _exception(_arrived) from None


def end(number: int, _: object) -> None:
    """Handle a signal like Ctrl-C: by an exception, so that open files are closed and removed."""
    global _arrived, _raised
    _arrived = number
    _raised = _exception(number)
    raise _raised


def _handlers() -> dict[signal.Signals, Any]:
    """Return the handlers that this thread can replace and restore: not those of libraries in C.

    Only the main thread can replace handlers, and signals interrupt no other thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in _ENDING}
    return {number: handler for number, handler in found.items() if handler is not None}


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore these signals within the block, which cleans up: a second Ctrl-C must not stop it."""
    before = _handlers()
    try:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder that is removed at the end of the block, also by a signal."""
    made = TemporaryDirectory(prefix=prefix, dir=parent)
    try:
        yield Path(made.name)
    finally:
        with undisturbed():
            made.cleanup()
