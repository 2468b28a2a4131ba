"""Reads of a dataset slab by slab, with reads of the next slabs pending."""

from __future__ import annotations

import itertools
import math
import operator
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

from penstock.dtypes import element_type
from penstock.errors import InvalidError
from penstock.hdf5 import reading
from penstock.hdf5.cf import Decoding
from penstock.hdf5.submit import SubmitOptions
from penstock.placement import Device, Library, parse_device, place
from penstock.request_group import RequestGroup

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock._options import OptionKeys
    from penstock.request import Request

Index: TypeAlias = tuple[slice, ...]
SlabShape: TypeAlias = "SupportsIndex | Iterable[SupportsIndex | None]"
"""The lengths of a slab; ``None``, or a length left out, is the whole dimension."""


def slabs(whole: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Index]:
    """Yield the slabs of an array in C order. The last slabs of a dimension may be smaller."""
    starts = [range(0, length, step) for length, step in zip(whole, shape, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(
            slice(start, min(start + step, length))
            for start, step, length in zip(corner, shape, whole, strict=True)
        )


def slab_shape(whole: tuple[int, ...], shape: SlabShape) -> tuple[int, ...]:
    """Return the lengths of a slab of an array."""
    listed = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    given = tuple(None if n is None else operator.index(n) for n in listed)
    if len(given) > len(whole) or any(n is not None and n < 1 for n in given):
        raise InvalidError(f"{shape} is not the shape of a block of a dataset of shape {whole}")
    filled = given + (None,) * (len(whole) - len(given))
    return tuple(
        max(n if step is None else min(step, n), 1) for step, n in zip(filled, whole, strict=True)
    )


class Blocks(Iterator[tuple[Index, Any]]):
    """An iterator over the slabs of a dataset; see :meth:`penstock.Dataset.blocks`."""

    def __init__(self, count: int, slabs: Generator[tuple[Index, Any], None, None]) -> None:
        self._count = count
        self._slabs = slabs

    def __len__(self) -> int:
        """The number of all slabs, also of those that were yielded already."""
        return self._count

    def __next__(self) -> tuple[Index, Any]:
        return next(self._slabs)

    def close(self) -> None:
        """Cancel the pending reads. There are no more slabs."""
        self._slabs.close()


def blocks(
    dataset: Any,
    shape: SlabShape,
    *,
    prefetch: SupportsIndex = 2,
    device: Device = None,
    dtype: Any = None,
    reuse: bool = False,
    like: Library | None = None,
    pin: bool = False,
    cf: bool | Decoding = False,
    **options: Unpack[OptionKeys],
) -> Blocks:
    """Return the slabs of a dataset; see :meth:`penstock.Dataset.blocks`."""
    if dataset.shape is None:
        raise InvalidError("the dataset has no data")
    ahead = operator.index(prefetch)
    if ahead < 0:
        raise InvalidError(f"prefetch {prefetch} is negative")
    SubmitOptions.of(None, options)
    device = place(device, like, pin)
    parse_device(device)
    if dtype is not None:
        element_type(dtype)
    lengths = slab_shape(dataset.shape, shape)
    count = math.prod(-(-n // step) for n, step in zip(dataset.shape, lengths, strict=True))
    return Blocks(count, _blocks(dataset, lengths, ahead, device, dtype, reuse, cf, options))


def _blocks(
    dataset: Any,
    shape: tuple[int, ...],
    prefetch: int,
    device: Device,
    dtype: Any,
    reuse: bool,
    cf: bool | Decoding,
    options: OptionKeys,
) -> Generator[tuple[Index, Any], None, None]:
    free: deque[Any] = deque()

    def start(index: Index) -> Request[Any]:
        lengths = tuple(part.stop - part.start for part in index)
        out = _part(free[0], lengths, shape) if free else None
        if out is None:
            keys = {"device": device, "dtype": dtype, "cf": cf}
            return reading.read_async(dataset, index, **keys, **options)
        free.popleft()
        return reading.start_into_reused(dataset, index, out, options, cf)

    indices, rest = itertools.tee(slabs(dataset.shape, shape))
    starts = (partial(start, index) for index in rest)
    reads: RequestGroup[Request[Any]] = RequestGroup()
    with reads:
        while reads.fill(starts, prefetch + 1):
            array = reads.next()
            yield next(indices), array
            if reuse and tuple(array.shape)[: len(shape)] == shape:
                free.append(array)
            del array


def _part(array: Any, lengths: tuple[int, ...], whole: tuple[int, ...]) -> Any:
    """Return the part of an array that a smaller slab fills; ``None`` if NumPy cannot."""
    if lengths == whole:
        return array
    return array[tuple(map(slice, lengths))] if isinstance(array, np.ndarray) else None
