"""Shapes as callers write them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex, TypeAlias

Shape: TypeAlias = "SupportsIndex | Iterable[SupportsIndex]"
"""The lengths of the dimensions, or one integer for one dimension."""


def lengths_of(shape: Shape) -> tuple[int, ...]:
    """Return the lengths of the dimensions. Integers of NumPy are integers."""
    if isinstance(shape, Iterable):
        return tuple(operator.index(length) for length in shape)
    return (operator.index(shape),)
