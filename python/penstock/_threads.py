"""Threads that block signals, so that only threads of the program handle them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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

    def run() -> None:
        _block()
        target()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


class Pool(ThreadPoolExecutor):
    """A ``ThreadPoolExecutor`` whose threads block signals."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, initializer=_block)


def _block() -> None:
    """Block signals in this thread, which is not the main one.

    The thread that starts another does not block them for that time: a handler that raises could
    keep the main thread from restoring its mask. A new thread has the mask of its starter at first,
    so it takes no signal that the starter blocks.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
