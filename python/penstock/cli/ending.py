"""The end of a command: one sentence and an exit status for every exception."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from penstock import Error, InvalidError
from penstock_command import missing_package

FAILED = 1
_INTERRUPTED = 130
_EXPECTED = (Error, OSError, MemoryError, RuntimeError)
"""Their messages are for users. h5py raises a RuntimeError for errors of HDF5."""

_BY_TYPER: Any = (typer.Exit, typer.Abort, typer.BadParameter.__mro__[2])
"""Exceptions that typer itself turns into a message and a status; the last is click's."""


@contextmanager
def in_one_sentence(status: int = FAILED) -> Iterator[None]:
    """Turn an exception into a sentence on standard error and an exit status.

    With `python -X dev -m penstock_command`, exceptions keep their tracebacks.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except _BY_TYPER:
        raise
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        print(f"penstock: {sentence(error)}", file=sys.stderr)
        raise SystemExit(status) from None


@contextmanager
def refusing(flag: str | None = None) -> Iterator[None]:
    """Turn the library's refusal of a value of the command line into typer's."""
    try:
        yield
    except InvalidError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None


def sentence(error: Exception) -> str:
    """Describe an exception in one line."""
    words = " ".join(str(error).split())
    if isinstance(error, _EXPECTED):
        return words or type(error).__name__
    return missing_package(error) or (
        f"unexpected {type(error).__name__}: {words}; please report it with the traceback of "
        "python -X dev -m penstock_command"
    )
