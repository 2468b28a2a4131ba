"""Reads of a dataset slab by slab, with reads of the next slabs pending."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from penstock.device_array import DeviceArray
from penstock.dtypes import element_type
from penstock.errors import Error, InvalidError
from penstock.hdf5 import reading
from penstock.hdf5.submit import SubmitOptions
from penstock.placement import Device, parse_device

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock._options import OptionKeys
    from penstock.request import Request

Index: TypeAlias = tuple[slice, ...]


def slabs(whole: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Index]:
    """Yield the slabs of an array in C order. The last slabs of a dimension may be smaller."""
    starts = [range(0, length, step) for length, step in zip(whole, shape, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(
            slice(start, min(start + step, length))
            for start, step, length in zip(corner, shape, whole, strict=True)
        )


def slab_shape(whole: tuple[int, ...], shape: int | tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the lengths of a slab. ``None``, or a length left out, is the whole dimension."""
    given = (shape,) if isinstance(shape, int) else tuple(shape)
    if len(given) > len(whole) or any(n is not None and n < 1 for n in given):
        raise InvalidError(f"{shape} is not the shape of a block of a dataset of shape {whole}")
    filled = given + (None,) * (len(whole) - len(given))
    return tuple(
        max(n if step is None else min(step, n), 1) for step, n in zip(filled, whole, strict=True)
    )


def blocks(
    dataset: Any,
    shape: int | tuple[int | None, ...],
    *,
    prefetch: int = 2,
    device: Device = None,
    dtype: Any = None,
    reuse: bool = False,
    **options: Unpack[OptionKeys],
) -> Iterator[tuple[Index, Any]]:
    """Yield each slab of a dataset; see :meth:`penstock.Dataset.blocks`."""
    if dataset.shape is None:
        raise InvalidError("the dataset has no data")
    if prefetch < 0:
        raise InvalidError(f"prefetch {prefetch} is negative")
    SubmitOptions.of(None, options)
    parse_device(device)
    if dtype is not None:
        element_type(dtype)
    lengths = slab_shape(dataset.shape, shape)
    return _blocks(dataset, lengths, prefetch, device, dtype, reuse, options)


def _blocks(
    dataset: Any,
    shape: tuple[int, ...],
    prefetch: int,
    device: Device,
    dtype: Any,
    reuse: bool,
    options: OptionKeys,
) -> Iterator[tuple[Index, Any]]:
    rest = slabs(dataset.shape, shape)
    pending: deque[tuple[Index, Request[Any]]] = deque()
    free: deque[Any] = deque()

    def start(index: Index) -> None:
        out = None
        lengths = tuple(part.stop - part.start for part in index)
        if free:
            out = _part(free[0], lengths, shape)
        if out is None:
            made = reading.read_async(dataset, index, device=device, dtype=dtype, **options)
        else:
            free.popleft()
            made = reading.read_async(dataset, index, out=out, **options)
        pending.append((index, made))

    try:
        for index in itertools.islice(rest, prefetch + 1):
            start(index)
        while pending:
            index, request = pending.popleft()
            array = request.wait()
            yield index, array
            if reuse and tuple(array.shape)[: len(shape)] == shape:
                free.append(array)
            del array, request
            for following in itertools.islice(rest, 1):
                start(following)
    finally:
        for _, request in pending:
            request.cancel()
        for _, request in pending:
            with suppress(Error):  # no caller will use these slabs
                request.wait()


def _part(array: Any, lengths: tuple[int, ...], whole: tuple[int, ...]) -> Any:
    """Return the part of an array that a smaller slab fills; ``None`` if NumPy cannot."""
    if lengths == whole:
        return array
    if isinstance(array, DeviceArray) or not isinstance(array, np.ndarray):
        return None
    return array[tuple(slice(n) for n in lengths)]
