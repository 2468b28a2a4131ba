"""Streams on which batches are made in GPU memory, beside those of the program."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any


class Stream:
    """No stream: for batches in host memory, or of arrays without a library."""

    def follow(self) -> None:
        """Wait for the work that is queued on the current stream."""

    def current(self) -> AbstractContextManager[Any]:
        """Make this stream the current one within a block."""
        return nullcontext()

    def hand_over(self, tensors: Iterable[Any], steps: deque[Any], most: int) -> None:
        """Let the current stream use the tensors of a batch after the work on this one.

        ``steps`` is what this method keeps of earlier batches, and ``most`` the number of batches
        that are read ahead.
        """


HOST = Stream()


@cache
def stream_of(library: str, ordinal: int) -> Stream:
    """Return the stream of all batches of a library on a GPU.

    A library keeps the memory that a stream has freed for that stream alone. With a stream for each
    iteration, it would keep the memory of batches several times.
    """
    return _OfTorch(ordinal) if library == "torch" else _OfCupy(ordinal)


class _OfTorch(Stream):
    def __init__(self, ordinal: int) -> None:
        self._cuda = import_module("torch").cuda
        self._stream = self._cuda.Stream(ordinal)

    def follow(self) -> None:
        self._stream.wait_stream(self._cuda.current_stream(self._stream.device))

    def current(self) -> AbstractContextManager[Any]:
        stream: AbstractContextManager[Any] = self._cuda.stream(self._stream)
        return stream

    def hand_over(self, tensors: Iterable[Any], steps: deque[Any], most: int) -> None:
        # An event after the work that was queued on each of the last batches. Their memory is in
        # use until then, so the program may be no more than `most` steps ahead, at least one.
        current = self._cuda.current_stream(self._stream.device)
        steps.append(current.record_event())
        if len(steps) > max(most, 1):
            steps.popleft().synchronize()
        current.wait_stream(self._stream)
        for tensor in tensors:
            if tensor.is_cuda:
                tensor.record_stream(current)


class _OfCupy(Stream):
    """CuPy's stream, which has to follow the work on earlier batches.

    CuPy gives the memory that a stream has freed to that stream alone, at once.
    """

    def __init__(self, ordinal: int) -> None:
        self._cuda = import_module("cupy").cuda
        self._ordinal = ordinal
        with self._cuda.Device(ordinal):
            self._stream = self._cuda.Stream(non_blocking=True)

    def follow(self) -> None:
        with self._cuda.Device(self._ordinal):
            self._stream.wait_event(self._cuda.get_current_stream().record())

    @contextmanager
    def current(self) -> Iterator[None]:
        with self._cuda.Device(self._ordinal), self._stream:
            yield

    def hand_over(self, tensors: Iterable[Any], steps: deque[Any], most: int) -> None:
        with self._cuda.Device(self._ordinal):
            self._cuda.get_current_stream().wait_event(self._stream.record())
