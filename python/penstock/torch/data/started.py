"""Reads of batches that were started."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from penstock._options import OptionKeys
from penstock.errors import Error
from penstock.hdf5 import reading
from penstock.hdf5.many import start_into
from penstock.hdf5.quick import QuickReader
from penstock.torch.data.samples import tensors_of

_MOST_REQUESTS = {"cpu": sys.maxsize, "cuda": 16}
"""The largest number of parts that are read by a request each, by where they go.

Such requests are the cheapest to make, and keep the chunks that they decode. One request for all
parts divides their chunks between the processors and the GPU.
"""


class Part(NamedTuple):
    """A read of a dataset."""

    dataset: Any
    """The ``h5py.Dataset``."""
    selection: Any
    out: Any
    """The tensor that is filled: C-contiguous, of the selection's shape."""


class Pending(Protocol):
    """A read that was started, by an asynchronous request or by several."""

    def wait(self) -> Any:
        """Wait for the read."""

    def cancel(self) -> None:
        """Cancel the read, which then has to be waited for."""


class Started:
    """A batch that is being read. If it is dropped before :meth:`wait`, its read is cancelled.

    Args:
        pending: The reads.
        finish: Called after them, returns the tensors of the batch.
        transform: Called with these, returns the batch.
    """

    def __init__(
        self,
        pending: Sequence[Pending],
        finish: Callable[[], Any],
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self._pending = list(pending)
        self._failure: BaseException | None = None
        self._lock = threading.RLock()
        self._finish = finish
        self._transform = transform
        self.made: Sequence[Any] = ()
        """The tensors that were given to ``transform``."""

    def wait(self) -> Any:
        """Wait for the read, and return the batch.

        Raises:
            Error: The read failed.
        """
        self.settle()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame
        made = self._finish()
        if self._transform is None:
            return made
        self.made = tensors_of(made)[0]  # a list, as the transform may change a dictionary
        return self._transform(made)

    @property
    def is_pending(self) -> bool:
        """Whether there are reads that were not waited for, which keep their files open."""
        return bool(self._pending)

    def add(self, pending: Sequence[Pending]) -> None:
        """Add reads, while no other thread uses this object."""
        self._pending += pending

    def settle(self) -> None:
        """Wait for the reads added so far, so that their files can be closed.

        Any thread may call this. :meth:`wait` raises their error.
        """
        with self._lock:
            try:
                while self._pending:
                    self._pending[0].wait()
                    del self._pending[0]
            except BaseException as error:
                self._failure = error
                self.close()
                if not isinstance(error, Exception):
                    raise

    def cancel(self) -> None:
        """Cancel the read. :meth:`close` waits for its end."""
        for request in self._pending[:]:
            with suppress(Error):
                request.cancel()

    def close(self) -> None:
        """Cancel the read, and wait until its memory is used no more."""
        self.cancel()
        with self._lock:
            while self._pending:
                with suppress(Exception):  # h5py's as well, of what it has read
                    self._pending[-1].wait()
                self._pending.pop()

    def __del__(self) -> None:
        if self.__dict__.get("_pending"):
            self.close()


class Failed(Started):
    """A batch whose read could not be started."""

    def __init__(self, error: Exception) -> None:
        def fail() -> Any:
            raise error

        super().__init__((), fail)


def start(parts: Sequence[Part], options: OptionKeys | None = None) -> list[Pending]:
    """Start to read parts of datasets. The options are those of :class:`penstock.OptionKeys`."""
    options = {} if options is None else options
    if parts and len(parts) > _MOST_REQUESTS[parts[0].out.device.type]:
        datasets, selections, out = zip(*parts, strict=True)
        return [start_into(datasets, selections, out, options)]
    made: list[Pending] = []
    try:
        for part in parts:
            made.append(_start(part, options))
    except BaseException:
        Started(made, list).close()
        raise
    return made


def read(parts: Sequence[Part], options: OptionKeys) -> None:
    """Read parts of datasets one after the other, which is faster than requests for a few bytes."""
    for part in parts:
        quick = QuickReader.of(part.dataset)
        reading.read_placed(
            part.dataset, quick, part.selection, _filled(part), None, None, None, options
        )


def _start(part: Part, options: OptionKeys) -> Pending:
    quick = QuickReader.of(part.dataset)
    return reading.start_quick(
        part.dataset, quick, part.selection, _filled(part), None, options, is_new=True
    )


def _filled(part: Part) -> Any:
    """Return the array that is filled: for host memory one of NumPy, if that has the type."""
    if not part.out.is_cuda:
        with suppress(TypeError):
            return part.out.numpy()
    return part.out
