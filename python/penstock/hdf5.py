"""Reading and writing HDF5 datasets.

h5py says what a selection means, the native library moves the bytes and converts the elements.
What only HDF5 itself can do (variable-length elements, references, conversions that NumPy has to
finish) and what is too small to gain goes through h5py; the report then has the route "hdf5".
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock import arrays, hdf5_native, hdf5_types, request, staging, transfer
from penstock import selection as selections
from penstock._options import OptionKeys, resolve
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError
from penstock.hdf5_library import lock
from penstock.placement import HOST, Device, allocate, parse_device
from penstock.report import Report
from penstock.request import Finished, Request
from penstock.streams import stream_handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

SMALL = 128 << 10
"""Up to so many bytes of host memory are read and written by h5py, which takes less time to start.

Without filters, with nothing to convert and row by row, it is not beaten below 64 times as many.
"""


def read(
    dataset: Any,
    selection: Any = (),
    *,
    out: Any = None,
    device: Device = None,
    dtype: Any = None,
    stream: Any = None,
    **options: Unpack[OptionKeys],
) -> Any:
    """Read a dataset, or a part of it, into an array.

    Args:
        dataset: An ``h5py.Dataset``.
        selection: What would stand in ``dataset[...]``, for example ``np.s_[0:10, :, 3]``, an
            index list, a mask or the name of a field; all of the dataset by default.
        out: An array of the selection's shape to fill, with any strides. Elements are converted
            to its type.
        device: Where a new array goes, as for :func:`penstock.load`. On the host it is what
            ``dataset[selection]`` gives, scalars and ``h5py.Empty`` included.
        dtype: Convert the elements to this type, as ``dataset.astype`` does.
        stream: A CUDA stream, as for :func:`penstock.load`.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        ``out``, or the new array.

    Raises:
        InvalidError: ``out`` is read-only or has another shape than the selection.
        IncompatibleError: The elements are strings or objects, which a GPU array cannot hold.
        Error: The transfer failed.
        ValueError, TypeError, IndexError: What h5py raises for the dataset or the selection.

    >>> x = ps.read(h5py_file["rho"], np.s_[0:10], device="cuda")
    """
    _check_dataset(dataset)
    scalar = out is None and parse_device(device) == HOST
    if scalar and dtype is None and 0 < dataset.nbytes <= SMALL:
        return transfer.finish(_read_by_h5py(dataset, selection, None, None, None, None, _SMALL))
    with _held(dataset):
        reading = _start_read(dataset, selection, out, device, dtype, stream, options, True)
        found = transfer.finish(reading.request)
    if reading.view is not None:
        transfer.complete(reading.view, reading.copy_back)
    return found[()] if scalar and isinstance(found, np.ndarray) and reading.single else found


def read_async(
    dataset: Any,
    selection: Any = (),
    *,
    out: Any = None,
    device: Device = None,
    dtype: Any = None,
    stream: Any = None,
    **options: Unpack[OptionKeys],
) -> Request[Any]:
    """Start what :func:`read` does, and return at once.

    With a ``stream``, the transfer starts after the work queued there, and work queued there
    later starts after the transfer. The dataset may be closed meanwhile.

    >>> r = ps.read_async(h5py_file["rho"], device="cuda")
    >>> rho = r.wait()
    """
    _check_dataset(dataset)
    with lock():
        reading = _start_read(dataset, selection, out, device, dtype, stream, options, False)
    if reading.view is not None:
        arrays.note_write(reading.view)
    return reading.request


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
        dataset: An ``h5py.Dataset`` of a file that is open for writing.
        array: Any array on the CPU or a GPU, with any strides, or what h5py takes. It is
            broadcast, and its elements are converted to the dataset's type.
        selection: What would stand in ``dataset[...]``; all of the dataset by default.
        stream: A CUDA stream whose queued work makes the array, as for :func:`penstock.save`.
        **options: See :class:`penstock.OptionKeys`.

    Raises:
        IncompatibleError: The array has a type that HDF5 cannot take.
        Error: The transfer failed.
        ValueError, TypeError, OSError: What h5py raises for the dataset or the selection.

    >>> ps.write(h5py_file["rho"], x, np.s_[0:10])
    """
    _check_dataset(dataset)
    with _held(dataset):
        transfer.finish(_start_write(dataset, array, selection, stream, options, waits=True))


