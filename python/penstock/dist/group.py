"""What a call needs of the processes that make it together, whoever has started them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from penstock.dist.mpi.ranks import RankError

T = TypeVar("T")


class Group(Protocol):
    """What ranks do together. All methods are collective, but for :meth:`leave`."""

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

    def all_gather(self, value: T, step: str) -> list[T]:
        """Return on all ranks the small values of all, in order."""

    def share(self, memory: np.ndarray[Any, Any], bounds: Sequence[int], step: str) -> None:
        """Complete bytes in host memory on all ranks, each of which has filled its own share."""

    def free(self) -> None:
        """Give back what the group took. All ranks do so after the same step."""

    def leave(self) -> None:
        """Take part in no step any more."""


def made_by_all(group: Group, step: str, make: Callable[[], T]) -> T:
    """Return what each rank has made, or raise on all if one cannot. It is collective."""
    made: Any = None
    error: Exception | None = None
    try:
        made = make()
    except Exception as raised:
        error = raised
    group.agree(step, error)
    found: T = made
    return found
