"""Groups of requests that end together.

The caller of a call that has failed may free its memory, or use it for something else. Therefore:

1. The first error of a member, or an exception of a signal handler such as KeyboardInterrupt,
   cancels all members.
2. It is raised when none of them uses memory any more. A further Ctrl-C does not shorten this wait,
   which takes about as long as one block.
3. Other failures of members are notes of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from operator import methodcaller
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar, cast

from penstock.errors import CancelledError, InvalidError


class Pending(Protocol):
    """What a group can have: a request, or an object that has several.

    If :meth:`wait` does more than wait, such as to call functions of the program, the object also
    has a method ``stop(cause)``, which only ends its requests. A group has one.
    """

    def wait(self) -> Any:
        """Wait for the end, and return the result."""

    def cancel(self) -> None:
        """Cancel the member, which then has to be waited for."""


M = TypeVar("M", bound=Pending)
T = TypeVar("T")

# A function of Python would have the member in its frame, to which an error refers.
_wait: Callable[[Any], Any] = methodcaller("wait")


class RequestGroup(Generic[M]):
    """Requests that end together, of which the oldest is waited for first.

    The group owns its members, and these own the memory that they use: nothing else keeps a member.
    A member leaves the group when it has ended. Where :meth:`next`, :meth:`wait`, :meth:`fill` or
    the block of ``with`` raises, all members have ended before. The same holds after :meth:`stop`,
    and a group that is dropped stops its members. A block of ``with`` that raises nothing leaves
    them under way.

    A member may be a group. One thread adds members; any thread may wait for them, cancel or stop
    them.

    >>> with RequestGroup() as reads:
    ...     while reads.fill(starts, 3):  # three are under way
    ...         use(reads.next())
    """

    def __init__(self, members: Iterable[M] = ()) -> None:
        self._members: list[M] = list(members)
        self._taken = 0
        """The number of members that have left."""
        self._lock = RLock()
        self.is_stopped = False
        """Whether members were ended before their results were taken."""

    def __len__(self) -> int:
        """The number of members whose results were not taken."""
        return len(self._members)

    @property
    def first(self) -> M:
        """The member that is waited for next."""
        return self._members[0]

    def add(self, member: M) -> None:
        """Add a member. If the group was stopped, the member is, too."""
        self._members.append(member)
        if self.is_stopped:
            self.stop()

    def fill(self, starts: Iterator[Callable[[], M]], count: int) -> bool:
        """Start members until the group has ``count``, or until there are no more.

        An error of a start is raised where the result of its member is taken.

        Returns:
            Whether the group has members.
        """
        members = self._members
        try:
            for start in islice(starts, max(count - len(members), 0)):
                try:
                    members.append(start())
                except Exception as error:
                    members.append(cast(M, _Failed(error)))
        except BaseException as error:
            self.stop(error)
            raise
        if self.is_stopped:
            self.stop()
        return bool(members)

    def next(self) -> Any:
        """Wait for the first member, and return its result.

        Raises:
            InvalidError: The group was stopped.
            Error: The member has failed.
        """
        try:
            with self._lock:
                while True:
                    self._refuse_stopped()
                    taken = self._taken
                    found = self._members[0].wait()
                    if self._take(taken):
                        return found
        except BaseException as error:
            self.stop(error)
            raise

    def wait(self) -> Any:
        """Wait for all members, and return their results in the order of the members.

        Raises:
            InvalidError: The group was stopped.
            Error: A member has failed.
        """
        return self.wait_each(_wait)

    def wait_each(self, finish: Callable[[M], T]) -> list[T]:
        """Do what :meth:`wait` does by a function that waits for a member."""
        found: list[T] = []
        try:
            with self._lock:
                self._refuse_stopped()
                while self._members:
                    taken = self._taken
                    result = finish(self._members[0])
                    if self._take(taken):
                        found.append(result)
        except BaseException as error:
            self.stop(error)
            raise
        return found

    def cancel(self) -> None:
        """Cancel all members, which then have to be waited for or stopped."""
        for member in self._members[:]:
            with suppress(Exception):
                member.cancel()

    def stop(self, cause: BaseException | None = None) -> None:
        """Cancel all members, and return when none of them uses memory any more.

        Errors of members are notes of ``cause``, if it is given. An exception of a signal handler
        is raised at the end.
        """
        interruption: BaseException | None = None
        while self._members:
            try:
                self.cancel()
                with self._lock:  # of a thread that waits for a member
                    while self._members:
                        self.is_stopped = True
                        taken = self._taken
                        _end(self._members[0], cause)
                        self._take(taken)
            except BaseException as raised:
                interruption = interruption or raised
        if interruption is not None:
            raise interruption

    def __enter__(self: G) -> G:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.stop(error)

    def __del__(self) -> None:
        if self.__dict__.get("_members"):
            self.stop()

    def _take(self, taken: int) -> bool:
        """Remove the first member, if no other has been removed since ``taken`` was counted.

        A signal handler may have waited for it, too.
        """
        is_first = taken == self._taken
        if is_first:
            del self._members[0]
            self._taken += 1
        return is_first

    def _refuse_stopped(self) -> None:
        if self.is_stopped:
            raise InvalidError("a request of this group failed, or the group was stopped")


G = TypeVar("G", bound=RequestGroup[Any])


class _Failed:
    """A member that could not be started. The wait for it raises its error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def wait(self) -> Any:
        try:
            raise self._error
        finally:
            del self  # the error's traceback has this frame

    def cancel(self) -> None:
        pass

    def stop(self, cause: object) -> None:
        pass


def _end(member: Any, cause: BaseException | None) -> None:
    """Return when a cancelled member uses memory no more."""
    try:
        if hasattr(member, "stop"):
            member.stop(cause)
        else:
            member.wait()
    except CancelledError:
        pass
    except Exception as error:  # h5py's as well, of what it has read
        _note(cause, error)


def _note(cause: BaseException | None, error: Exception) -> None:
    """Add an error to the one that is raised, which may be the same."""
    if cause is not None and str(error) not in str(cause) and hasattr(cause, "add_note"):
        cause.add_note(f"Another transfer of the same call failed, too: {error}")
