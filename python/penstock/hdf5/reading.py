"""Reads of datasets, from what the caller says to a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock import arrays, request, transfer
from penstock.dtypes import element_type, numpy_dtype
from penstock.errors import InvalidError
from penstock.hdf5 import by_h5py
from penstock.hdf5 import memory_types as hdf5_types
from penstock.hdf5 import selection as selections
from penstock.hdf5 import submit as hdf5_native
from penstock.placement import HOST, Device, allocate, parse_device
from penstock.request import Request


class Reading(NamedTuple):
    request: Request[Any]
    view: arrays.View | None
    """The memory that is filled; ``None`` if it is filled already."""
    copy_back: Callable[[], None] | None
    single: bool
    """Whether one element was selected, not an array of one."""


def start(
    dataset: Any,
    argument: Any,
    out: Any,
    device: Device,
    dtype: Any,
    how: hdf5_native.Manner,
    *,
    waits: bool,
) -> Reading:
    if out is not None and dtype is not None:
        raise InvalidError("give out or dtype, not both: the elements become those of out")
    after = how.stream
    if out is not None:
        transfer.check_device(out, device)
        given = arrays.strided_destination(out, after)
    on_host = out is None and parse_device(device) == HOST

    def left_to_h5py(reason: str) -> Reading:
        made = by_h5py.read(dataset, argument, out, device, dtype, after, reason)
        return Reading(made, None, None, False)

    if not dataset.shape:
        return left_to_h5py(by_h5py.without_dimensions(dataset))
    indices, names = selections.split(argument)
    stored = dataset.dtype
    if names:
        stored = selections.field_dtype(stored, names)
    if stored.hasobject:
        return left_to_h5py(f"elements of type {stored} are stored elsewhere in the file")
    selected = selections.select(dataset, indices)
    base, inner = stored.subdtype or (stored, ())

    if out is not None:
        wanted = given.dtype
    elif dtype is not None:
        wanted = element_type(dtype)
    else:
        wanted = element_type(base if on_host else base.newbyteorder("="))
    # Types that NumPy lacks are for HDF5 and the library to convert to, and so are structures:
    # NumPy goes by the places of fields, HDF5 by their names.
    at_host = on_host or (out is not None and given.device < 0)
    of_fields = wanted.numpy is not None and wanted.numpy.names and wanted.numpy != base
    if waits and at_host and wanted.numpy is not None and not of_fields:
        nbytes = selected.count * stored.itemsize
        if by_h5py.is_small(dataset, selected, nbytes, plain=wanted.numpy == base and not names):
            return left_to_h5py(by_h5py.TOO_SMALL)
    kind = hdf5_types.memory_type(wanted, base)
    if kind is not None:
        kind = hdf5_types.array_type(kind, inner)
        if len(names) == 1:
            kind = hdf5_types.field_type(kind, names[0])
    if (
        kind is None
        or hdf5_types.is_for_numpy(base, wanted.numpy)
        or not hdf5_types.converts(dataset.id.get_type(), kind)
    ):
        return left_to_h5py(f"HDF5 has no conversion to {wanted.name}")

    target = out
    if target is None:
        shape = selected.shape + inner
        if on_host:
            # Structures may have gaps, which nothing fills.
            make = np.zeros if base.kind == "V" else np.empty
            target = make(shape, base if wanted.numpy == base else numpy_dtype(wanted))
        else:
            target = allocate(shape, wanted, device, after)
    view = arrays.view(target, after) if out is None else given
    view, copy_back = _destination(view, target, after, selected, len(inner), waits)
    if view.shape != selected.shape + inner:
        raise InvalidError(
            f"out has shape {view.shape}, and the selection has shape {selected.shape + inner}"
        )
    made = hdf5_native.submit(
        request.READ,
        dataset,
        selected,
        hdf5_native.Memory(view, kind, view.outer_strides(len(inner))),
        how,
        waits=waits,
        array=target,
    )
    return Reading(made, view, copy_back, single=not selected.shape)


def _destination(
    view: arrays.View,
    array: Any,
    stream: int | None,
    selected: selections.Selected,
    inner: int,
    waits: bool,
) -> tuple[arrays.View, Callable[[], None] | None]:
    """The memory of an array as the library can fill it: itself, or a temporary if need be."""
    if view.contiguous or (selected.regular and view.is_dense(inner)):
        return view, None
    if waits:
        return arrays.destination(array, stream)
    return arrays.contiguous_destination(array, stream), None
