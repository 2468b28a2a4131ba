"""Allocation of many new arrays at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from penstock import arrays, frameworks
from penstock.arrays import c_strides
from penstock.device_array import DeviceArray
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.placement import (
    HOST,
    Device,
    Placement,
    aligned,
    allocate,
    cupy_dtype,
    jax_dtype,
    jax_on_host,
    memory_of,
    torch_dtype,
)

_ALIGNMENT = 256
"""The alignment of each array in bytes, which is that of CUDA's allocations."""


class Wanted(NamedTuple):
    """Some new arrays of the same shape and type. They have dimensions."""

    shape: tuple[int, ...]
    dtype: ElementType
    number: int

    @property
    def step(self) -> int:
        """Bytes from one array to the next."""
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        return -(-nbytes // _ALIGNMENT) * _ALIGNMENT

    @property
    def is_structure(self) -> bool:
        """Whether the elements have fields, and perhaps gaps."""
        return self.dtype.numpy is not None and self.dtype.numpy.kind == "V"


class Stack(NamedTuple):
    """New arrays of the same shape and type."""

    arrays: Callable[[], Sequence[Any]]
    """Makes the arrays. A transfer may already be filling their memory."""
    address: int
    """The address of the first array."""
    step: int
    """Bytes from one array to the next."""


def allocate_stacks(
    wanted: Sequence[Wanted], device: Device, stream: int | None
) -> tuple[list[Stack], Any]:
    """Return uninitialised C-contiguous arrays, which share one allocation.

    It is freed with the last of them. A structure in host memory is zeroed.

    Args:
        wanted: The shapes and types.
        device: Where the arrays go, as for :func:`penstock.placement.allocate`.
        stream: The stream for which the memory is allocated.

    Returns:
        The arrays, and the one whose memory they share.
    """
    total = sum(some.step * some.number for some in wanted)
    if len(wanted) == 1 and wanted[0].number == 1:
        only = _zeroed(allocate(wanted[0].shape, wanted[0].dtype, device, stream))
        return [Stack(lambda: [only], arrays.view(only, stream).pointer, 0)], only
    of_jax = isinstance(device, Placement) and device.library == "jax"
    if of_jax and device.ordinal == HOST:
        memory: Any = aligned(total, pin=device.pin)
    else:
        memory = allocate((total,), element_type("uint8"), memory_of(device), stream)
    address = arrays.view(memory, stream).pointer
    stacks, at = [], 0
    for some in wanted:
        if some.is_structure and isinstance(memory, np.ndarray):
            _zeroed(_stack(memory, at, some))
        stacks.append(Stack(partial(_parts, memory, at, some, of_jax), address + at, some.step))
        at += some.step * some.number
    return stacks, memory


def _parts(memory: Any, at: int, some: Wanted, of_jax: bool) -> Sequence[Any]:
    """Return arrays in a memory of bytes, from byte ``at`` on."""
    if of_jax and isinstance(memory, np.ndarray):
        places = [at + some.step * number for number in range(some.number)]
        return [jax_on_host(memory, place, some.shape, some.dtype) for place in places]
    if of_jax:
        kind = jax_dtype(some.dtype)
        parts = _parts(memory, at, some, of_jax=False)
        return [frameworks.jax_array(part, kind) for part in parts]
    shape = (some.number, *some.shape)
    strides = (some.step, *c_strides(some.shape, some.dtype.itemsize))
    if isinstance(memory, np.ndarray):
        # Not by iteration, which makes scalars of single elements, and so copies.
        stack = _stack(memory, at, some)
        return [stack[number, ...] for number in range(some.number)]
    if isinstance(memory, DeviceArray):
        numbers = range(some.number)
        return [memory.part(at + some.step * n, some.shape, some.dtype) for n in numbers]
    if frameworks.is_torch(memory):
        torch = frameworks.loaded("torch")
        size = some.dtype.itemsize
        elements = memory.view(torch_dtype(torch, some.dtype))
        stack = elements.as_strided(shape, [step // size for step in strides], at // size)
        # Outputs of one operation with several could not be changed by autograd.
        return [one.detach() for one in stack.unbind(0)]
    cupy = frameworks.loaded("cupy")
    assert cupy is not None
    return list(cupy.ndarray(shape, cupy_dtype(some.dtype), memory.data + at, strides))


def _stack(memory: np.ndarray[Any, Any], at: int, some: Wanted) -> np.ndarray[Any, Any]:
    """Return arrays in host memory as one array."""
    strides = (some.step, *c_strides(some.shape, some.dtype.itemsize))
    shape = (some.number, *some.shape)
    return np.ndarray(shape, numpy_dtype(some.dtype), memory.data, at, strides)


def _zeroed(array: Any) -> Any:
    """Fill the gaps of a structure in host memory, which no transfer does."""
    if isinstance(array, np.ndarray) and array.dtype.kind == "V":
        array[...] = np.zeros((), array.dtype)
    return array
