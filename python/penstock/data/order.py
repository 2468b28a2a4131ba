"""The order of the samples of an epoch, and the steps into which ranks divide it.

An order depends on its seed, the epoch and the number of samples alone: not on ranks, batch size,
prefetch or the version of NumPy. A position in it is therefore valid on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.errors import InvalidError

Indices: TypeAlias = NDArray[np.int64]
Shuffle: TypeAlias = Literal["full", "blocks", False]


class Order(NamedTuple):
    """The samples of an epoch, in order."""

    indices: Indices
    key: Indices | None = None
    """By sample, the place by which the samples of a step are divided among ranks."""

    def part(self, begin: int, end: int, low: int, high: int) -> Indices:
        """Return a rank's part, positions ``low`` to ``high``, of a step, in this order.

        With a key, ranks have as few places each as possible.
        """
        if self.key is None:
            return self.indices[low:high]
        found = self.indices[begin:end]
        by_place = np.argsort(self.key[found], kind="stable")
        return found[np.sort(by_place[low - begin : high - begin])]


def sequential(count: int) -> Order:
    """Return the samples by number."""
    return Order(np.arange(count, dtype=np.int64))


def full(count: int, seed: Sequence[int]) -> Order:
    """Return a random permutation of all samples."""
    return Order(_permutation(count, _bits(seed)))


def blocks(starts: Indices, count: int, mix: int, seed: Sequence[int]) -> Order:
    """Return blocks of consecutive samples in random order; each few of them are mixed.

    Args:
        starts: The first sample of each block, in ascending order.
        count: The number of samples.
        mix: The number of blocks in turn whose samples are mixed.
        seed: The seed.
    """
    bits = _bits(seed)
    lengths = np.diff(starts, append=count)
    place = np.empty(len(starts), np.int64)
    place[_permutation(len(starts), bits)] = np.arange(len(starts))
    key = np.repeat(place, lengths)
    return Order(np.lexsort((bits(count), key // mix)), key)


def weighted(weights: NDArray[np.float64], count: int, seed: Sequence[int]) -> Order:
    """Return samples that are drawn with replacement, in proportion to their weights."""
    total = np.cumsum(weights)
    drawn = (_bits(seed)(count) >> np.uint64(11)) * (total[-1] * 2.0**-53)
    found = np.searchsorted(total, drawn, side="right")
    # Rounding can reach the total. The last sample with a weight is the first to reach it.
    return Order(np.minimum(found, np.searchsorted(total, total[-1])))


def checked_weights(weights: Any, count: int) -> NDArray[np.float64]:
    """Return weights as an array of ``count`` numbers."""
    found = np.asarray(weights, np.float64)
    if found.shape != (count,):
        raise InvalidError(
            f"weights of shape {found.shape} are given for {count} samples",
            remedy="give one weight for each sample",
        )
    if count and not (np.isfinite(found).all() and (found >= 0).all() and found.any()):
        raise InvalidError(
            "weights must be finite and not negative, and one must be positive",
            remedy="give one weight for each sample, zero for samples that are never drawn",
        )
    return found


def step_ends(begin: int, count: int, batch: int, ranks: int, *, drop_last: bool) -> list[int]:
    """Return the positions at which the steps of all ranks end, from position ``begin`` on.

    Each step has ``batch`` samples for each rank. The last step has the rest, unless that is
    dropped. If the rest is less than a sample for each rank, the step before gives up some samples,
    so that all ranks make the same number of steps. With batches of one sample that is impossible.
    """
    whole = batch * ranks
    steps, rest = divmod(count - begin, whole)
    ends = [begin + whole * (step + 1) for step in range(steps)]
    if not rest or drop_last:
        return ends
    if rest < ranks and ends and whole - (ranks - rest) >= ranks:
        ends[-1] = count - ranks
    return [*ends, count]


def share(begin: int, end: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the part of a range that is a rank's. The parts differ by at most one in length.

    If the range is shorter than the number of ranks, the first ranks have a part.
    """
    length = end - begin
    return begin - (-length * rank // ranks), begin - (-length * (rank + 1) // ranks)


def _bits(seed: Sequence[int]) -> Callable[[int], NDArray[np.uint64]]:
    """Return a source of random 64-bit numbers, which NumPy guarantees to be the same for ever."""
    source = np.random.PCG64(np.random.SeedSequence(seed))

    def draw(count: int) -> NDArray[np.uint64]:
        drawn: NDArray[np.uint64] = source.random_raw(count)
        return drawn

    return draw


def _permutation(count: int, bits: Callable[[int], NDArray[np.uint64]]) -> Indices:
    # Equal numbers stay in order, so that the result is always the same.
    return np.argsort(bits(count), kind="stable")
