"""Batches of a data set that are read while earlier ones are used."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Protocol

from penstock.errors import IncompatibleError, InvalidError
from penstock.torch.data import order
from penstock.torch.data.dataset import host_in_worker
from penstock.torch.data.framework import torch
from penstock.torch.data.order import Indices, Order, Shuffle
from penstock.torch.data.samples import tensors_of
from penstock.torch.data.started import Failed, Started


class Source(Protocol):
    """A data set from which batches are read."""

    device: Any

    def __len__(self) -> int: ...

    def start(self, indices: Indices) -> Started:
        """Start to read a batch of samples."""

    def blocks(self, length: int | None = None) -> Indices:
        """Return the first sample of each block of consecutive samples."""


class Batches:
    """The batches of a data set, of which the next ones are read while one is used.

    Each iteration is an epoch. Ranks of ``torch.distributed`` share its samples: each sample is in
    one batch of one rank, once an epoch. All ranks give the same arguments, and make the same
    number of steps, unless there are fewer samples than ranks, or batches of one.

    The reads are asynchronous requests: there are no threads or processes of Python. On a GPU, the
    memory of batches belongs to a stream of their own, on which ``transform`` runs as well. The
    stream that is current when a batch is taken waits for it. A batch stays valid as long as it is
    referenced; its memory is then used again after the work that is queued on that stream.

    ``transform`` may return anything. The tensors in mappings, tuples, lists, sets and attributes
    of objects are found. After a batch that may have others (in a function, an iterator, an object
    of an extension module, a sparse tensor or a subclass of ``torch.Tensor``), the stream of the
    batches waits, before each read, for the work that is queued on the current one: all is valid
    as before, but ``transform`` no longer runs beside the work on the batch before.

    Leaving an iteration, by ``break`` or an error, cancels the pending reads.

    Args:
        dataset: An :class:`HDF5Dataset`, or another data set with its method ``start``.
        batch_size: Samples of a batch of one rank.
        shuffle: ``"full"``: all samples in random order. ``"blocks"``: blocks of consecutive
            samples in random order, such as those of a chunk, so that a chunk is decoded once or
            a few times an epoch. ``False``: in order.
        seed: An integer. The order depends on it, the epoch and the length of the data set, and
            not on ranks, ``batch_size`` or ``prefetch``.
        drop_last: Leave out the samples that do not fill a batch on all ranks. Without it, ranks
            share them: the last batch of a rank is smaller.
        prefetch: The number of batches that are read while one is used; 0 reads on demand. Memory
            for ``prefetch + 1`` batches is in use besides those that the program keeps, and those
            of the steps that are queued on a GPU, of which there are at most ``prefetch + 1``.
        weights: A weight for each sample. An epoch then draws as many samples as the data set has,
            with replacement, in proportion to the weights.
        block: Samples of a block of ``"blocks"``; by default those of a chunk.
        mix: The number of blocks in turn whose samples are mixed.
        rank: The rank and the number of ranks, if they are not those of ``torch.distributed``:
        world_size: for example 0 and 1 to read the same batches on all ranks.

    Raises:
        InvalidError: An argument has an invalid value.
        IncompatibleError: The data set cannot start reads.

    >>> batches = Batches(dataset, 256, seed=1)
    >>> for epoch in range(10):
    ...     batches.set_epoch(epoch)
    ...     for batch in batches:
    ...         step(batch["image"], batch["label"])
    """

    def __init__(
        self,
        dataset: Source,
        batch_size: int,
        *,
        shuffle: Shuffle = "full",
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int = 3,
        weights: Any = None,
        block: int | None = None,
        mix: int = 4,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if not callable(getattr(dataset, "start", None)):
            raise IncompatibleError(
                f"a {type(dataset).__name__} cannot start reads",
                remedy="give an HDF5Dataset, or use torch.utils.data.DataLoader",
            )
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
        self.batch_size = _number("batch_size", batch_size, 1)
        self.prefetch = _number("prefetch", prefetch, 0)
        self.shuffle = shuffle
        self.seed = _number("seed", seed, 0)
        self.drop_last = bool(drop_last)
        self._block = None if block is None else _number("block", block, 1)
        self._mix = _number("mix", mix, 1)
        self._weights = None if weights is None else order.checked_weights(weights, len(dataset))
        self._ranks = None
        if rank is not None and world_size is not None:
            self._ranks = _number("rank", rank, 0), _number("world_size", world_size, 1)
            if rank >= world_size:
                raise InvalidError(f"rank {rank} is not below the world size {world_size}")
        self._epoch = 0
        self._begin = 0
        """The position in the order from which the next iteration starts."""
        self._position = 0
        """The position after the batch that was taken last."""
        self._stream: Any = None
        self._is_reused_in_order = False
        """Whether the stream of the batches waits for the work on earlier ones before it reads.

        Then the memory of tensors that were not found in a batch is safe as well.
        """

    def __len__(self) -> int:
        """The number of batches of this rank in a whole epoch."""
        return sum(end > begin for begin, end in self._shares(0))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration, or of the current one. It grows at the end of each."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which starts at its first sample.

        If it is the epoch already, this does nothing: a state that was loaded stays.
        """
        epoch = _number("epoch", epoch, 0)
        if epoch != self._epoch:
            self._epoch, self._begin, self._position = epoch, 0, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batch that was taken last, the same on all ranks.

        A program with another number of ranks or another ``batch_size`` can load it: the samples
        that are left are the same.
        """
        return {
            "epoch": self._epoch,
            "position": self._position,
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
        position = _number("position", state["position"], 0)
        if position > len(self.dataset):
            raise InvalidError(f"the state has position {position} of {len(self.dataset)}")
        self._epoch = _number("epoch", state["epoch"], 0)
        self._begin = self._position = position

    def __iter__(self) -> Iterator[Any]:
        """Read the rest of the epoch. An iteration that starts later begins with the epoch."""
        begin, self._begin = self._begin, 0
        self._position = begin
        return self._batches(self._order(), begin, self._epoch)

    def _batches(self, samples: Order, begin: int, epoch: int) -> Generator[Any, None, None]:
        rank, ranks = self._rank()
        pending: deque[tuple[int, Started]] = deque()
        steps: deque[Any] = deque()
        ranges = iter(self._steps(begin))

        def start() -> None:
            for first, last in ranges:
                low, high = order.share(first, last, rank, ranks)
                if low < high:
                    mine = samples.step(first, last)[low - first : high - first]
                    pending.append((last, self._started(mine)))
                    return

        try:
            self._wait_for_earlier()
            for _ in range(self.prefetch):
                start()
            while True:
                self._wait_for_earlier()
                start()
                if not pending:
                    break
                last, started = pending.popleft()
                batch = self._taken(started, steps)
                del started
                self._position = last
                yield batch
                del batch  # the memory is the consumer's alone
            if self._epoch == epoch:
                self._epoch, self._position = epoch + 1, 0
        finally:
            for _, started in pending:
                started.cancel()
            for _, started in pending:
                started.close()
            self._wait_for_earlier()

    def _wait_for_earlier(self) -> None:
        if self._is_reused_in_order:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

    def _started(self, samples: Indices) -> Started:
        """Start to read a batch. An error is raised where the batch is taken."""
        try:
            with self._on_stream():
                return self.dataset.start(samples)
        except Exception as error:
            return Failed(error)

    def _taken(self, started: Started, steps: deque[Any]) -> Any:
        """Wait for a batch, and let the current stream wait for the work on it.

        ``steps`` has an event after the work that was queued on each of the last batches. Their
        memory is in use until then, so the program may be no more than ``prefetch`` steps ahead.
        """
        if self._stream is None:
            return started.wait()
        with self._on_stream():
            batch = started.wait()
        current = torch.cuda.current_stream(self._stream.device)
        steps.append(current.record_event())
        if len(steps) > max(self.prefetch, 1):
            steps.popleft().synchronize()
        current.wait_stream(self._stream)
        tensors, is_complete = tensors_of(batch)
        self._is_reused_in_order |= not is_complete
        for tensor in (*getattr(started, "made", ()), *tensors):
            if tensor.is_cuda:
                tensor.record_stream(current)
        return batch

    def _on_stream(self) -> AbstractContextManager[Any]:
        """Make the batches' own stream the current one, if they go to a GPU."""
        device = host_in_worker(self.dataset.device)
        if device.type != "cuda":
            return nullcontext()
        if self._stream is None:
            self._stream = _stream_of(device)
        stream: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return stream

    def _order(self) -> Order:
        count, seed = len(self.dataset), (self.seed, self._epoch)
        if self._weights is not None:
            return order.weighted(self._weights, count, seed)
        if self.shuffle == "full":
            return order.full(count, seed)
        if self.shuffle == "blocks":
            return order.blocks(self.dataset.blocks(self._block), count, self._mix, seed)
        return order.sequential(count)

    def _steps(self, begin: int) -> Iterator[tuple[int, int]]:
        """Yield the positions of each step of all ranks."""
        _, ranks = self._rank()
        count = len(self.dataset)
        for end in order.step_ends(begin, count, self.batch_size, ranks, drop_last=self.drop_last):
            yield begin, end
            begin = end

    def _shares(self, begin: int) -> Iterator[tuple[int, int]]:
        """Yield the positions of this rank in each step."""
        rank, ranks = self._rank()
        for first, last in self._steps(begin):
            yield order.share(first, last, rank, ranks)

    def _rank(self) -> tuple[int, int]:
        """Return the rank and the number of ranks."""
        if self._ranks is not None:
            return self._ranks
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return 0, 1
        return torch.distributed.get_rank(), torch.distributed.get_world_size()

    def __repr__(self) -> str:
        return f"<Batches of {self.batch_size} of {self.dataset!r}>"


@cache
def _stream_of(device: Any) -> Any:
    """Return the stream of all batches on a GPU.

    torch keeps the memory that a stream has freed for that stream alone. With a stream for each
    `Batches`, it would keep the memory of batches once for each stream of its pool.
    """
    return torch.cuda.Stream(device)


def _number(name: str, value: Any, least: int) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise IncompatibleError(f"{name}={value!r} is not an integer") from None
    if found < least:
        raise InvalidError(f"{name}={found} is less than {least}")
    return found
