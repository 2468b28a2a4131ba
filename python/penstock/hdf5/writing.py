"""Writes of datasets: from the caller's arguments to a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import arrays, request, staging, transfer
from penstock._options import OptionKeys
from penstock.errors import Error, IncompatibleError, PermissionDeniedError
from penstock.hdf5 import by_h5py, dropped
from penstock.hdf5 import selection as selections
from penstock.hdf5.conversions import OnlyH5pyError
from penstock.hdf5.dataset_reader import DatasetReader
from penstock.hdf5.library import check_dataset, is_virtual, lock
from penstock.hdf5.source import takes_name
from penstock.hdf5.submit import SubmitOptions, TypedMemory, submit
from penstock.records import converted, in_c_order
from penstock.request import Finished, Request

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes_name("r+")
def write(
    dataset: Any,
    array: Any,
    selection: Any = (),
    *,
    stream: Any = None,
    **options: Unpack[OptionKeys],
) -> None:
    """Write an array to a dataset, or to a part of it, as ``dataset[selection] = array`` does.

    Args:
        dataset: A :class:`penstock.Dataset` or ``h5py.Dataset`` of a file that is open for
            writing, or ``"file.h5:name"``.
        array: Any array on the CPU or a GPU, with any strides, or any value that h5py accepts. It
            is broadcast, and its elements are converted to the dataset's type.
        selection: The argument of ``dataset[...]``; the whole dataset by default.
        stream: A CUDA stream whose queued work makes the array, as for :func:`penstock.save`.
        **options: See :class:`penstock.OptionKeys`.

    Raises:
        IncompatibleError: The array has a type that HDF5 cannot take.
        PermissionDeniedError: The file is not open for writing.
        Error: The transfer failed.
        ValueError, TypeError, OSError: What h5py raises for the dataset or the selection.

    >>> ps.write(h5py_file["rho"], x, np.s_[0:10])
    """
    if stream is None and not options:
        reader = getattr(dataset, "_reader", None) or DatasetReader.of(dataset)
        if reader.write(dataset, selection, array):
            return
    check_dataset(dataset)
    submit_options = SubmitOptions.of(stream, options)
    with lock():
        transfer.finish(_start(dataset, array, selection, submit_options, blocking=True))


def write_async(
    dataset: Any,
    array: Any,
    selection: Any = (),
    *,
    stream: Any = None,
    **options: Unpack[OptionKeys],
) -> Request[Any]:
    """Start what :func:`write` does, and return at once. The array must not change meanwhile.

    HDF5 stores each chunk on the thread of the caller. So a write into chunks continues only in
    the request's ``wait`` and ``done``. Wait for it before the file is closed.

    >>> r = ps.write_async(h5py_file["rho"], x)
    >>> r.wait()
    """
    check_dataset(dataset)
    submit_options = SubmitOptions.of(stream, options)
    with lock():
        return _start(dataset, array, selection, submit_options, blocking=False)


def _start(
    dataset: Any, array: Any, argument: Any, submit_options: SubmitOptions, *, blocking: bool
) -> Request[Any]:
    if not DatasetReader.of(dataset).is_writable(dataset):
        path = dataset.file.filename
        raise PermissionDeniedError(
            f"{path} is not open for writing", path=path, remedy='open it with the mode "r+"'
        )
    view = _source(array, dataset.dtype, submit_options.stream)
    try:
        return _submit(dataset, array, argument, view, submit_options, blocking=blocking)
    except (OnlyH5pyError, Error) as error:
        reason = by_h5py.why_left(error, dataset)
    return by_h5py.write(dataset, array, argument, view, submit_options, reason)


def _submit(
    dataset: Any,
    array: Any,
    argument: Any,
    view: arrays.View | None,
    submit_options: SubmitOptions,
    *,
    blocking: bool,
) -> Request[Any]:
    """Start a write by the library, from the memory of an array or from values.

    Raises:
        OnlyH5pyError: h5py has to write.
    """
    stream, extent = submit_options.stream, dataset.shape
    if not extent:
        raise OnlyH5pyError(by_h5py.without_dimensions(dataset))
    indices, names = selections.split(argument)
    if names and is_virtual(dataset):
        raise IncompatibleError(
            f"{dataset.name} is virtual: HDF5 (2.0.0) loses the fields that are not written",
            path=dataset.file.filename,
            remedy="write whole elements, or write the field to the sources",
        )
    conversions = DatasetReader.of(dataset).conversions
    if view is None:
        field = conversions.field(names)
        made_by_numpy = not field.hasobject and field.kind in "SV"
        if made_by_numpy and not selections.are_writable(dataset, argument):
            array, _ = selections.values_of(dataset, array, names)
            view = None if array.dtype.kind in "UT" else arrays.view(array, stream)
        if view is None:
            raise OnlyH5pyError(f"HDF5 converts values to {field}")
    if not view.dtype.is_numpys(conversions.stored.base) and is_virtual(dataset):
        array = _converted(array, view, conversions.stored.base, stream)
        view = arrays.view(array)
    _, inner, kind, _ = conversions.to_write(names, view.dtype)
    outer = view.shape[: view.ndim - len(inner)]
    if view.shape[len(outer) :] != inner:
        raise OnlyH5pyError("the arrays in the elements have another shape")

    selection = selections.select(dataset, extent, indices)
    is_for_h5py = not selection.has_lists and (inner or not selection.is_grid)
    if outer == () and selection.shape != () and is_for_h5py:
        raise OnlyH5pyError("h5py accepts or refuses one value for arrays or single elements")
    selection.check_broadcast(outer)
    if not selection.size:
        return by_h5py.no_elements(array)
    if outer != selection.shape and not selection.is_grid:
        if is_for_h5py:
            raise OnlyH5pyError("single elements need a value each")
        host = staging.to_host(arrays.source(view.array, stream))
        shape = selection.shape + inner
        host = host.reshape(host.shape[max(host.ndim - len(shape), 0) :])  # others are 1
        array = in_c_order(np.broadcast_to(host, shape))
        view, outer = arrays.view(array, stream), selection.shape
    if not view.contiguous and not (selection.is_grid and view.is_dense(len(inner))):
        view = arrays.source(array, stream)
    strides = view.outer_strides(len(inner))
    if selection.is_grid and outer != selection.shape:
        strides = selection.broadcast(outer, view.byte_strides[: len(outer)])
    made: Request[Any] | None = None
    try:
        made = submit(
            request.WRITE,
            dataset,
            selection,
            TypedMemory(view, kind, strides),
            submit_options,
            blocking=blocking,
            may_change=True,
            array=array,
        )
        return made
    finally:
        # The library leaves some elements to HDF5, now or as the request continues.
        if not isinstance(made, Finished) or made.account().hdf5:
            dropped.watch(dataset)


def _converted(
    array: Any, view: arrays.View, stored: np.dtype[Any], stream: int | None
) -> np.ndarray[Any, Any]:
    """Return numbers of the stored type: HDF5 (2.0.0) converts none for virtual datasets."""
    dtype = view.dtype.numpy
    if dtype is None or {dtype.kind, stored.kind} - set("biufc"):
        raise IncompatibleError(
            f"elements of type {view.dtype.name} are written to a virtual dataset of {stored}",
            remedy="convert them to that type, or write to the sources",
        )
    return converted(staging.to_host(arrays.source(array, stream)), stored)


def _source(array: Any, stored: np.dtype[Any], stream: int | None) -> arrays.View | None:
    """Return the memory of an array; ``None`` for values that only h5py converts."""
    if isinstance(array, np.ndarray) and not array.dtype.hasobject:
        return None if array.dtype.kind in "UT" else arrays.view(array, stream)
    if isinstance(array, (list, tuple, bool, int, float, complex, np.generic)):
        # Numbers take the dataset's type at once, as by h5py.
        if stored.kind not in "biufc":
            return None
        return arrays.view(np.asarray(array, dtype=stored.base), stream)
    if isinstance(array, (str, bytes)):
        return None
    found = None if isinstance(array, np.ndarray) else arrays.find(array, stream)
    if found is not None:
        return found
    # For example a table, a range, another dataset, a decimal number or an array of them.
    made = _numbers(array, stored)
    return None if made is None else arrays.view(made, stream)


def _numbers(value: Any, stored: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """Convert a value by NumPy for a dataset of numbers; ``None`` if it has no numbers."""
    if stored.kind not in "biufc":
        return None
    # NumPy makes a truth value of any object, also of text.
    takes_any = stored.kind == "b" and isinstance(value, np.ndarray)
    if takes_any and np.asarray(value.tolist()).dtype.kind not in "biufc":
        raise IncompatibleError("the objects in the array are neither numbers nor truth values")
    try:
        made: np.ndarray[Any, Any] = np.asarray(value)
        return made if made.dtype.kind in "biufc" else np.asarray(value, dtype=stored.base)
    except (TypeError, ValueError):
        return None
