"""The format's data types, and those of the frameworks.

An element of less than a byte has no type of its own in NumPy and CuPy, and those of six bits none
in torch: such tensors are handed out as bytes, several elements in each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from penstock import dlpack
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.torch.safetensors.errors import WeightsTypeError
from penstock.torch.safetensors.header import BITS

NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
"""The names in NumPy, ml_dtypes and torch of types whose elements are whole bytes."""

PACKED = "F4"
"""The type of which torch has one for two elements, with half the last dimension."""
TORCH_NAMES = {**NAMES, PACKED: "float4_e2m1fn_x2"}
_OF_NAMES = {name: dtype for dtype, name in TORCH_NAMES.items()}


def format_name(name: str) -> str:
    """Return the format's name of a type of torch or NumPy.

    Raises:
        WeightsTypeError: The format has no such type.
    """
    found = _OF_NAMES.get(name)
    if found is None:
        raise WeightsTypeError(
            f"Unknown dtype {name!r}", remedy=f"convert it to one of {', '.join(_OF_NAMES)}"
        )
    return found


def shape_of_bytes(name: str, dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a tensor as packed bytes: one dimension if a row is not whole bytes."""
    bits = BITS[dtype]
    if shape and shape[-1] * bits % 8 == 0:
        return (*shape[:-1], shape[-1] * bits // 8)
    count = bits
    for length in shape:
        count *= length
    return (count // 8,)


def stored_shape(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in a file of a tensor of torch.

    Raises:
        WeightsTypeError: The format has no such shape.
    """
    if dtype != PACKED:
        return shape
    if not shape:
        raise WeightsTypeError("a scalar of two elements has no shape in the format")
    return (*shape[:-1], shape[-1] * 2)


def torch_shape(name: str, dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in torch of a tensor of a file.

    Raises:
        WeightsTypeError: torch has no such shape.
    """
    if dtype != PACKED:
        return shape
    if not shape or shape[-1] % 2:
        raise WeightsTypeError(
            f"tensor {name}: f4_x2 dtype requires that the last dim be divisible by 2 in torch: "
            f"got {list(shape)}",
            remedy='open the file with framework="np", which returns its bytes',
        )
    return (*shape[:-1], shape[-1] // 2)


@lru_cache(maxsize=64)
def torch_type(torch: Any, dtype: str) -> Any:
    """Return torch's type; ``None`` if the tensor is handed out as bytes.

    Raises:
        WeightsTypeError: This version of torch does not have it.
    """
    name = TORCH_NAMES.get(dtype)
    if name is None:
        return None
    found = getattr(torch, name, None)
    if found is None:
        raise WeightsTypeError(
            f"torch {torch.__version__} has no type {name} for {dtype}",
            remedy="use a later version of torch",
        )
    return found


@lru_cache(maxsize=64)
def element(dtype: str) -> ElementType | None:
    """Return the element type; ``None`` if the tensor is handed out as bytes."""
    name = NAMES.get(dtype)
    return None if name is None else element_type(name)


@lru_cache(maxsize=64)
def numpy_type(dtype: str) -> np.dtype[Any] | None:
    """Return NumPy's type; ``None`` if the tensor is handed out as bytes.

    Raises:
        IncompatibleError: NumPy does not have it: a ``TypeError``.
    """
    found = element(dtype)
    return None if found is None else numpy_dtype(found)


@lru_cache(maxsize=64)
def dlpack_code(dtype: str) -> tuple[int, int] | None:
    """Return DLPack's code and bits of an element; ``None`` if tensors go through it as bytes."""
    found = element(dtype)
    return None if found is None else (dlpack.code_of(found), found.itemsize * 8)
