"""Imports and exports arrays by DLPack, whose published C structs ctypes reads."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from penstock._core import export_array as make_capsule
from penstock.dtypes import ElementType, element_type
from penstock.errors import IncompatibleError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
HOST_MEMORY = (CPU, CUDA_HOST)
_VERSION = (1, 0)
_READ_ONLY = 1  # bit of DLManagedTensorVersioned.flags

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


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_NAME, _NAME_VERSIONED = b"dltensor", b"dltensor_versioned"

_api = ctypes.pythonapi
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


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


def import_array(array: Any, stream: int) -> Imported:
    """Ask an object for its memory, ready for work that is queued on ``stream`` afterwards."""
    device_type, _ = array.__dlpack_device__()
    arguments: dict[str, Any] = {}
    if device_type in (CUDA, CUDA_MANAGED):
        arguments["stream"] = stream or 1  # DLPack's number for the legacy default stream
    try:
        capsule = array.__dlpack__(max_version=_VERSION, **arguments)
    except TypeError:  # a producer older than DLPack 1.0
        capsule = array.__dlpack__(**arguments)
    # The capsule stays unconsumed, so it deletes the exported tensor with its last reference.
    if _capsule_is_valid(id(capsule), _NAME_VERSIONED):
        versioned = _ManagedVersioned.from_address(_capsule_pointer(id(capsule), _NAME_VERSIONED))
        if versioned.major > _VERSION[0]:
            raise IncompatibleError(f"DLPack version {versioned.major} is not known")
        return _imported(versioned.tensor, bool(versioned.flags & _READ_ONLY), capsule)
    if _capsule_is_valid(id(capsule), _NAME):
        managed = _Managed.from_address(_capsule_pointer(id(capsule), _NAME))
        return _imported(managed.tensor, False, capsule)
    raise IncompatibleError(f"{type(array).__name__}.__dlpack__ returned no DLPack capsule")


def _imported(tensor: _Tensor, readonly: bool, capsule: object) -> Imported:
    dtype = tensor.dtype
    if dtype.lanes != 1 or dtype.bits % 8:
        raise IncompatibleError(f"DLPack elements of {dtype.lanes} x {dtype.bits} bits")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    return Imported(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        device_type=tensor.device.type,
        device_id=tensor.device.id,
        shape=shape,
        strides=strides,
        dtype=_element_type(dtype.code, dtype.bits),
        readonly=readonly,
        capsule=capsule,
    )


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
    code = _dl_code(dtype), dtype.itemsize * 8
    return make_capsule(pointer, shape, code, device, owner, versioned=versioned, copied=copied)


def _dl_code(dtype: ElementType) -> int:
    code = _EXTENDED.get(dtype.name)
    if code is None and dtype.numpy is not None and dtype.numpy.isnative:
        code = _CODES.get(dtype.numpy.kind)
    if code is None:
        raise BufferError(f"DLPack has no type for {dtype.name}")
    return code
