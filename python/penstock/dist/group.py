"""The collective operations that the calls need, independent of the launcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from penstock.dist.mpi.ranks import RankError

T = TypeVar("T")
U = TypeVar("U")


class Group(Protocol):
    """The collective operations of ranks; :meth:`leave` alone is not collective."""

    rank: int
    size: int
    failure: RankError | None
    """The last error of a step. All ranks have it."""
    is_broken: bool
    """Whether ranks are missing, so that no step is possible any more."""

    def agree(self, step: str, error: BaseException | None = None) -> None:
        """Return on all ranks, or raise a :class:`RankError` on all if one has an error."""

    def broadcast(self, step: str, make: Callable[[], T], error: BaseException | None = None) -> T:
        """Return on all ranks what ``make`` returns on rank 0, or raise its error on all."""

    def broadcast_and_gather(
        self, step: str, make: Callable[[], T], own: U, error: BaseException | None = None
    ) -> tuple[T, list[U]]:
        """Return also the small values of all ranks, in order."""

    def all_gather(self, value: T, step: str) -> list[T]:
        """Return on all ranks the small values of all ranks, in order."""

    def share(self, memory: np.ndarray[Any, Any], bounds: Sequence[int], step: str) -> None:
        """Complete bytes in host memory on all ranks, each of which has filled its own share."""

    def free(self) -> None:
        """Release the resources of the group. All ranks do so after the same step."""

    def leave(self) -> None:
        """Take part in no further step."""


def made_by_all(group: Group, step: str, make: Callable[[], T]) -> T:
    """Return what ``make`` returns on each rank, or raise on all if it fails on one. Collective."""
    made: Any = None
    error: Exception | None = None
    try:
        made = make()
    except Exception as raised:
        error = raised
    group.agree(step, error)
    found: T = made
    return found
