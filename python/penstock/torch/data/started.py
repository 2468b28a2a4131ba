"""Reads of batches that were started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from penstock._options import OptionKeys
from penstock.data.started import Started
from penstock.hdf5 import reading
from penstock.hdf5.cf import Decoding
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


class Transformed(Started):
    """A batch that a function of the program makes of the tensors that are read.

    Args:
        finish: Called after the reads, returns the tensors.
        transform: Called with these, returns the batch. ``None`` for the tensors themselves.
    """

    def __init__(self, finish: Callable[[], Any], transform: Callable[[Any], Any] | None) -> None:
        self.made: list[Any] = []
        """The tensors that were given to ``transform``."""
        super().__init__(
            finish if transform is None else _transformed(finish, transform, self.made)
        )


def _transformed(
    finish: Callable[[], Any], transform: Callable[[Any], Any], tensors: list[Any]
) -> Callable[[], Any]:
    """Return a function that transforms a batch, whose tensors it puts into a list before."""

    def made() -> Any:
        batch = finish()
        tensors[:] = tensors_of(batch)[0]
        return transform(batch)

    return made


def start(
    started: Started,
    parts: Sequence[Part],
    options: OptionKeys | None = None,
    cf: bool | Decoding = False,
) -> None:
    """Start to read parts of datasets, and add the reads to those of a batch.

    The options are those of :class:`penstock.OptionKeys`, and ``cf`` is that of
    :func:`penstock.read`. After an error, none of the batch's reads is under way.
    """
    options = {} if options is None else options
    with started:
        if parts and len(parts) > _MOST_REQUESTS[parts[0].out.device.type]:
            datasets, selections, out = zip(*parts, strict=True)
            started.add(start_into(datasets, selections, out, options, cf))
            return
        for part in parts:
            out = _filled(part)
            made = reading.start_into_reused(part.dataset, part.selection, out, options, cf)
            started.add(made)


def read(parts: Sequence[Part], options: OptionKeys, cf: bool | Decoding = False) -> None:
    """Read parts of datasets one after the other, which is faster than requests for a few bytes."""
    for part in parts:
        quick = QuickReader.of(part.dataset)
        reading.read_placed(
            part.dataset, quick, part.selection, _filled(part), None, None, None, options, cf=cf
        )


def _filled(part: Part) -> Any:
    """Return the array that is filled: for host memory one of NumPy, if that has the type."""
    if not part.out.is_cuda:
        with suppress(TypeError):
            return part.out.numpy()
    return part.out
