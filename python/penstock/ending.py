"""Functions that run when a process ends, also a child of :mod:`multiprocessing`."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

_functions: list[Callable[[], None]] = []
_is_watched = False
# Finalizers with a higher priority run first. Those of shared memory must run later.
_PRIORITY = 100


def at_end(function: Callable[[], None]) -> Callable[[], None]:
    """Run a function at the end of this process; the one that was given last runs first."""
    _functions.append(function)
    return atexit.register(function)


def watch() -> None:
    """Register the functions, once per process, where multiprocessing ends it without ``atexit``.

    A child discards the finalizers of its parent when it starts, so this is called with each
    request.
    """
    global _is_watched
    if _is_watched or "multiprocessing.util" not in sys.modules:
        return
    from multiprocessing import parent_process, util

    _is_watched = True
    if parent_process() is not None:
        util.Finalize(None, _run, exitpriority=_PRIORITY)


def _run() -> None:
    for function in reversed(_functions):
        function()


def _in_child() -> None:
    global _is_watched
    _is_watched = False


os.register_at_fork(after_in_child=_in_child)