def write_async(
    dataset: Any,
    array: Any,
    selection: Any = (),
    *,
    stream: Any = None,
    **options: Unpack[OptionKeys],
) -> Request[Any]:
    """Start what :func:`write` does, and return at once. The array must not change meanwhile.

    A write into chunks needs HDF5 for each of them. It goes on while it is waited for or asked
    whether it is done; wait for it before the file is closed.

    >>> r = ps.write_async(h5py_file["rho"], x)
    >>> r.wait()
    """
    _check_dataset(dataset)
    with lock():
        return _start_write(dataset, array, selection, stream, options, waits=False)


class _Reading(NamedTuple):
    request: Request[Any]
    view: arrays.View | None
    """The memory that is filled; ``None`` if it is filled already."""
    copy_back: Callable[[], None] | None
    single: bool
    """Whether one element was selected, not an array of one."""


def _start_read(
    dataset: Any,
    argument: Any,
    out: Any,
    device: Device,
    dtype: Any,
    stream: Any,
    options: OptionKeys,
    waits: bool,
) -> _Reading:
    if out is not None and dtype is not None:
        raise InvalidError("give out or dtype, not both: the elements become those of out")
    after = stream_handle(stream)
    native_options = resolve(options)
    if out is not None:
        transfer.check_device(out, device)
    on_host = out is None and parse_device(device) == HOST

    def by_h5py(reason: str) -> _Reading:
        made = _read_by_h5py(dataset, argument, out, device, dtype, after, reason)
        return _Reading(made, None, None, False)

    if not dataset.shape:
        return by_h5py(_without_dimensions(dataset))
    indices, names = selections.split(argument)
    stored = dataset.dtype
    if names:
        stored = selections.field_dtype(stored, names)
    if stored.hasobject:
        return by_h5py(f"elements of type {stored} are stored elsewhere in the file")
    selected = selections.select(dataset, indices)
    base, inner = stored.subdtype or (stored, ())

    if out is not None:
        wanted = arrays.view(out).dtype
    elif dtype is not None:
        wanted = element_type(dtype)
    else:
        wanted = element_type(base if on_host else base.newbyteorder("="))
    if waits and (on_host or (out is not None and arrays.view(out).device < 0)):
        nbytes = selected.count * stored.itemsize
        if _is_small(dataset, selected, nbytes, plain=wanted.numpy == base and not names):
            return by_h5py(_SMALL)
    kind = hdf5_types.memory_type(wanted, base)
    if kind is not None:
        kind = hdf5_types.array_type(kind, inner)
        if len(names) == 1:
            kind = hdf5_types.field_type(kind, names[0])
    if kind is None or not hdf5_types.converts(dataset.id.get_type(), kind):
        return by_h5py(f"HDF5 has no conversion to {wanted.name}")

    hdf5_native.settle(dataset)
    target = out
    if target is None:
        shape = selected.shape + inner
        if on_host:
            # Structures may have gaps, which nothing fills.
            make = np.zeros if base.kind == "V" else np.empty
            target = make(shape, base if wanted.numpy == base else numpy_dtype(wanted))
        else:
            target = allocate(shape, wanted, device, after)
    view, copy_back = _destination(target, after, selected, len(inner), waits)
    if view.shape != selected.shape + inner:
        raise InvalidError(
            f"out has shape {view.shape}, and the selection has shape {selected.shape + inner}"
        )
    made = hdf5_native.submit(
        request.READ,
        dataset,
        selected,
        hdf5_native.Memory(view, kind, _outer_strides(view, len(inner))),
        native_options,
        explicit_stream=stream is not None,
        waits=waits,
        array=target,
    )
    return _Reading(made, view, copy_back, single=not selected.shape)


