"""Shapes as callers write them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeAlias

from penstock.errors import IncompatibleError

Shape: TypeAlias = "SupportsIndex | Iterable[SupportsIndex]"
"""The lengths of the dimensions, or one integer for one dimension."""


def lengths_of(shape: Shape) -> tuple[int, ...]:
    """Return the lengths of the dimensions. Integers of NumPy are integers.

    Raises:
        IncompatibleError: A length is not an integer.
    """
    is_several = type(shape) is tuple or isinstance(shape, Iterable)
    lengths: Any = shape if is_several else (shape,)
    try:
        return tuple(map(operator.index, lengths))
    except TypeError:
        raise IncompatibleError(
            f"{shape!r} is not a shape", remedy="give an integer or several"
        ) from None
