"""Allocation of new arrays: on which device, and by which library."""

from __future__ import annotations

import math
import os
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from penstock import dlpack, frameworks, pinned
from penstock.device_array import DeviceArray, ordinal_of
from penstock.dtypes import ElementType, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError, UnavailableError

HOST = -1
HOST_DEVICE = "cpu"
Device: TypeAlias = Any
"""``"cpu"``, ``"cuda"``, ``"cuda:1"``, a CUDA ordinal, a torch.device or a cupy.cuda.Device."""

Library: TypeAlias = Literal["numpy", "torch", "cupy", "jax", "device"]
"""The library of a new array; ``"device"`` is for a :class:`penstock.DeviceArray`."""

_BYTES = np.dtype("u1")
_JAX_ALIGNMENT = 64
"""Of host memory. JAX copies other memory."""
_LIBRARIES = ("torch", "cupy", "device")


class Placement(NamedTuple):
    """Where a new array goes, with more than a device says. :func:`place` makes it."""

    ordinal: int | None
    """The CUDA ordinal, -1 for the host, ``None`` for the current GPU."""
    library: Library
    pin: bool
    """Whether host memory is page-locked."""


def place(device: Device, like: Library | None, pin: bool, out: Any = None) -> Device:
    """Combine the arguments of a call that say where a new array goes.

    Returns:
        The device itself if it says all: for a NumPy array in pageable memory, and for the usual
        library of a GPU. Else a :class:`Placement`.

    Raises:
        InvalidError: The arguments exclude each other.
    """
    is_of_torch = device is not None and type(device).__module__ == "torch"
    if like is None and not pin and not is_of_torch:
        return device
    if out is not None:
        if like is not None or pin:
            raise InvalidError("like and pin are for a new array, and out is given")
        return device
    if like is not None and like not in ("numpy", "jax", *_LIBRARIES):
        raise InvalidError(
            f"like={like!r} names no library",
            remedy='use "numpy", "torch", "cupy", "jax" or "device"',
        )
    on_gpu = like in ("cupy", "device")
    ordinal = None if device is None and on_gpu else parse_device(device)
    if ordinal == HOST:
        if on_gpu:
            raise InvalidError(f"like={like!r} is for GPU memory, and the device is {device}")
        library: Library = like or ("torch" if is_of_torch else "numpy")
        is_usual = library == "numpy" and not pin
        return HOST_DEVICE if is_usual else Placement(HOST, library, pin)
    if pin or like == "numpy":
        what = "pin=True" if pin else 'like="numpy"'
        raise InvalidError(f"{what} is for host memory, and the device is {device}")
    return device if like is None else Placement(ordinal, like, pin=False)


def place_changed(device: Device, like: Library | None) -> Device:
    """Return what :func:`place` does, for a call that changes its new arrays: not those of JAX."""
    if like == "jax":
        raise InvalidError(
            "arrays of JAX cannot be changed, as this call does",
            remedy='use another library, and jax.dlpack.from_dlpack, or like="numpy"',
        )
    return place(device, like, pin=False)


def is_numpy(device: Device) -> bool:
    """Whether a new array is NumPy's own, in pageable memory."""
    return not isinstance(device, Placement) and parse_device(device) == HOST


def allocate(
    shape: tuple[int, ...], dtype: ElementType, device: Device, stream: int | None = None
) -> Any:
    """Return an uninitialised C-contiguous array: NumPy's for the host, or a GPU library's.

    GPU memory comes from the library's pool for ``stream``, so that no other stream can still have
    work queued on memory that was freed there.
    """
    ordinal = parse_device(device)
    if ordinal == HOST:
        return _on_host(shape, dtype, device)
    library = device.library if isinstance(device, Placement) else _library()
    module: Any = None
    if library not in ("device", "jax"):
        module = frameworks.with_gpu(library)
        if module is None:
            raise UnavailableError(f"{library} is not installed, or finds no GPU")
    if library == "torch":
        found = torch_dtype(module, dtype)
        if stream is None:
            current = "cuda" if ordinal is None else f"cuda:{ordinal}"
            return module.empty(shape, dtype=found, device=current)
    if ordinal is None:
        ordinal = _current_ordinal(library)
    if library == "torch":
        with frameworks.on_stream("torch", stream, ordinal):
            return module.empty(shape, dtype=found, device=f"cuda:{ordinal}")
    if library == "cupy":
        found = cupy_dtype(dtype)
        with frameworks.on_stream("cupy", stream, ordinal):
            return module.empty(shape, dtype=found)
    made = DeviceArray(shape, dtype.numpy or dtype.name, ordinal)
    return made if library == "device" else frameworks.jax_array(made, jax_dtype(dtype))


def memory_of(device: Device) -> Device:
    """Return where memory is allocated that arrays of a device share.

    Arrays of JAX cannot be parts of another one, but of any memory.
    """
    if not isinstance(device, Placement) or device.library != "jax":
        return device
    return device._replace(library="numpy" if device.ordinal == HOST else "device")


def parse_device(device: Device) -> int | None:
    """Return the CUDA ordinal of a device, -1 for the host, ``None`` for the current GPU."""
    if device is None:
        return HOST
    if type(device) is not str:
        if isinstance(device, Placement):
            return device.ordinal
        if isinstance(device, (int, np.integer)) and not isinstance(device, bool):
            return ordinal_of(device)
        if type(device).__module__.startswith("cupy"):
            return int(device.id)
    try:
        return _parsed(str(device))
    except ValueError:
        raise InvalidError(
            f"{device!r} is not a device", remedy='use "cpu", "cuda", "cuda:1" or a torch.device'
        ) from None


