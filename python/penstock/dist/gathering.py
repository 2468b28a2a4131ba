"""Agreement of ranks by a collective call in which each rank sends a value to all others."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from penstock.dist.mpi.ranks import RankError, disagreement, failed_error, in_words

T = TypeVar("T")
U = TypeVar("U")

_SMALL = 16 << 10
"""Bytes of a value that all ranks receive together with what they agree on, at most."""


class Gathering:
    """Ranks whose subclass defines :meth:`all_gather` and :meth:`share`.

    The methods are those of :class:`penstock.dist.group.Group`.

    Args:
        rank: The rank of this process.
        size: The number of ranks.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.failure: RankError | None = None
        self.is_broken = False

    def all_gather(self, value: T, step: str) -> list[T]:
        """Return on all ranks the values of all ranks, in order."""
        raise NotImplementedError

    def share(self, memory: np.ndarray[Any, Any], bounds: Sequence[int], step: str) -> None:
        """Complete bytes in host memory on all ranks, each of which has filled its own share."""
        raise NotImplementedError

    def agree(self, step: str, error: BaseException | None = None) -> None:
        """Return on all ranks, or raise on all."""
        self._agree(step, error, None)

    def _agree(self, step: str, error: BaseException | None, value: T) -> list[T]:
        """Return on all ranks the values of all ranks, or raise on all."""
        words = None if error is None else in_words(error)
        gathered = self.all_gather((step, words, value), step)
        for rank, (_, failed, _) in enumerate(gathered):
            if failed is not None:
                self.failure = failed_error(step, rank, failed)
                raise self.failure from error
        of_root = gathered[0][0]
        for rank, (other, *_) in enumerate(gathered):
            if other != of_root:
                self.failure = disagreement(of_root, rank, other)
                raise self.failure
        return [value for *_, value in gathered]

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
        """Do nothing: the caller owns the group."""

    def leave(self) -> None:
        """Take part in no further step. The other ranks then fail by a timeout of the group."""
        self.is_broken = True
