"""Reads of batches that were started."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import InvalidError
from penstock.request_group import Pending, RequestGroup


class Started(RequestGroup[Pending]):
    """A batch that is being read. If it is dropped before :meth:`wait`, its reads are cancelled.

    Args:
        finish: Called after the reads, returns the batch.
        reads: Those that were started already.
    """

    def __init__(self, finish: Callable[[], Any], reads: Iterable[Pending] = ()) -> None:
        super().__init__(reads)
        self._failure: BaseException | None = None
        self._finish = finish
        self.given: list[Any] = []
        """The tensors that were given to a function of the program, which made the batch."""

    def wait(self) -> Any:
        """Wait for the read, and return the batch: the same one at each call.

        Raises:
            Error: The read failed. A further call fails, too, as does one after :meth:`stop` of a
                read that had not ended: the memory is undefined.
        """
        self.settle()
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame
        if self.is_stopped:
            _refuse()
        made, self._finish = self._finish, _refuse
        batch = made()  # once, as functions of the program may change tensors
        self._finish = lambda: batch
        return batch

    @property
    def is_pending(self) -> bool:
        """Whether there are reads that were not waited for, which keep their files open."""
        return len(self) > 0

    def settle(self) -> None:
        """Wait for the reads added so far, so that their files can be closed.

        Any thread may call this. :meth:`wait` raises their error.
        """
        if self.is_stopped:
            self.stop()  # which another thread may have begun
            return
        try:
            super().wait()
        except Exception as error:
            self._failure = self._failure or error

    def close(self) -> None:
        """Cancel the read, and wait until its memory is used no more."""
        self.stop()


def _refuse() -> Any:
    raise InvalidError("this batch failed, or its read was closed", remedy="start another read")
