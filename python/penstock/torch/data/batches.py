"""Batches of a data set that are read while earlier ones are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, Protocol

from penstock.data import epochs
from penstock.data.epochs import Epochs
from penstock.data.order import Indices, Shuffle
from penstock.data.started import Started
from penstock.data.streams import HOST, Stream, stream_of
from penstock.errors import IncompatibleError
from penstock.request_group import RequestGroup
from penstock.torch.data.dataset import host_in_worker
from penstock.torch.data.framework import torch
from penstock.torch.data.samples import tensors_of


class Source(epochs.Source, Protocol):
    """A data set from which batches are read, into memory of a device."""

    device: Any

    def start(self, indices: Indices) -> Started:
        """Start to read samples."""


class Batches(Epochs):
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

    dataset: Source

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
        order = shuffle, seed, drop_last, prefetch, weights, block, mix, rank, world_size
        super().__init__(dataset, batch_size, *order)

    def _stream(self) -> Stream:
        device = host_in_worker(self.dataset.device)
        if device.type != "cuda":
            return HOST
        ordinal = torch.cuda.current_device() if device.index is None else device.index
        return stream_of("torch", ordinal)

    def _start(self, batches: Sequence[Indices]) -> Started:
        (samples,) = batches
        return self.dataset.start(samples)

    def _parts(self, reads: RequestGroup[Started], taken: deque[Any]) -> Generator[Any, None, None]:
        stream, given = self._stream(), getattr(reads.first, "given", ())
        with stream.current():
            batch = [reads.next()]
        if stream is not HOST:
            tensors, is_complete = tensors_of(batch[0])
            # Otherwise, tensors that are not found may be in memory that is used again.
            self._follows |= not is_complete
            stream.hand_over((*given, *tensors), taken, self.prefetch)
            del tensors
        del given
        yield batch.pop()  # the memory is the consumer's alone
