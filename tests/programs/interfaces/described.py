"""Selections and arrays in the structures of penstock.h."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from penstock._native import ffi

from ..selection import Picked
from ..values import Memory


class Described:
    """A ``penstock_selection`` and a ``penstock_array``, with all that they point to."""

    def __init__(self, picked: Picked, memory: Memory) -> None:
        self._keep: list[Any] = [memory]
        self.selection = self._selection(picked)
        self.kind = h5py.h5t.py_create(memory.dtype)
        self.array = ffi.new("penstock_array *")
        self.array.struct_size = ffi.sizeof("penstock_array")
        self.array.data = ffi.cast("void *", memory.address)
        self.array.type, self.array.rank = self.kind.id, len(picked.shape)
        self.array.shape = self._kept(ffi.new("uint64_t[]", picked.shape))
        if memory.strides is not None:
            self.array.strides = self._kept(ffi.new("int64_t[]", memory.strides))

    def _selection(self, picked: Picked) -> Any:
        made = ffi.new("penstock_selection *")
        made.struct_size = ffi.sizeof("penstock_selection")
        made.rank = len(picked.whole)
        points = picked.points
        if points is not None:
            rows = self._kept(np.ascontiguousarray(points, np.uint64))
            made.points = ffi.cast("uint64_t *", rows.ctypes.data)
            made.point_count = len(rows)
            return made
        axes = self._kept(ffi.new("penstock_axis[]", len(picked.whole)))
        for axis, indices in zip(axes, picked.indices, strict=True):
            axis.count = len(indices)
            if isinstance(indices, range):
                axis.start, axis.step = indices.start, indices.step
            else:
                axis.indices = self._kept(ffi.new("uint64_t[]", indices))
        made.axes = axes
        return made

    def _kept(self, value: Any) -> Any:
        self._keep.append(value)
        return value


def pieces(described: list[Described]) -> Any:
    """The ``penstock_piece`` of each."""
    made = ffi.new("penstock_piece[]", len(described))
    for piece, one in zip(made, described, strict=True):
        piece.selection = one.selection
        piece.array = one.array
    return made
