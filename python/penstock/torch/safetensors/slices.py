"""Slices of tensors in a file: which bytes of it they need. Callers add names to the errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.torch.safetensors.errors import WeightsIndexError
from penstock.torch.safetensors.header import BITS, Entry
from penstock.torch.safetensors.layout import Part

SHORTEST = 512
"""Bytes of a piece that is worth a read of its own."""


def is_basic(index: Any) -> bool:
    """Whether an index consists of integers, slices, ``...`` and ``None``."""
    parts = index if type(index) is tuple else (index,)
    return all(
        part is None or part is Ellipsis or type(part) is slice or _is_integer(part)
        for part in parts
    )


def _is_integer(part: Any) -> bool:
    return (
        hasattr(part, "__index__")
        and not isinstance(part, (bool, np.bool_))
        and not (hasattr(part, "shape") and not isinstance(part, np.integer))
    )


def part_of(entry: Entry, index: Any, shortest: int = SHORTEST) -> Part | None:
    """Return the part of a tensor that a basic index selects. It counts elements.

    ``None`` is returned if a step is negative, or if pieces have fewer than ``shortest`` bytes.

    Raises:
        IndexError: The index is outside the tensor, or has too many dimensions; or a piece begins
            or ends inside a byte.
    """
    bits = BITS[entry.dtype]
    shape, origin, strides = _strided(entry.shape, index)
    run, inner = bits, len(shape)
    while inner and (shape[inner - 1] == 1 or strides[inner - 1] * bits == run):
        inner -= 1
        run *= shape[inner]
    count = math.prod(shape[:inner])
    begin = origin * bits
    if run % 8 or begin % 8 or any(strides[d] * bits % 8 for d in range(inner)):
        raise WeightsIndexError(
            f"what [{_listed(index)}] selects does not begin and end at whole bytes",
            remedy=f"an element has {bits} bits: select multiples of {math.lcm(bits, 8) // bits}",
        )
    run //= 8
    nbytes = count * run
    where = entry.begin + begin // 8
    if count <= 1 or not nbytes:
        return Part(entry.name, entry.dtype, shape, where, where + nbytes)
    outer = [(shape[d], strides[d] * bits // 8) for d in range(inner) if shape[d] > 1]
    if run < shortest or any(step < 0 for _, step in outer):
        return None
    starts = np.array([where], np.uint64)
    for length, step in outer:
        steps = np.arange(length, dtype=np.uint64) * np.uint64(step)
        starts = (starts[:, None] + steps).ravel()
    return Part(entry.name, entry.dtype, shape, where, where + nbytes, starts)


def packed_part_of(entry: Entry, index: Any) -> Part:
    """Return the part of a tensor whose elements are less than a byte, with pieces of any length.

    Raises:
        IndexError: As for :func:`part_of`, or the index has lists or masks.
    """
    part = part_of(entry, index, shortest=1) if is_basic(index) else None
    if part is None:
        raise WeightsIndexError(
            f"elements of {entry.dtype} are less than a byte, and are selected by integers and "
            "slices with positive steps",
            remedy="index get_tensor(), which returns the packed bytes",
        )
    return part


def _strided(shape: tuple[int, ...], index: Any) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Return shape, first element and strides, in elements, of what an index selects."""
    parts = list(index) if type(index) is tuple else [index]
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    if taken > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    fill = [slice(None)] * (len(shape) - taken)
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts[at : at + 1] = fill
        if Ellipsis in parts:
            raise IndexError("an index can only have a single ellipsis ('...')")
    else:
        parts += fill
    steps = [1] * len(shape)
    for d in range(len(shape) - 1, 0, -1):
        steps[d - 1] = steps[d] * shape[d]
    made_shape, made_strides, origin, d = [], [], 0, 0
    for part in parts:
        if part is None:
            made_shape.append(1)
            made_strides.append(0)
            continue
        if isinstance(part, slice):
            start, stop, step = part.indices(shape[d])
            length = len(range(start, stop, step))
            made_shape.append(length)
            made_strides.append(steps[d] * step)
            origin += start * steps[d] if length else 0
        else:
            at = part.__index__()
            if not -shape[d] <= at < shape[d]:
                raise IndexError(
                    f"index {at} is out of bounds for dimension {d} with size {shape[d]}"
                )
            origin += at % shape[d] * steps[d]
        d += 1
    return tuple(made_shape), origin, tuple(made_strides)


def check_plain(entry: Entry, index: Any) -> Any:
    """Check an index as the format's own library does for frameworks without slices of their own.

    Returns:
        The index to apply.

    Raises:
        IndexError: It leaves the tensor, or is a list.
    """
    if isinstance(index, list):
        if index:
            raise WeightsIndexError("Non empty lists are not implemented")
        return slice(0, 0)
    parts, shape = _expanded(index, len(entry.shape)), entry.shape
    made = []
    for d, (part, length) in enumerate(zip(parts, shape, strict=False)):
        if isinstance(part, slice):
            made.append(part)
            continue
        if not _is_integer(part):
            raise TypeError(f"a {type(part).__name__} is not a valid index of a tensor in a file")
        at = part.__index__()
        if at < -length:
            raise WeightsIndexError(f"Invalid index {at} for dimension {d} of size {length}")
        made.append(at + length if at < 0 else at)
    shown = f"Error during slicing [{_listed(tuple(made))}] with shape {list(shape)}: "
    if len(parts) > len(shape):
        raise WeightsIndexError(f"{shown}more slicing indexes than dimensions in tensor")
    for d, part in reversed(list(enumerate(made))):
        start, stop = (part.start, part.stop) if isinstance(part, slice) else (part, part + 1)
        outside = None
        if start is not None and start >= shape[d]:
            outside = start
        elif stop is not None and stop > shape[d]:
            outside = stop - 1
        if outside is not None and not _is_empty(part):
            raise WeightsIndexError(
                f"{shown}index {outside} out of bounds for tensor dimension #{d} of size {shape[d]}"
            )
    return tuple(made)


def _expanded(index: Any, dimensions: int) -> tuple[Any, ...]:
    """Return the parts of an index, with slices in place of an ellipsis."""
    parts = index if isinstance(index, tuple) else (index,)
    places = [at for at, part in enumerate(parts) if part is Ellipsis]
    if not places:
        return parts
    if len(places) > 1:
        raise WeightsIndexError("an index can only have a single ellipsis ('...')")
    (at,) = places
    fill = (slice(None),) * (dimensions - len(parts) + 1)
    return (*parts[:at], *fill, *parts[at + 1 :])


def _is_empty(part: Any) -> bool:
    return isinstance(part, slice) and (part.start, part.stop) == (0, 0)


def _listed(index: Any) -> str:
    return ", ".join(map(_shown, index if isinstance(index, tuple) else (index,)))


def _shown(part: Any) -> str:
    if not isinstance(part, slice):
        return str(part)
    start, stop = ("" if bound is None else str(bound) for bound in (part.start, part.stop))
    return f"{start}:{stop}"
