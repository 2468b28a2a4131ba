"""Imports and exports arrays by DLPack. The module ``_core`` has its C structs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from penstock._core import export_array as make_capsule
from penstock._core import read_capsule
from penstock.dtypes import ElementType, element_type
from penstock.errors import IncompatibleError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
HOST_MEMORY = (CPU, CUDA_HOST)
_VERSION = (1, 0)
_LEGACY = 1
"""DLPack's number for the legacy default stream, whose handle is 0."""

_BFLOAT16 = 4
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_EXTENDED = {
    "bfloat16": _BFLOAT16,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}


class Imported(NamedTuple):
    """The array that a capsule describes. The memory lives as long as the capsule does."""

    pointer: int
    device_type: int
    device_id: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in elements; None if C-contiguous
    dtype: ElementType
    readonly: bool
    capsule: Any
    is_ordered: bool
    """Whether work of the stream that was given follows the work of the array's library."""


def is_on_gpu(device: tuple[int, int]) -> bool:
    """Whether this result of ``__dlpack_device__`` is memory of a CUDA device."""
    return device[0] in (CUDA, CUDA_MANAGED)


def device_of(array: Any) -> tuple[int, int]:
    """Return the type and the number of the device of an object that has ``__dlpack__``."""
    with _refusals(array):
        kind, number = array.__dlpack_device__()
    return int(kind), int(number)


def import_array(array: Any, stream: int | None) -> Imported:
    """Return the memory of an object.

    Args:
        array: The object.
        stream: For memory of a GPU, the stream that the object's library makes wait for its work.
    """
    capsule, is_ordered = _capsule(array, {} if stream is None else {"stream": stream or _LEGACY})
    # The capsule stays unconsumed, so it deletes the exported tensor with its last reference.
    try:
        described = read_capsule(capsule)
    except BufferError as error:
        raise IncompatibleError(str(error)) from None
    if described is None:
        raise IncompatibleError(f"{type(array).__name__}.__dlpack__ returned no DLPack capsule")
    pointer, device, shape, strides, (code, bits, lanes), readonly = described
    if lanes != 1 or bits % 8:
        raise IncompatibleError(f"DLPack elements of {lanes} x {bits} bits")
    return Imported(
        pointer=pointer,
        device_type=device[0],
        device_id=device[1],
        shape=tuple(shape),
        strides=None if strides is None else tuple(strides),
        dtype=_element_type(code, bits),
        readonly=readonly,
        capsule=capsule,
        is_ordered=is_ordered,
    )


def _capsule(array: Any, stream: dict[str, int]) -> tuple[Any, bool]:
    """Return a capsule, and whether its library has been asked to make the stream wait."""
    version = {"max_version": _VERSION}
    with _refusals(array):
        for arguments in (version | stream, stream):  # a producer may be older than DLPack 1.0
            try:
                return array.__dlpack__(**arguments), True
            except TypeError:
                pass
        return array.__dlpack__(), not stream


@contextmanager
def _refusals(array: Any) -> Iterator[None]:
    """Raise the errors by which libraries refuse an export as :class:`IncompatibleError`."""
    try:
        yield
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        # JAX reports a type that DLPack lacks so; others may be failures of a device.
        if isinstance(error, RuntimeError) and "UNIMPLEMENTED" not in str(error):
            raise
        raise IncompatibleError(
            f"{type(array).__name__} cannot be exported by DLPack: {error}",
            remedy="pass an array that has memory, is writable, and is of a type that DLPack has",
        ) from error


def _element_type(code: int, bits: int) -> ElementType:
    for name, known in _EXTENDED.items():
        if code == known:
            return element_type(name)
    for kind, known in _CODES.items():
        if code == known:
            return element_type(f"{kind}{bits // 8}")
    raise IncompatibleError(f"DLPack type code {code} is not known")


def export_array(
    pointer: int,
    shape: tuple[int, ...],
    dtype: ElementType,
    device: tuple[int, int],
    owner: object,
    *,
    versioned: bool,
    copied: bool = False,
) -> object:
    """Return a capsule with a C-contiguous array. It keeps ``owner`` alive until it is deleted."""
    code = code_of(dtype), dtype.itemsize * 8
    return make_capsule(pointer, shape, code, device, owner, versioned=versioned, copied=copied)


class Lender:
    """Lends memory of the host, which it owns, as an array of any type."""

    def __init__(
        self, owner: object, pointer: int, shape: tuple[int, ...], dtype: ElementType
    ) -> None:
        self._owner, self._array = owner, (pointer, shape, dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: Any) -> object:
        versioned = max_version is not None and max_version[0] >= 1
        return export_array(*self._array, (CPU, 0), self._owner, versioned=versioned)


def code_of(dtype: ElementType) -> int:
    """Return DLPack's code of an element type."""
    code = _EXTENDED.get(dtype.name)
    if code is None and dtype.numpy is not None and dtype.numpy.isnative:
        code = _CODES.get(dtype.numpy.kind)
    if code is None:
        raise BufferError(f"DLPack has no type for {dtype.name}")
    return code
