"""What h5py reads and writes itself: in host memory, under HDF5's lock.

That is what only HDF5 can do (variable-length elements, references), conversions that NumPy has to
finish, and what is too small to gain. The report has the route "hdf5" and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from penstock import arrays, report, request, staging, transfer
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError
from penstock.hdf5 import memory_types as hdf5_types
from penstock.hdf5 import selection as selections
from penstock.hdf5 import submit as hdf5_native
from penstock.hdf5.library import lock
from penstock.hdf5.selection import Selected
from penstock.hdf5.submit import unsettled
from penstock.placement import HOST, Device, allocate, parse_device
from penstock.report import THROUGH_HDF5, Report, remember
from penstock.request import Finished
from penstock.streams import wait_for

SMALL = 128 << 10
"""Up to so many bytes of host memory are read and written by h5py, which takes less time to start.

Without filters, with nothing to convert and row by row, it is not beaten below 64 times as many.
"""


TOO_SMALL = report.TOO_SMALL


def is_small(dataset: Any, selected: Selected, nbytes: int, *, plain: bool) -> bool:
    """Whether h5py is quicker for an array in host memory."""
    import h5py

    if nbytes <= SMALL:
        return True
    if nbytes > 64 * SMALL or not plain or not selected.rows:
        return False
    properties = dataset.id.get_create_plist()
    return bool(properties.get_nfilters() == 0 and properties.get_layout() != h5py.h5d.VIRTUAL)


def is_quick(dataset: Any) -> bool:
    """Whether h5py is quicker for all of a dataset in host memory. Asks for no more than it takes:
    a small read is over in the time of a few questions."""
    import h5py

    stored = dataset.id.get_storage_size()
    if 0 < stored <= SMALL:
        return True
    if not 0 < stored <= 64 * SMALL:
        return False
    properties = dataset.id.get_create_plist()
    return bool(properties.get_nfilters() == 0 and properties.get_layout() != h5py.h5d.VIRTUAL)


def quick_reader(dataset: Any) -> Callable[[], Any] | None:
    """What reads all of a dataset with next to nothing around h5py, if :func:`is_quick`."""
    if not is_quick(dataset):
        return None
    held = lock()

    def read() -> Any:
        start = perf_counter_ns()
        with held:
            if unsettled[0]:  # what settle() asks, without calling it
                hdf5_native.settle(dataset, request.READ)
            value = dataset[()]
        remember((getattr(value, "nbytes", 0), perf_counter_ns() - start))
        return value

    return read


def nothing(array: Any) -> Finished[Any]:
    """The write of no elements."""
    return Finished(array, Report(route="hdf5"))


def without_dimensions(dataset: Any) -> str:
    """Why a dataset that has no dimensions is left to h5py."""
    return "there are no data" if dataset.shape is None else "the dataspace is scalar"


def read(
    dataset: Any,
    selection: Any,
    out: Any,
    device: Device,
    dtype: Any,
    stream: int | None,
    reason: str,
) -> Finished[Any]:
    """Read what ``dataset[selection]`` gives, into ``out`` or a new array."""
    start = perf_counter_ns()
    if out is None and parse_device(device) == HOST:
        value = _value(dataset, selection, dtype)
        return _finished(value, getattr(value, "nbytes", 0), HOST, start, reason)
    view, copy_back = None, None
    if out is not None:
        view, copy_back = arrays.destination(out, stream)
        dtype = view.dtype
        if dtype.numpy is not None and _lacks_fields(dataset.dtype.base, dtype.numpy):
            raise InvalidError(
                "the elements in memory have fields that the dataset lacks, and would lose them",
                remedy="read only the fields that the dataset has",
            )
    host = np.asarray(_value(dataset, selection, dtype))
    if host.dtype.hasobject:
        raise IncompatibleError(
            f"elements of type {dataset.dtype} cannot be put into such an array",
            path=dataset.file.filename,
            remedy='read them with device="cpu"',
        )
    if view is None:
        host = host.astype(host.dtype.newbyteorder("="), copy=False)
        out = allocate(host.shape, element_type(host.dtype), device, stream)
        view, copy_back = arrays.destination(out, stream)
    if view.shape != host.shape:
        raise InvalidError(f"out has shape {view.shape}, and the selection has shape {host.shape}")
    staging.from_host(view, host)
    transfer.complete(view, copy_back)
    return _finished(out, view.nbytes, view.device, start, reason)


def _lacks_fields(stored: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a structure has fields, in itself or in what is nested alike, that another lacks."""
    return any(
        name not in (stored.names or ()) or _lacks_fields(stored[name].base, wanted[name].base)
        for name in wanted.names or ()
    )


def _value(dataset: Any, selection: Any, dtype: Any) -> Any:
    """The selected elements in host memory, converted by HDF5 where it can."""
    with lock():
        hdf5_native.settle(dataset, request.READ)
        if dtype is None:
            return dataset[selection]
        element = dtype if isinstance(dtype, ElementType) else element_type(dtype)
        if element.numpy == dataset.dtype:
            return dataset[selection]
        wanted = numpy_dtype(element)
        if wanted.names:  # NumPy would go by the places of the fields
            return dataset.astype(wanted)[selection]
        numbers = wanted.kind in "biufc" and dataset.dtype.kind in "biufc"
        if numbers and not hdf5_types.is_for_numpy(dataset.dtype, wanted):
            return dataset.astype(wanted)[selection]
        return np.asarray(dataset[selection]).astype(wanted)[()]


def write(
    dataset: Any,
    array: Any,
    selection: Any,
    view: arrays.View | None,
    stream: int | None,
    reason: str,
) -> Finished[Any]:
    """Do what ``dataset[selection] = array`` does, whatever memory the array is in."""
    start = perf_counter_ns()
    value, device = array, HOST
    as_it_is = isinstance(array, np.ndarray) and view is not None and view.array is array
    if view is not None:
        if as_it_is:
            wait_for(view.stream, view.device)
        else:
            value, device = staging.to_host(arrays.source(view.array, stream)), view.device
        stored = selections.stored_type(dataset, selection).base
        is_for_numpy = hdf5_types.is_for_numpy(np.asarray(value).dtype, stored)
        if is_for_numpy or view.dtype.is_extended:
            value = np.asarray(value).astype(stored)
    with lock():
        hdf5_native.settle(dataset, request.WRITE)
        dataset[selection] = value
    return _finished(array, np.asarray(value).nbytes, device, start, reason)


def _finished(array: Any, nbytes: int, device: int, start: int, reason: str) -> Finished[Any]:
    made = Report(
        route="hdf5",
        device=device,
        bytes=nbytes,
        hdf5=nbytes,
        elapsed_ns=perf_counter_ns() - start,
        copies=0 if device == HOST else 1,
        threads=1,
        note=f"{THROUGH_HDF5}: {reason}",
    )
    return Finished(array, made)
