"""The collective operations of ranks, independent of the launcher."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from penstock.errors import Error

T = TypeVar("T")
U = TypeVar("U")

_SMALL = 16 << 10
"""Bytes of a value that all ranks receive together with what they agree on, at most."""


class RankError(Error, RuntimeError):
    """A collective step failed on one rank or more, so it failed on all.

    ``rank`` is the first rank that failed, disagreed or was missing. On the rank itself,
    ``__cause__`` is its own exception.
    """

    def __init__(self, message: str, *, rank: int = -1, **details: Any) -> None:
        super().__init__(message, **details)
        self.rank = rank
        self._details["rank"] = rank


class Gathering:
    """Ranks, and their collective operations; :meth:`leave` alone is not collective.

    A subclass defines :meth:`all_gather` and :meth:`share`. The other methods agree by a call in
    which each rank sends a value to all others.

    Args:
        rank: The rank of this process.
        size: The number of ranks.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.failure: RankError | None = None
        """The last error of a step. All ranks have it."""
        self.is_broken = False
        """Whether ranks are missing, so that no step is possible any more."""

    def all_gather(self, value: T, step: str) -> list[T]:
        """Return on all ranks the small values of all ranks, in order.

        They can be pickled, and the caller has just called :meth:`agree`.
        """
        raise NotImplementedError

    def share(self, memory: np.ndarray[Any, Any], bounds: Sequence[int], step: str) -> None:
        """Complete bytes in host memory on all ranks, each of which has filled its own share.

        Args:
            memory: The bytes, one dimension.
            bounds: Where the shares begin, in order of ranks, and at last where they end.
            step: What this rank does, in the same words on all ranks.
        """
        raise NotImplementedError

    def agree(self, step: str, error: BaseException | None = None) -> None:
        """Return on all ranks, or raise on all: the start of every collective step.

        Args:
            step: What this rank does, in the same words on all ranks.
            error: The error that stops this rank.

        Raises:
            RankError: A rank has failed or does something else.
        """
        self._agree(step, error, None)

    def _agree(self, step: str, error: BaseException | None, value: T) -> list[T]:
        """Return on all ranks the values of all ranks, or raise on all."""
        words = None if error is None else in_words(error)
        gathered = self.all_gather((step, words, value), step)
        for rank, (_, failed, _) in enumerate(gathered):
            if failed is not None:
                self.failure = RankError(f"{step}: rank {rank}: {failed}", rank=rank)
                raise self.failure from error
        of_root = gathered[0][0]
        for rank, (other, *_) in enumerate(gathered):
            if other != of_root:
                self.failure = RankError(
                    f"the ranks disagree: rank 0 is at {of_root}, rank {rank} at {other}",
                    rank=rank,
                    remedy="make the same calls with the same arguments on all ranks",
                )
                raise self.failure
        return [value for *_, value in gathered]

    def made_by_all(self, step: str, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on each rank, or raise on all if it fails on one."""
        made: Any = None
        error: Exception | None = None
        try:
            made = make()
        except Exception as raised:
            error = raised
        self.agree(step, error)
        found: T = made
        return found

    def broadcast(self, step: str, make: Callable[[], T], error: BaseException | None = None) -> T:
        """Return on all ranks what ``make`` returns on rank 0, or raise its error on all."""
        return self.broadcast_and_gather(step, make, None, error)[0]

    def broadcast_and_gather(
        self, step: str, make: Callable[[], T], own: U, error: BaseException | None = None
    ) -> tuple[T, list[U]]:
        """Return also the small values of all ranks, in order, by one call if both are small."""
        made: T | None = None
        pickled = b""
        if self.rank == 0 and error is None:
            try:
                made = make()
                pickled = pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
            except Exception as raised:
                error = raised
        # Only a large value is worth a second call.
        is_small = len(pickled) <= _SMALL
        gathered = self._agree(step, error, (pickled if is_small else b"", own))
        found = gathered[0][0] or self.from_root(pickled, step)
        value: T = pickle.loads(found) if made is None else made
        return value, [of_rank for _, of_rank in gathered]

    def from_root(self, value: T | None, step: str) -> T:
        """Return on all ranks the value of rank 0."""
        found = self.all_gather(value, step)[0]
        assert found is not None
        return found

    def free(self) -> None:
        """Release the resources of the group, if it owns any, after the same step on all ranks."""

    def leave(self) -> None:
        """Take part in no further step. The other ranks then fail by a timeout of the group."""
        self.is_broken = True


def in_words(error: BaseException) -> str:
    """Return the text of an error of this rank for the other ranks."""
    try:
        text = str(error)
    except Exception as failure:  # the other ranks wait for some text
        text = f"its text cannot be made ({type(failure).__name__})"
    return f"{type(error).__name__} on {socket.gethostname()}: {text}"