def _destination(
    array: Any, stream: int | None, selected: selections.Selected, inner: int, waits: bool
) -> tuple[arrays.View, Callable[[], None] | None]:
    """The memory of an array as the library can fill it: itself, or a temporary if need be."""
    view = arrays.strided_destination(array, stream)
    if view.contiguous or (selected.regular and _are_dense(view, inner)):
        return view, None
    if waits:
        return arrays.destination(array, stream)
    return arrays.contiguous_destination(array, stream), None


def _start_write(
    dataset: Any, array: Any, argument: Any, stream: Any, options: OptionKeys, *, waits: bool
) -> Request[Any]:
    after = stream_handle(stream)
    native_options = resolve(options)
    stored = dataset.dtype
    view = _source(array, stored, after)

    def by_h5py(reason: str) -> Request[Any]:
        return _write_by_h5py(dataset, array, argument, view, after, reason)

    if not dataset.shape:
        return by_h5py(_without_dimensions(dataset))
    indices, names = selections.split(argument)
    field = selections.field_dtype(stored, names) if names else stored
    if view is None or field.hasobject:
        return by_h5py(f"values of type {field} are for HDF5 to make")
    dtype = view.dtype.numpy
    opaque = stored.kind == "V" and stored.subdtype is None
    if opaque and not names and (dtype is None or dtype.kind != "V"):
        return by_h5py(f"values of type {view.dtype.name} become {stored} by NumPy")
    if not writable(dataset):
        return by_h5py("the file is not open for writing")  # HDF5 says so

    base, inner = field.subdtype or (field, ())
    kind = hdf5_types.memory_type(view.dtype, base)
    if kind is not None and names:
        if dtype is not None and dtype.names is not None:
            kind, inner = hdf5_types.fields_type(dtype, names), ()
        elif len(names) == 1:
            kind = hdf5_types.field_type(hdf5_types.array_type(kind, inner), names[0])
        else:
            kind = None
    elif kind is not None:
        kind = hdf5_types.array_type(kind, inner)
    if kind is None or not hdf5_types.converts(kind, dataset.id.get_type()):
        return by_h5py(f"HDF5 has no conversion from {view.dtype.name}")
    outer = view.shape[: view.ndim - len(inner)]
    if view.shape[len(outer) :] != inner:
        return by_h5py("the arrays in the elements have another shape")

    selected = selections.select(dataset, indices)
    if not selected.count:
        return by_h5py("there are no data")
    if waits and view.device < 0:
        nbytes = selected.count * field.itemsize
        if _is_small(dataset, selected, nbytes, plain=dtype == base and not names):
            return by_h5py(_SMALL)
    if not view.contiguous and not (selected.regular and _are_dense(view, len(inner))):
        view = arrays.source(array, after)
    strides = _outer_strides(view, len(inner))
    if selected.regular:
        if outer != selected.shape:
            strides = selected.repeat(outer, view.byte_strides[: len(outer)])
    elif outer == () and selected.shape != ():
        return by_h5py("one value is written to a selection that is no box")
    else:
        selected.fits(outer)
    return hdf5_native.submit(
        request.WRITE,
        dataset,
        selected,
        hdf5_native.Memory(view, kind, strides),
        native_options,
        explicit_stream=stream is not None,
        waits=waits,
        array=array,
    )


def _source(array: Any, stored: np.dtype[Any], stream: int | None) -> arrays.View | None:
    """The memory of an array, ``None`` for values that h5py alone can make something of."""
    if isinstance(array, (list, tuple, bool, int, float, complex, np.generic)):
        # As h5py does: numbers become those of the dataset at once.
        if stored.kind not in "biufc":
            return None
        array = np.asarray(array, dtype=stored.base)
    elif isinstance(array, (str, bytes)):
        return None
    if isinstance(array, np.ndarray) and (array.dtype.hasobject or array.dtype.kind in "UT"):
        return None
    return arrays.view(array, stream)


