"""Which elements of a dataset a sample is."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.data.order import Indices
from penstock.errors import InvalidError

Shape = tuple[int, ...]


class Windows(NamedTuple):
    """Windows along an axis of a dataset, each of which is a sample."""

    steps: int
    """The number of indices of a window."""
    stride: int
    """The distance from the start of a window to that of the next."""
    spacing: int
    """The distance between the indices of a window."""
    axis: int

    @classmethod
    def of(cls, steps: Any, stride: Any, spacing: Any, axis: Any) -> Windows | None:
        """Check the arguments of a data set. ``None`` if there are no windows."""
        axis = operator.index(axis)
        if steps is None:
            if (operator.index(stride), operator.index(spacing), axis) != (1, 1, 0):
                raise InvalidError(
                    "stride, spacing and axis are those of windows", remedy="give steps as well"
                )
            return None
        made = cls(operator.index(steps), operator.index(stride), operator.index(spacing), axis)
        if min(made[:3]) < 1 or axis < 0:
            raise InvalidError(
                f"steps={steps}, stride={stride}, spacing={spacing}, axis={axis} are not windows",
                remedy="give positive integers, and an axis of at least 0",
            )
        return made

    @property
    def span(self) -> int:
        """The number of indices from the first to the last one of a window."""
        return (self.steps - 1) * self.spacing + 1

    def among(self, length: int) -> int:
        """Return the number of windows along an axis of this length."""
        return max((length - self.span) // self.stride + 1, 0)


class Geometry:
    """The samples of one file."""

    def __init__(self, windows: Windows | None, shapes: tuple[Shape, ...], where: str) -> None:
        self._windows = windows
        axis = windows.axis if windows else 0
        rows = {shape[0] for shape in shapes}
        lengths = {shape[axis] for shape in shapes if len(shape) > axis}
        if len(rows) > 1 or len(lengths) > 1:
            listed = ", ".join(map(str, shapes))
            raise InvalidError(
                f"{where}: the datasets have different lengths along the axis of the samples: "
                f"shapes {listed}",
                remedy="make a data set for each length",
            )
        if not lengths:
            raise InvalidError(f"{where}: no dataset has an axis {axis}")
        self._in_row = windows.among(lengths.pop()) if windows and axis else 1
        self.count = rows.pop() * self._in_row
        if windows and not axis:
            self.count = windows.among(self.count)

    def shape(self, rest: Shape) -> Shape:
        """Return the shape of a sample of a field, from its dimensions after the first."""
        if self._windows is None:
            return rest
        axis, steps = self._windows.axis, self._windows.steps
        if axis == 0:
            return (steps, *rest)
        return rest if len(rest) < axis else (*rest[: axis - 1], steps, *rest[axis:])

    def selections(self, rank: int, samples: Indices, out: Any) -> Iterator[tuple[Any, Any]]:
        """Yield what to read of a dataset with ``rank`` dimensions for some samples.

        Yields pairs of a selection and the part of ``out`` that it fills. ``out`` has one index of
        its first dimension for each sample.
        """
        windows = self._windows
        if windows is None:
            yield _rows(samples), out
        elif windows.axis == 0:
            rows = samples[:, None] * windows.stride + np.arange(windows.steps) * windows.spacing
            yield _rows(rows.reshape(-1)), out.reshape(rows.size, *out.shape[2:])
        elif rank <= windows.axis:
            yield _rows(samples // self._in_row), out
        else:
            whole = (slice(None),) * (windows.axis - 1)
            for number, sample in enumerate(samples.tolist()):
                row, window = divmod(sample, self._in_row)
                start = window * windows.stride
                along = slice(start, start + windows.span, windows.spacing)
                yield (row, *whole, along), out[number]


def _rows(rows: Indices) -> Any:
    """Return indices of the first dimension, as a slice where they are consecutive."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows) and (len(rows) == 1 or (np.diff(rows) == 1).all()):
        return slice(first, last + 1)
    return rows