@lru_cache
def _parsed(device: str) -> int | None:
    name, _, ordinal = device.partition(":")
    if name == "cpu":
        return HOST
    if name in ("cuda", "gpu") and (not ordinal or (ordinal.isdecimal() and len(ordinal) < 10)):
        return int(ordinal) if ordinal else None
    raise ValueError(device)


def ordinal_of_gpu(device: Device) -> int:
    """Return the CUDA ordinal of a GPU.

    Raises:
        InvalidError: The device is no GPU.
    """
    ordinal = parse_device(device)
    if ordinal == HOST:
        raise InvalidError(f"{device!r} is not a GPU", remedy='use "cuda", "cuda:1" or an ordinal')
    return _current_ordinal(_library()) if ordinal is None else ordinal


def _on_host(shape: tuple[int, ...], dtype: ElementType, device: Device) -> Any:
    """Return a new array in host memory."""
    if not isinstance(device, Placement):
        return np.empty(shape, numpy_dtype(dtype))
    if device.library == "jax":
        memory = aligned(math.prod(shape) * dtype.itemsize, pin=device.pin)
        return jax_on_host(memory, 0, shape, dtype)
    if device.library == "numpy":
        made = pinned.empty(shape, numpy_dtype(dtype))
        if made.dtype.kind == "V":
            made[...] = np.zeros((), made.dtype)  # a structure has gaps that no transfer fills
        return made
    torch = frameworks.torch_module()
    found = torch_dtype(torch, dtype)
    if device.pin and not torch.cuda.is_available():  # torch locks pages by CUDA alone
        memory = torch.from_numpy(pinned.empty((math.prod(shape) * dtype.itemsize,), _BYTES))
        return memory.view(found).reshape(shape)
    return torch.empty(shape, dtype=found, device="cpu", pin_memory=device.pin)


def aligned(nbytes: int, *, pin: bool) -> np.ndarray[Any, Any]:
    """Return new bytes in host memory at an address that JAX can use."""
    if pin:
        return pinned.empty((nbytes,), _BYTES)  # at the start of a page
    memory = np.empty(nbytes + _JAX_ALIGNMENT, _BYTES)
    start = -memory.__array_interface__["data"][0] % _JAX_ALIGNMENT
    return memory[start : start + nbytes]


def jax_on_host(
    memory: np.ndarray[Any, Any], at: int, shape: tuple[int, ...], dtype: ElementType
) -> Any:
    """Return an array of JAX in bytes of :func:`aligned`, from byte ``at`` on."""
    address = memory.__array_interface__["data"][0] + at
    lender = dlpack.Lender(memory, address, shape, dtype)
    return frameworks.jax_array(lender, jax_dtype(dtype))


def jax_dtype(dtype: ElementType) -> np.dtype[Any]:
    """Return JAX's data type of an element, which is NumPy's."""
    if dtype.numpy is None or not _is_native(dtype) or dtype.numpy.kind not in "biufcV":
        raise _no_type("JAX", dtype)
    return dtype.numpy


def torch_dtype(torch: Any, dtype: ElementType) -> Any:
    """Return torch's data type of an element."""
    found = getattr(torch, dtype.name, None)
    if not isinstance(found, torch.dtype) or not _is_native(dtype):
        raise _no_type("torch", dtype)
    return found


def cupy_dtype(dtype: ElementType) -> np.dtype[Any]:
    """Return CuPy's data type of an element."""
    if not _is_native(dtype) or dtype.numpy is None or dtype.numpy.kind not in "biufc":
        raise _no_type("CuPy", dtype)
    return dtype.numpy


@cache
def _asked_for() -> str:
    return os.environ.get("PENSTOCK_ARRAYS", "")


def _library() -> str:
    """Return the library that makes arrays in GPU memory: torch, else CuPy, else Penstock."""
    forced = _asked_for()
    if forced and forced not in _LIBRARIES:
        raise InvalidError(
            f"the environment variable PENSTOCK_ARRAYS has an unknown value {forced!r}",
            remedy=f"use one of {', '.join(_LIBRARIES)}, or unset it",
        )
    for name in (forced,) if forced else _LIBRARIES:
        if name == "device" or frameworks.with_gpu(name) is not None:
            return name
    raise UnavailableError(
        f"PENSTOCK_ARRAYS asks for {forced}, which is not installed or finds no GPU"
    )


def _current_ordinal(library: str) -> int:
    if library in ("device", "jax"):
        return 0
    module = frameworks.with_gpu(library)
    assert module is not None
    if library == "torch":
        return int(module.cuda.current_device())
    return int(module.cuda.runtime.getDevice())


def _is_native(dtype: ElementType) -> bool:
    return dtype.numpy is None or dtype.numpy.isnative


def _no_type(library: str, dtype: ElementType) -> IncompatibleError:
    described = dtype.name if dtype.numpy is None else str(dtype.numpy)
    return IncompatibleError(
        f"{library} has no data type {described}",
        remedy='load it with another dtype, or with like="device" or like="numpy"',
    )
