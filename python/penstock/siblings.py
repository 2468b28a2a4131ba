"""Transfers of one call. Where one fails, all have ended before the caller gets its error.

The caller of a call that has failed may free its memory, or use it for something else. Therefore:

1. The first error of a transfer, or an exception of a signal handler such as KeyboardInterrupt,
   cancels all transfers of the call.
2. It is raised when none of them uses memory any more. A further Ctrl-C does not shorten this wait,
   which takes about as long as one block.
3. Other failures of the call are notes of the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from penstock.errors import CancelledError


class Pending(Protocol):
    """A transfer that was started, by an asynchronous request or by several."""

    def wait(self) -> Any:
        """Wait for the transfer."""

    def cancel(self) -> None:
        """Cancel the transfer, which then has to be waited for."""


class Failed:
    """A transfer that could not be started. The wait for it raises its error.

    An iterator that reads ahead thus raises the error of an item where it would yield the item.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def wait(self) -> Any:
        """Raise the error."""
        try:
            raise self._error
        finally:
            del self  # the error's traceback has this frame

    def cancel(self) -> None:
        """Do nothing."""


def stop(members: Iterable[Pending], cause: BaseException | None = None) -> None:
    """Cancel transfers, and return when none of them uses memory any more.

    Errors of the transfers are notes of ``cause``, if it is given. An exception of a signal handler
    is raised at the end.
    """
    left = deque(members)
    interruption: BaseException | None = None
    while left:
        try:
            for member in left:
                with suppress(Exception):
                    member.cancel()
            while left:
                try:
                    left[0].wait()
                except CancelledError:
                    pass
                except Exception as error:  # h5py's as well, of what it has read
                    _note(cause, error)
                left.popleft()
        except BaseException as raised:
            interruption = interruption or raised
    if interruption is not None:
        raise interruption


def _note(cause: BaseException | None, error: Exception) -> None:
    """Add an error to the one that is raised, which may be the same."""
    if cause is not None and str(error) not in str(cause) and hasattr(cause, "add_note"):
        cause.add_note(f"Another transfer of the same call failed, too: {error}")


@contextmanager
def ending_together(members: Iterable[Pending]) -> Iterator[None]:
    """Stop these transfers, as they are at that time, before an exception leaves the block.

    The block starts them, waits for them, or both.
    """
    try:
        yield
    except BaseException as error:
        stop(members, error)
        raise
