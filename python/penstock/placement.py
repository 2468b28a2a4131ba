"""Allocation of new arrays: on which device, and by which library."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import numpy as np

from penstock import frameworks
from penstock.device_array import DeviceArray
from penstock.dtypes import ElementType, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError, UnavailableError

HOST = -1
Device: TypeAlias = Any
"""``"cpu"``, ``"cuda"``, ``"cuda:1"``, a CUDA ordinal, a torch.device or a cupy.cuda.Device."""

_LIBRARIES = ("torch", "cupy", "device")


def allocate(
    shape: tuple[int, ...], dtype: ElementType, device: Device, stream: int | None = None
) -> Any:
    """Return an uninitialised C-contiguous array: NumPy's for the host, or a GPU library's.

    GPU memory comes from the library's pool for ``stream``, so that no other stream can still have
    work queued on memory that was freed there.
    """
    ordinal = parse_device(device)
    if ordinal == HOST:
        return np.empty(shape, numpy_dtype(dtype))
    library = _library()
    if ordinal is None:
        ordinal = _current_ordinal(library)
    if library == "torch":
        torch = frameworks.with_gpu("torch")
        assert torch is not None
        torch_dtype = getattr(torch, dtype.name, None)
        if not isinstance(torch_dtype, torch.dtype) or not _is_native(dtype):
            raise _no_type("torch", dtype)
        with frameworks.on_stream("torch", stream, ordinal):
            return torch.empty(shape, dtype=torch_dtype, device=f"cuda:{ordinal}")
    if library == "cupy":
        cupy = frameworks.with_gpu("cupy")
        assert cupy is not None
        if not _is_native(dtype) or dtype.numpy is None or dtype.numpy.kind not in "biufc":
            raise _no_type("CuPy", dtype)
        with frameworks.on_stream("cupy", stream, ordinal):
            return cupy.empty(shape, dtype=dtype.numpy)
    return DeviceArray(shape, dtype.numpy or dtype.name, ordinal)


def parse_device(device: Device) -> int | None:
    """Return the CUDA ordinal of a device, -1 for the host, ``None`` for the current GPU."""
    if device is None:
        return HOST
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            raise InvalidError(f"device {device} is not a CUDA ordinal")
        return device
    if type(device).__module__.startswith("cupy"):
        return int(device.id)
    name, _, ordinal = str(device).partition(":")
    if name == "cpu":
        return HOST
    if name in ("cuda", "gpu") and (not ordinal or ordinal.isdecimal()):
        return int(ordinal) if ordinal else None
    raise InvalidError(
        f"{device!r} is not a device", remedy='use "cpu", "cuda", "cuda:1" or a torch.device'
    )


def _library() -> str:
    """Return the library that makes arrays in GPU memory: torch, else CuPy, else Penstock."""
    forced = os.environ.get("PENSTOCK_ARRAYS", "")
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
    if library == "device":
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
        remedy="load it with another dtype, or set PENSTOCK_ARRAYS=device for a DeviceArray",
    )
