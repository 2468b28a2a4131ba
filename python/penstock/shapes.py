"""Shapes as callers write them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex, TypeAlias

from penstock.errors import IncompatibleError

Shape: TypeAlias = "SupportsIndex | Iterable[SupportsIndex]"
"""The lengths of the dimensions, or one integer for one dimension."""


def lengths_of(shape: Shape) -> tuple[int, ...]:
    """Return the lengths of the dimensions. Integers of NumPy are integers.

    Raises:
        IncompatibleError: A length is not an integer.
    """
    lengths = shape if isinstance(shape, Iterable) else (shape,)
    try:
        return tuple(operator.index(length) for length in lengths)
    except TypeError:
        raise IncompatibleError(
            f"{shape!r} is not a shape", remedy="give an integer or several"
        ) from None
