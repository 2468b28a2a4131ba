"""Transfers that h5py does itself, in host memory and under HDF5's lock.

These are elements that only HDF5 can read (of variable length, references), conversions that NumPy
has to finish, and transfers so small that h5py is faster. The report has the route "hdf5" and the
reason.
"""

from __future__ import annotations

import ctypes
import errno
import math
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import numpy as np

from penstock import arrays, request, staging, transfer
from penstock._native import lib
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.errors import Error, ForkedError, IncompatibleError, InvalidError, check
from penstock.hdf5 import dropped, memory_types, small
from penstock.hdf5 import selection as selections
from penstock.hdf5.cf import Decoding
from penstock.hdf5.conversions import OnlyH5pyError
from penstock.hdf5.library import explain, is_virtual, is_writable, lock, plain, wait_for_dataset
from penstock.hdf5.selection import Runs
from penstock.hdf5.submit import SubmitOptions, TypedMemory, submit
from penstock.placement import HOST, Device, allocate, is_numpy
from penstock.records import converted, has_padding, in_c_order, of_type
from penstock.report import THROUGH_HDF5, Report
from penstock.request import Finished
from penstock.streams import wait_for


def no_elements(array: Any) -> Finished[Any]:
    """Return the request of a write of no elements."""
    return Finished(array, Report(route="hdf5"))


def takes_over(error: Error, dataset: Any) -> bool:
    """Whether h5py, which has the file open, can do what the library could not start.

    That is so in some forked children, and where no descriptor is left for the library. But HDF5
    returns the fill value for a source of a virtual dataset that it cannot open.
    """
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return not is_virtual(dataset)
    return isinstance(error, ForkedError)


def why_left(error: OnlyH5pyError | Error, dataset: Any) -> str:
    """Return why h5py does what the library has not started; raise the error if it cannot."""
    if not isinstance(error, OnlyH5pyError) and not takes_over(error, dataset):
        raise error
    return str(error)


def without_dimensions(dataset: Any) -> str:
    """Return why a dataset without dimensions is left to h5py."""
    return "there are no data" if dataset.shape is None else "the dataspace is scalar"


def read(
    dataset: Any,
    selection: Any,
    out: Any,
    device: Device,
    dtype: Any,
    stream: int | None,
    reason: str,
    how: Decoding | None = None,
) -> Finished[Any]:
    """Read ``dataset[selection]`` into ``out`` or a new array.

    Args:
        dataset: The ``h5py.Dataset``.
        selection: The argument of ``dataset[...]``.
        out: The array to fill, or ``None`` for a new one.
        device: The device of a new array.
        dtype: The type of a new array's elements; ``None`` for the dataset's.
        stream: The handle of the caller's stream.
        reason: Why h5py reads it, for the report.
        how: How the elements are decoded; ``None`` if they stay as they are.
    """
    start, dataset = perf_counter_ns(), plain(dataset)
    if out is None and is_numpy(device):
        value = _value(dataset, selection, dtype, how)
        return _finished(value, getattr(value, "nbytes", 0), HOST, start, reason)
    view, copy_back = None, None
    if out is not None:
        view, copy_back = arrays.destination(out, stream)
        if how is None:
            dtype = view.dtype
            refuse_more_fields(selections.stored_type(dataset, selection).base, dtype)
        else:
            how.check_out(view.dtype, dataset)
        indices, _ = selections.split(selection)
        if len(indices) == 1 and isinstance(runs := indices[0], Runs):
            _read_runs(dataset, runs, view, dtype, how)
            transfer.complete(view, copy_back)
            return _finished(out, view.nbytes, view.device, start, reason)
    value = _value(dataset, selection, dtype, how)
    host = np.asarray(value)
    if host.dtype.hasobject or type(value) in (bytes, str):
        raise IncompatibleError(
            f"elements of type {dataset.dtype} cannot be put into such an array",
            path=dataset.file.filename,
            remedy='read them with device="cpu"',
        )
    if view is None:
        host = host.astype(host.dtype.newbyteorder("="), copy=False)
        out = allocate(host.shape, element_type(host.dtype), device, stream)
        view = arrays.new(out, stream)
    if view.shape != host.shape:
        raise InvalidError(f"out has shape {view.shape}, and the selection has shape {host.shape}")
    staging.from_host(view, host)
    transfer.complete(view, copy_back)
    return _finished(out, view.nbytes, view.device, start, reason)


