"""The epochs of a data set: their order, the ranks that share it, and the reads ahead."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

from penstock import frameworks
from penstock.data import order
from penstock.data.order import Indices, Order, Shuffle
from penstock.data.started import Started
from penstock.data.streams import HOST, Stream
from penstock.errors import IncompatibleError, InvalidError
from penstock.request_group import RequestGroup


class Source(Protocol):
    """A data set from which batches are read."""

    def __len__(self) -> int: ...

    def blocks(self, length: int | None = None) -> Indices:
        """Return the first sample of each block of consecutive samples."""


class _Place(NamedTuple):
    """A place in the samples of all epochs."""

    epoch: int
    position: int
    """In the order of the epoch."""


class Epochs:
    """Batches of the samples of a data set, in an order of each epoch that ranks share.

    A derived class starts reads, makes their batches, and names the stream on which it does.
    """

    def __init__(
        self,
        dataset: Source,
        batch_size: int,
        shuffle: Shuffle,
        seed: int,
        drop_last: bool,
        prefetch: int,
        weights: Any,
        block: int | None,
        mix: int,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        if shuffle not in ("full", "blocks", False):
            raise InvalidError(f"shuffle={shuffle!r}", remedy='give "full", "blocks" or False')
        if weights is not None and shuffle != "full":
            raise InvalidError(
                f"weights draw samples at random, and shuffle={shuffle!r}",
                remedy='leave out shuffle, or give "full"',
            )
        if (rank is None) != (world_size is None):
            raise InvalidError("give rank and world_size together, or neither")
        self.dataset = dataset
        self.batch_size = number("batch_size", batch_size, 1)
        self.prefetch = number("prefetch", prefetch, 0)
        self.shuffle = shuffle
        self.seed = number("seed", seed, 0)
        self.drop_last = bool(drop_last)
        self._block = None if block is None else number("block", block, 1)
        self._mix = number("mix", mix, 1)
        self._weights = None if weights is None else order.checked_weights(weights, len(dataset))
        self._ranks = None
        if rank is not None and world_size is not None:
            self._ranks = number("rank", rank, 0), number("world_size", world_size, 1)
            if rank >= world_size:
                raise InvalidError(f"rank {rank} is not below the world size {world_size}")
        self._upcoming = _Place(0, 0)
        """Where the next iteration starts."""
        self._reached = self._upcoming
        """The place after the batch that was taken last."""

    def __len__(self) -> int:
        """The number of batches of this rank in a whole epoch."""
        return sum(high > low for _, _, low, high in self._shares(0))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration, or of the current one. It grows at the end of each."""
        return self._reached.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which starts at its first sample.

        If it is the epoch already, this does nothing: a state that was loaded stays.
        """
        epoch = number("epoch", epoch, 0)
        if epoch != self._upcoming.epoch:
            self._upcoming = self._reached = _Place(epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batch that was taken last, the same on all ranks.

        A program with another number of ranks or another ``batch_size`` can load it: the samples
        that are left are the same.
        """
        return {
            "epoch": self._reached.epoch,
            "position": self._reached.position,
            "samples": len(self.dataset),
            "seed": self.seed,
            "shuffle": self.shuffle,
            "weights": self._weights is not None,
            "block": self._block,
            "mix": self._mix,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue after the batch of a state.

        Raises:
            InvalidError: The state is that of another order of samples.
        """
        mine = self.state_dict()
        if missing := mine.keys() - state.keys():
            raise InvalidError(f"the state has no {min(missing)!r}", remedy="give a state_dict()")
        for what in mine.keys() - {"epoch", "position"}:
            if state[what] != mine[what]:
                raise InvalidError(
                    f"{what} was {state[what]!r} when the state was saved, and is {mine[what]!r}",
                    remedy="use the same data set and the same arguments as when it was saved",
                )
        position = number("position", state["position"], 0)
        if position > len(self.dataset):
            raise InvalidError(f"the state has position {position} of {len(self.dataset)}")
        self._upcoming = self._reached = _Place(number("epoch", state["epoch"], 0), position)

    def __iter__(self) -> Iterator[Any]:
        """Read the rest of the epoch. An iteration that starts later begins with the epoch."""
        epoch, begin = self._reached = self._upcoming
        self._upcoming = _Place(epoch, 0)
        return self._batches(self._order(epoch), begin, epoch)

    def _batches(self, samples: Order, begin: int, epoch: int) -> Generator[Any, None, None]:
        reads: RequestGroup[Started] = RequestGroup()
        ends: deque[list[int]] = deque()
        """Of each read, the positions after its batches."""
        taken: deque[Any] = deque()
        ranges = self._ranges(samples, begin)
        at_once = self._at_once()
        ahead = -(-self.prefetch // at_once)

        def upcoming() -> Iterator[Callable[[], Started]]:
            while found := list(islice(ranges, at_once)):
                ends.append([last for last, _ in found])
                yield partial(self._started, [part for _, part in found])

        starts = upcoming()
        try:
            with reads:
                self._follow()
                while reads.fill(starts, ahead + 1):
                    parts = self._parts(reads, taken)
                    for last in ends.popleft():
                        batch = next(parts)
                        self._reached = _Place(epoch, last)
                        yield batch
                        del batch  # the memory is the consumer's alone
                        self._follow()
                    parts.close()
            if self._upcoming.epoch == epoch:  # no other iteration has ended it meanwhile
                self._upcoming = _Place(epoch + 1, 0)
            self._reached = self._upcoming
        finally:
            self._follow()

    _follows = False
    """Whether the stream of the batches waits for the program's work before it takes memory."""

    def _stream(self) -> Stream:
        """Return the stream on which batches are read and made."""
        return HOST

    def _follow(self) -> None:
        if self._follows:
            self._stream().follow()

    def _at_once(self) -> int:
        """Return the number of batches that one read has."""
        return 1

    def _started(self, batches: Sequence[Indices]) -> Started:
        with self._stream().current():
            return self._start(batches)

    def _start(self, batches: Sequence[Indices]) -> Started:
        """Start to read batches."""
        raise NotImplementedError

    def _parts(self, reads: RequestGroup[Started], taken: deque[Any]) -> Generator[Any, None, None]:
        """Wait for a read when the first batch is asked for, and yield each of its batches.

        Args:
            reads: The read, and those after it.
            taken: What :meth:`Stream.hand_over` keeps. It lives as long as the iteration.
        """
        raise NotImplementedError

    def _ranges(self, samples: Order, begin: int) -> Iterator[tuple[int, Indices]]:
        """Yield the position after each batch of this rank, and its samples."""
        for first, last, low, high in self._shares(begin):
            if low < high:
                yield last, samples.part(first, last, low, high)

    def _order(self, epoch: int) -> Order:
        count, seed = len(self.dataset), (self.seed, epoch)
        if self._weights is not None:
            return order.weighted(self._weights, count, seed)
        if self.shuffle == "full":
            return order.full(count, seed)
        if self.shuffle == "blocks":
            return order.blocks(self.dataset.blocks(self._block), count, self._mix, seed)
        return order.sequential(count)

    def _shares(self, begin: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the positions of each step of all ranks, and those of this rank in it."""
        (rank, ranks), count = self._rank(), len(self.dataset)
        for end in order.step_ends(begin, count, self.batch_size, ranks, drop_last=self.drop_last):
            yield begin, end, *order.share(begin, end, rank, ranks)
            begin = end

    def _rank(self) -> tuple[int, int]:
        """Return the rank and the number of ranks: those of torch, if the program uses it."""
        if self._ranks is not None:
            return self._ranks
        torch = frameworks.loaded("torch")
        if (
            torch is None
            or not torch.distributed.is_available()
            or not torch.distributed.is_initialized()
        ):
            return 0, 1
        return torch.distributed.get_rank(), torch.distributed.get_world_size()

    def __repr__(self) -> str:
        return f"<Batches of {self.batch_size} of {self.dataset!r}>"


def number(name: str, value: Any, least: int) -> int:
    """Return an argument as an integer of at least ``least``."""
    try:
        found = operator.index(value)
    except TypeError:
        raise IncompatibleError(f"{name}={value!r} is not an integer") from None
    if found < least:
        raise InvalidError(f"{name}={found} is less than {least}")
    return found
