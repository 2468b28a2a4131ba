"""Reads of batches that were started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from penstock._options import OptionKeys
from penstock.data.started import Started
from penstock.hdf5 import reading
from penstock.hdf5.cf import Decoding
from penstock.hdf5.dataset_reader import DatasetReader
from penstock.hdf5.many import start_into

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


def start(
    started: Started,
    parts: Sequence[Part],
    options: OptionKeys | None = None,
    cf: bool | Decoding = False,
) -> Started:
    """Start to read parts of datasets, add the reads to those of a batch, and return this.

    The options are those of :class:`penstock.OptionKeys`, and ``cf`` is that of
    :func:`penstock.read`. After an error, none of the batch's reads is under way.
    """
    options = {} if options is None else options
    with started:
        if parts and len(parts) > _MOST_REQUESTS[parts[0].out.device.type]:
            datasets, selections, out = zip(*parts, strict=True)
            started.add(start_into(datasets, selections, out, options, cf))
            return started
        for part in parts:
            dataset, selection, out = part.dataset, part.selection, _filled(part)
            started.add(reading.start_into_reused(dataset, selection, out, options, cf))
    return started


def read(part: Part, options: OptionKeys, cf: bool | Decoding = False) -> None:
    """Read a part of a dataset, which is faster than a request for a few bytes."""
    reader = DatasetReader.of(part.dataset)
    where = part.dataset, reader, part.selection, _filled(part), None, None, None, options
    reading.read_placed(*where, cf=cf, is_new=True)


def _filled(part: Part) -> Any:
    """Return the array that is filled: for host memory one of NumPy, if that has the type."""
    if not part.out.is_cuda:
        with suppress(TypeError):
            return part.out.numpy()
    return part.out