def _read_runs(
    dataset: Any, runs: Runs, view: arrays.View, dtype: Any, how: Decoding | None
) -> None:
    """Read each run to its place in an array, whose other elements stay: other reads fill them."""
    if view.shape != runs.shape:
        raise InvalidError(f"out has shape {view.shape}, and the runs end at {runs.count}")
    size = view.dtype.itemsize
    across = math.prod(dataset.shape[1:])
    for begin, position, length in runs.by_start:
        end = begin + length
        if end > math.prod(dataset.shape):
            raise IndexError(f"element {end - 1} is outside the shape {dataset.shape}")
        first = begin // across
        found = np.asarray(_value(dataset, np.s_[first : -(-end // across)], dtype, how))
        part = replace(
            view,
            pointer=view.pointer + position * size,
            nbytes=length * size,
            shape=(length,),
            array=None,
        )
        staging.from_host(part, found.reshape(-1)[begin - first * across :][:length])


def refuse_more_fields(stored: np.dtype[Any], wanted: ElementType) -> None:
    """Raise an error if elements that come through a temporary have fields that are not stored."""
    if wanted.numpy is not None and _lacks_fields(stored, wanted.numpy):
        raise InvalidError(
            "the elements in memory have fields that the dataset lacks, and would lose them",
            remedy="read only the fields that the dataset has",
        )


def _lacks_fields(stored: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether ``wanted``, or a structure nested in it, has a field that ``stored`` lacks."""
    return any(
        name not in (stored.names or ()) or _lacks_fields(stored[name].base, wanted[name].base)
        for name in wanted.names or ()
    )


def _value(dataset: Any, selection: Any, dtype: Any, how: Decoding | None) -> Any:
    """Read the selected elements to host memory. HDF5 converts them where it can, else NumPy."""
    selection, reorder = selections.readable(dataset, selection)
    try:
        value = _read(dataset, selection, dtype)
    except OSError as error:
        explain(dataset, error)
        raise
    if how is not None and dataset.shape is not None:
        value = how.apply(value) if isinstance(value, np.ndarray) else how.apply(value)[()]
    return value if reorder is None else reorder(np.asarray(value))


def _read(dataset: Any, selection: Any, dtype: Any) -> Any:
    with lock():
        wait_for_dataset(dataset, request.READ)
        selections.refuse_misread(dataset, selection)
        if dtype is None or dataset.shape is None:
            return _elements(dataset, selection)
        element = dtype if isinstance(dtype, ElementType) else element_type(dtype)
        _, names = selections.split(selection)
        stored = selections.stored_type(dataset, selection)
        base, inner = stored.subdtype or (stored, ())
        if element.is_numpys(base):
            return _elements(dataset, selection)
        wanted = numpy_dtype(element)
        kind = memory_types.field_kind(dataset.id.get_type(), names)
        if (between := memory_types.in_order_of(wanted, kind)) != wanted:
            return np.asarray(_read(dataset, selection, between)).astype(wanted)[()]
        numbers = not element.is_extended and wanted.kind in "biufc" and base.kind in "biufc"
        # NumPy would match fields by their order, not by their names, and numbers that do not fit
        # would become others than by HDF5.
        if wanted.names or (numbers and not memory_types.needs_numpy(base, wanted)):
            converted = np.dtype((wanted, inner))
            if len(names) == 1:
                converted = np.dtype([(names[0], converted)])
            return dataset.astype(converted)[selection]
        return np.asarray(_elements(dataset, selection)).astype(wanted)[()]


def _elements(dataset: Any, selection: Any) -> Any:
    if _needs_zeros(dataset, selection):
        return _read_into_zeros(dataset, selection)
    found = dataset[selection]
    if dataset.dtype.hasobject:
        memory_types.correct_lists(found, selections.stored_type(dataset, selection))
    return found


def _needs_zeros(dataset: Any, argument: Any) -> bool:
    """Whether h5py's read of ``dataset[argument]`` may show memory that was never written."""
    return (
        dataset.shape is not None
        and small.may_leave_memory(dataset)
        and _has_references(selections.stored_type(dataset, argument))
        and not (dataset.shape == () and dataset.id.get_storage_size())
    )


def _read_into_zeros(dataset: Any, argument: Any) -> Any:
    """Return ``dataset[argument]``, with null references and zeros where HDF5 leaves memory.

    h5py reads references through memory that it does not clear. Elements that were never written
    then show what that memory held before. Here the engine reads the bytes into zeros, and h5py's
    conversion makes objects of them: zeros are a null reference.
    """
    import h5py
    from h5py._hl.selections2 import select_read

    indices, names = selections.split(argument)
    stored = selections.stored_type(dataset, argument)
    kind = h5py.h5t.py_create(stored, logical=True)
    if dataset.shape == ():
        shape = select_read(dataset.id.get_space(), indices).mshape
        made = _objects(np.zeros((), _bytes_of(kind)), stored.base)
        return made[()] if shape is None else made
    selection = selections.select(dataset, dataset.shape, indices)
    packed = np.zeros(selection.size * kind.get_size(), np.uint8)
    in_memory = memory_types.field_type(kind, names[0]) if len(names) == 1 else kind
    reading = submit(
        request.READ,
        dataset,
        selection,
        TypedMemory(arrays.view(packed, None), in_memory, None),
        SubmitOptions.of(None, {}),
        blocking=True,
        may_change=is_writable(dataset),
        array=packed,
        is_new=True,
    )
    transfer.finish(reading)
    record = np.dtype([("element", _bytes_of(kind))])
    return _objects(packed.view(record).reshape(selection.shape)["element"], stored.base)[()]


def _has_references(stored: np.dtype[Any]) -> bool:
    """Whether elements hold references and no other objects."""
    import h5py

    base = stored.base
    if base.names is None:
        return h5py.check_ref_dtype(base) is not None
    with_objects = [base[name] for name in base.names if base[name].hasobject]
    return bool(with_objects) and all(map(_has_references, with_objects))


def _bytes_of(kind: Any) -> np.dtype[Any]:
    """Return NumPy's type for the bytes of elements, in which references are plain bytes."""
    import h5py

    if isinstance(kind, h5py.h5t.TypeReferenceID):
        return np.dtype((np.void, kind.get_size()))
    if isinstance(kind, h5py.h5t.TypeArrayID):
        return np.dtype((_bytes_of(kind.get_super()), kind.get_array_dims()))
    if not isinstance(kind, h5py.h5t.TypeCompoundID):
        found: np.dtype[Any] = kind.dtype
        return found
    members = range(kind.get_nmembers())
    return np.dtype(
        {
            "names": [kind.get_member_name(at).decode() for at in members],
            "formats": [_bytes_of(kind.get_member_type(at)) for at in members],
            "offsets": [kind.get_member_offset(at) for at in members],
            "itemsize": kind.get_size(),
        }
    )


def _objects(found: np.ndarray[Any, Any], stored: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return elements of the dataset's type from their bytes."""
    if not stored.hasobject:
        return found.astype(stored, copy=False)
    if stored.names is None:
        return _references(found, stored)
    made = np.zeros(found.shape, stored)
    for name in stored.names:
        made[name] = _objects(found[name], stored[name].base)
    return made


def _references(found: np.ndarray[Any, Any], stored: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return references from their bytes."""
    import h5py

    buffer = np.frombuffer(bytearray(found.tobytes()), np.uint8)
    with lock():
        source, target = h5py.h5t.py_create(stored, logical=True), h5py.h5t.py_create(stored)
        # h5py releases the objects of the background; zeros are not objects.
        h5py.h5t.convert(source, target, found.size, buffer, np.zeros_like(buffer))
    # The buffer now has the addresses of objects, which the array takes over. The array loses
    # references to None, whose reference count does not matter.
    made = np.empty(found.shape, stored)
    ctypes.memmove(made.ctypes.data, buffer.ctypes.data, made.nbytes)
    return made


def write(
    dataset: Any,
    array: Any,
    selection: Any,
    view: arrays.View | None,
    submit_options: SubmitOptions,
    reason: str,
) -> Finished[Any]:
    """Do ``dataset[selection] = array``, whatever memory the array is in.

    A durable write ends with a flush and a sync of the file.

    Args:
        dataset: The ``h5py.Dataset``.
        array: What the caller passed.
        selection: The argument of ``dataset[...]``.
        view: The memory of the array; ``None`` for values that only h5py converts.
        submit_options: The stream and the options of the call.
        reason: Why h5py writes it, for the report.
    """
    start, dataset = perf_counter_ns(), plain(dataset)
    stream, options = submit_options.stream, submit_options.options
    value, device = array, HOST
    _, names = selections.split(selection)
    field = selections.stored_type(dataset, selection)
    is_numpy = isinstance(array, np.ndarray) and view is not None and view.array is array
    if view is not None:
        if is_numpy:
            wait_for(view.stream, view.device)
        else:
            value, device = staging.to_host(arrays.source(view.array, stream)), view.device
        stored = field.base
        given = np.asarray(value).dtype
        if memory_types.needs_numpy(given, stored) or view.dtype.is_extended:
            value = converted(value, stored)
        else:
            kind = dataset.id.get_type()
            kind = kind if given.names else memory_types.field_kind(kind, names)
            if (between := memory_types.in_order_of(given, kind)) != given:
                value = converted(value, between)
    elif isinstance(value, (list, tuple, np.generic)) and has_padding(dataset.dtype):
        value = _as_records(dataset, value, names, field)
    value = _only_fields(value, names, field)
    if isinstance(value, np.ndarray) and not value.size and not field.hasobject:
        _refuse_nothing(value, dataset, selection)
    selection, value = selections.writable(dataset, selection, value)
    value = selections.spread(dataset, selection, value)
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        value = in_c_order(value)  # before h5py copies it
    with lock():
        # Refuses, before HDF5 writes, a durable write that cannot be kept.
        check(lib.penstock_hdf5_sync(dataset.id.id, options))
        wait_for_dataset(dataset, request.WRITE)
        try:
            dataset[selection] = value
        except OSError as error:
            explain(dataset, error)
            raise
        finally:
            dropped.watch(dataset)
        check(lib.penstock_hdf5_sync(dataset.id.id, options))
    return _finished(array, _nbytes(value), device, start, reason)


def _nbytes(value: Any) -> int:
    """Return the bytes of an array of these values; 0 if they are lists of different lengths."""
    try:
        return np.asarray(value).nbytes
    except ValueError:
        return 0


def _refuse_nothing(value: np.ndarray[Any, Any], dataset: Any, argument: Any) -> None:
    """Raise an error if an array without elements is for some: h5py writes other memory then."""
    indices, _ = selections.split(argument)
    shape = selections.select(dataset, dataset.shape, indices).shape if dataset.shape else ()
    if math.prod(shape):
        raise TypeError(f"Can't broadcast {value.shape} -> {shape}")


def _as_records(dataset: Any, value: Any, names: tuple[str, ...], field: np.dtype[Any]) -> Any:
    """Return values as arrays of the type that h5py would give them; others as they are."""
    if names and isinstance(value, np.void) and value.dtype.names is not None:
        return of_type(value, value.dtype)
    if len(names) != 1:
        return of_type(value, dataset.dtype.base)
    return value if field.names is None else of_type(value, field)


def _only_fields(value: Any, names: tuple[str, ...], field: np.dtype[Any]) -> Any:
    """Return a structure of no other fields than those that are written.

    HDF5 (2.0.0) otherwise takes a chunk that is written from elements of the file's size for
    written whole, and loses its other fields.
    """
    if not names or not isinstance(value, (np.ndarray, np.void)) or value.dtype.names is None:
        return value
    given = np.asarray(value)
    written = [name for name in value.dtype.names if name in names]
    # Values of a field that is itself a structure.
    if not written and len(names) == 1 and set(value.dtype.names) == set(field.base.names or ()):
        made = np.zeros(given.shape, [(names[0], given.dtype)])
        made[names[0]] = given
        return made
    if not written or len(written) == len(value.dtype.names):
        return value
    packed = np.zeros(given.shape, [(name, given.dtype[name]) for name in written])
    for name in written:
        packed[name] = given[name]
    return packed


def _finished(array: Any, nbytes: int, device: int, start: int, reason: str) -> Finished[Any]:
    report = Report(
        route="hdf5",
        device=device,
        bytes=nbytes,
        hdf5=nbytes,
        elapsed_ns=perf_counter_ns() - start,
        copies=0 if device == HOST else 1,
        threads=1,
        note=f"{THROUGH_HDF5}: {reason}",
    )
    return Finished(array, report)