def _without_dimensions(dataset: Any) -> str:
    return "there are no data" if dataset.shape is None else "the dataspace is scalar"


_SMALL = "so few bytes take longer in any other way"


def _is_small(dataset: Any, selected: selections.Selected, nbytes: int, *, plain: bool) -> bool:
    """Whether h5py is quicker for an array in host memory."""
    import h5py

    if nbytes <= SMALL:
        return True
    if nbytes > 64 * SMALL or not plain or not selected.rows:
        return False
    properties = dataset.id.get_create_plist()
    return bool(properties.get_nfilters() == 0 and properties.get_layout() != h5py.h5d.VIRTUAL)


def _are_dense(view: arrays.View, inner: int) -> bool:
    """Whether the last dimensions, which make an element, lie in C order."""
    expected = arrays.c_strides(view.shape, view.dtype.itemsize)
    return inner == 0 or view.byte_strides[-inner:] == expected[-inner:]


def _outer_strides(view: arrays.View, inner: int) -> tuple[int, ...] | None:
    if view.strides is None:
        return None
    return view.strides[: len(view.strides) - inner]


def _read_by_h5py(
    dataset: Any,
    selection: Any,
    out: Any,
    device: Device,
    dtype: Any,
    stream: int | None,
    reason: str,
) -> Finished[Any]:
    start = perf_counter_ns()
    hdf5_native.settle(dataset)
    if out is None and parse_device(device) == HOST:
        value = _value(dataset, selection, dtype)
        return _finished(value, getattr(value, "nbytes", 0), HOST, start, reason)
    view, copy_back = None, None
    if out is not None:
        view, copy_back = arrays.destination(out, stream)
        dtype = view.dtype
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


def _value(dataset: Any, selection: Any, dtype: Any) -> Any:
    """The selected elements in host memory, converted by HDF5 where it can."""
    if dtype is None:
        return dataset[selection]
    element = dtype if isinstance(dtype, ElementType) else element_type(dtype)
    if element.numpy == dataset.dtype:
        return dataset[selection]
    wanted = numpy_dtype(element)
    if wanted.kind in "biufc" and dataset.dtype.kind in "biufc":
        return dataset.astype(wanted)[selection]
    return np.asarray(dataset[selection]).astype(wanted)[()]


def _write_by_h5py(
    dataset: Any,
    array: Any,
    selection: Any,
    view: arrays.View | None,
    stream: int | None,
    reason: str,
) -> Finished[Any]:
    hdf5_native.settle(dataset)
    start = perf_counter_ns()
    value, device = array, HOST
    if view is not None and not isinstance(array, (np.ndarray, np.generic, list, tuple)):
        value, device = staging.to_host(arrays.source(view.array, stream)), view.device
    dataset[selection] = value
    return _finished(array, np.asarray(value).nbytes, device, start, reason)


def _finished(array: Any, nbytes: int, device: int, start: int, reason: str) -> Finished[Any]:
    report = Report(
        route="hdf5",
        device=device,
        bytes=nbytes,
        hdf5=nbytes,
        elapsed_ns=perf_counter_ns() - start,
        copies=0 if device == HOST else 1,
        threads=1,
        note=f"through HDF5 in host memory: {reason}",
    )
    return Finished(array, report)


def writable(dataset: Any) -> bool:
    """Whether the file of a dataset is open for writing."""
    import h5py

    if getattr(dataset, "_readonly", False):  # what h5py knows already is quicker than to ask
        return False
    return bool(h5py.h5i.get_file_id(dataset.id).get_intent() & h5py.h5f.ACC_RDWR)


def _held(dataset: Any) -> AbstractContextManager[Any]:
    """Nothing else may happen to a file that is open for writing while a call is under way."""
    return lock() if writable(dataset) else nullcontext()


def _check_dataset(dataset: Any) -> None:
    import h5py

    if not isinstance(dataset, h5py.Dataset):
        raise IncompatibleError(f"a {type(dataset).__name__} is not an h5py.Dataset")
    if not dataset.id.valid:
        raise InvalidError("the dataset is closed")
