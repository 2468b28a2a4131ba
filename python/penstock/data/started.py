"""Reads of batches that were started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from penstock import siblings
from penstock.errors import Error, InvalidError
from penstock.siblings import Failed, Pending


class Started:
    """A batch that is being read. If it is dropped before :meth:`wait`, its read is cancelled.

    Args:
        pending: The reads.
        finish: Called after them, returns the batch.
    """

    def __init__(self, pending: Sequence[Pending], finish: Callable[[], Any]) -> None:
        self._pending = list(pending)
        self._failure: BaseException | None = None
        self._lock = threading.RLock()
        self._finish = finish

    def wait(self) -> Any:
        """Wait for the read, and return the batch: the same one at each call.

        Raises:
            Error: The read failed. A further call fails, too, as does one after :meth:`close` of a
                read that had not ended: the memory is undefined.
        """
        self.settle()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame
        finish, self._finish = self._finish, _refuse
        batch = finish()  # once, as functions of the program may change tensors
        self._finish = lambda: batch
        return batch

    @property
    def is_pending(self) -> bool:
        """Whether there are reads that were not waited for, which keep their files open."""
        return bool(self._pending)

    def add(self, pending: Sequence[Pending]) -> None:
        """Add reads, while no other thread uses this object."""
        self._pending += pending

    def settle(self) -> None:
        """Wait for the reads added so far, so that their files can be closed.

        Any thread may call this. :meth:`wait` raises their error.
        """
        with self._lock:
            try:
                while self._pending:
                    self._pending[0].wait()
                    del self._pending[0]
            except BaseException as error:
                self._failure = error
                self.close()
                if not isinstance(error, Exception):
                    raise

    def cancel(self) -> None:
        """Cancel the read. :meth:`close` waits for its end."""
        for request in self._pending[:]:
            with suppress(Error):
                request.cancel()

    def close(self) -> None:
        """Cancel the read, and wait until its memory is used no more."""
        self.cancel()
        with self._lock:
            if self._pending:
                self._finish = _refuse
            try:
                siblings.stop(self._pending, self._failure)
            finally:
                self._pending.clear()

    def __del__(self) -> None:
        if self.__dict__.get("_pending"):
            self.close()


def close_all(started: Iterable[Started]) -> None:
    """Cancel reads, and wait until their memory is used no more."""
    with ExitStack() as ends:
        for one in started:
            ends.callback(one.close)
            one.cancel()


def failed(error: Exception) -> Started:
    """Return a batch whose read could not be started."""
    return Started([Failed(error)], _refuse)


def _refuse() -> Any:
    raise InvalidError("this batch failed, or its read was closed", remedy="start another read")
