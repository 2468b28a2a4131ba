"""Threads that take no signals, which are for the threads of the program."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

# As in crates/engine/src/threads.rs: a blocked fault kills the process without its handler.
_FAULTS = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
}


def start(target: Callable[[], Any]) -> threading.Thread:
    """Start a thread that blocks signals, and that does not keep the process from its end."""
    thread = threading.Thread(target=target, daemon=True)
    with _blocked():
        thread.start()
    return thread


class Pool(ThreadPoolExecutor):
    """A ``ThreadPoolExecutor`` whose threads block signals."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a thread for the call if none is idle."""
        with _blocked():
            return super().submit(*args, **kwargs)


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Block signals in the block, of which a thread that it starts inherits the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
