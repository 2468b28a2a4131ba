"""Reads of datasets: from the caller's arguments to a request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock import arrays, request, transfer
from penstock._options import OptionKeys
from penstock.dtypes import numpy_dtype
from penstock.errors import Error, InvalidError
from penstock.hdf5 import by_h5py, memory_types
from penstock.hdf5 import selection as selections
from penstock.hdf5.cf import Decoding
from penstock.hdf5.conversions import OnlyH5pyError
from penstock.hdf5.dataset_reader import DatasetReader
from penstock.hdf5.library import check_dataset, lock
from penstock.hdf5.source import opened, takes_name
from penstock.hdf5.submit import SubmitOptions, TypedMemory, submit
from penstock.placement import (
    HOST_DEVICE,
    Device,
    Library,
    allocate,
    is_numpy,
    place,
)
from penstock.request import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NO_LOCK = nullcontext()


def read(
    dataset: Any,
    selection: Any = (),
    *,
    out: Any = None,
    device: Device = None,
    dtype: Any = None,
    stream: Any = None,
    like: Library | None = None,
    pin: bool = False,
    cf: bool | Decoding = False,
    **options: Unpack[OptionKeys],
) -> Any:
    """Read a dataset, or a part of it, into an array.

    Args:
        dataset: A :class:`penstock.Dataset`, an ``h5py.Dataset``, or ``"file.h5:name"``.
        selection: The argument of ``dataset[...]``, for example ``np.s_[0:10, :, 3]``, an index
            list, a mask or the name of a field; the whole dataset by default.
        out: An array of the selection's shape to fill, with any strides. Elements are converted
            to its type.
        device: Where a new array goes, as for :func:`penstock.load`. On the host, the result is
            that of ``dataset[selection]``, scalars and ``h5py.Empty`` included.
        dtype: Convert the elements to this type, as ``dataset.astype`` does.
        stream: A CUDA stream, as for :func:`penstock.load`.
        like: The library of a new array, as there. Scalars are then arrays without dimensions.
        pin: Whether a new array in host memory is page-locked, as there.
        cf: Whether the attributes ``scale_factor``, ``add_offset``, ``_FillValue``,
            ``missing_value`` and ``_Unsigned`` are applied, as xarray does: missing values become
            NaN. The elements have the type that xarray chooses, and so must those of ``out``.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        ``out``, or the new array.

    Raises:
        InvalidError: ``out`` is read-only, requires grad or has another shape than the selection;
            or ``cf`` is given, and the attributes cannot be applied.
        IncompatibleError: The elements are strings or objects, which a GPU array cannot hold.
        Error: The transfer failed.
        ValueError, TypeError, IndexError: What h5py raises for the dataset or the selection.

    >>> x = ps.read(h5py_file["rho"], np.s_[0:10], device="cuda")
    """
    if isinstance(dataset, str):
        with opened(dataset, "r") as find:
            device = place(device, like, pin, out)
            return read_placed(find(), None, selection, out, device, dtype, stream, options, cf=cf)
    device = place(device, like, pin, out)
    reader = getattr(dataset, "_reader", None)  # that of a penstock.Dataset
    reader = reader or DatasetReader.of(dataset)
    return read_placed(dataset, reader, selection, out, device, dtype, stream, options, cf=cf)


def read_placed(
    dataset: Any,
    reader: DatasetReader | None,
    selection: Any,
    out: Any,
    device: Device,
    dtype: Any,
    stream: Any,
    options: OptionKeys,
    *,
    cf: bool | Decoding = False,
    is_new: bool = False,
) -> Any:
    """Do what :func:`read` does for an ``h5py.Dataset``, by its reader of small parts if it can.

    The device may be a placement. Without a reader, this is the only read of the dataset.
    ``is_new`` says that the caller must not see the old elements of ``out`` again.
    """
    reader = reader or DatasetReader.once(dataset)
    how = _decoding(dataset, reader, dtype, cf) if cf else None
    on_host = device is None or (type(device) is str and device == HOST_DEVICE)
    if how is not None:
        reader = reader.decoded(dataset, how)
    found = None
    if out is not None:
        is_place_known = device is None or (on_host and type(out) is np.ndarray)
        may_fill = dtype is None and is_place_known
        if may_fill and reader.read_into(dataset, selection, out, stream, options, is_new):
            return out
    elif on_host and not options and stream is None:
        found, is_filled = reader.read(dataset, selection, dtype)
        if is_filled:
            return found
    else:
        found, is_filled = reader.read_new(dataset, selection, device, dtype, stream, options)
        if is_filled:
            return found
    if found is not None:  # another way fills it
        out, device, dtype, is_new = found, None, None, True
    target = Target(out, device, dtype, is_new)
    return _read(dataset, reader, selection, target, SubmitOptions.of(stream, options))


class Target(NamedTuple):
    """What a read fills."""

    out: Any = None
    """The array; ``None`` for a new one."""
    device: Device = None
    """Where a new array goes, which may be a placement."""
    dtype: Any = None
    """The type of its elements; ``None`` for that of the dataset."""
    is_new: bool = False
    """Whether ``out`` is new, too, so that the caller must not see its old elements."""


def read_new(dataset: Any, reader: DatasetReader, selection: Any, out: Any) -> Any:
    """Read to host memory: into a new array, which may be made already."""
    target = Target(out, is_new=out is not None)
    return _read(dataset, reader, selection, target, SubmitOptions.of(None, {}))


def _read(
    dataset: Any, reader: DatasetReader, selection: Any, target: Target, call: SubmitOptions
) -> Any:
    """Do what :func:`read` does for an ``h5py.Dataset``, whatever its type, selection and size."""
    check_dataset(dataset)
    # No other access can change a file that is open for writing meanwhile.
    with lock() if reader.is_writable(dataset) else _NO_LOCK:
        reading = _start(dataset, reader, selection, target, call, blocking=True)
        found = transfer.finish(reading.request)
    if reading.view is not None:
        transfer.complete(reading.view, reading.copy_back)
    is_scalar = reading.single and target.out is None and isinstance(found, np.ndarray)
    return found[()] if is_scalar and is_numpy(target.device) else found


@takes_name("r")
def read_async(
    dataset: Any,
    selection: Any = (),
    *,
    out: Any = None,
    device: Device = None,
    dtype: Any = None,
    stream: Any = None,
    like: Library | None = None,
    pin: bool = False,
    cf: bool | Decoding = False,
    **options: Unpack[OptionKeys],
) -> Request[Any]:
    """Start what :func:`read` does, and return at once.

    With a ``stream``, the transfer starts after the work queued there, and work queued there
    later starts after the transfer. The dataset may be closed before the request is finished.

    >>> r = ps.read_async(h5py_file["rho"], device="cuda")
    >>> rho = r.wait()
    """
    device = place(device, like, pin, out)
    reader = DatasetReader.of(dataset)
    return start(dataset, reader, selection, out, device, dtype, stream, options, cf=cf)


def start(
    dataset: Any,
    reader: DatasetReader,
    selection: Any,
    out: Any,
    device: Device,
    dtype: Any,
    stream: Any,
    options: OptionKeys,
    *,
    cf: bool | Decoding = False,
    is_new: bool = False,
) -> Request[Any]:
    """Do what :func:`read_async` does for an ``h5py.Dataset``. The device may be a placement.

    ``is_new`` says that the caller must not see the old elements of ``out`` again.
    """
    how = _decoding(dataset, reader, dtype, cf) if cf else None
    if how is not None:
        reader = reader.decoded(dataset, how)
    target = Target(out, device, dtype, is_new)
    if dtype is None and stream is None:
        made, array = reader.start(dataset, selection, out, device, options, is_new=is_new)
        if made is not None:
            return made
        if array is not out:
            target = Target(array, is_new=True)
    call = SubmitOptions.of(stream, options)
    check_dataset(dataset)
    with lock():
        reading = _start(dataset, reader, selection, target, call, blocking=False)
    if reading.view is not None:
        arrays.note_write(reading.view)
    return reading.request


def _decoding(
    dataset: Any, reader: DatasetReader, dtype: Any, cf: bool | Decoding
) -> Decoding | None:
    """Return how the elements are decoded; ``None`` if they stay as they are."""
    how = cf if isinstance(cf, Decoding) else reader.decoding(dataset)
    if how is not None and dtype is not None:
        raise InvalidError(
            f"{dataset.name} is decoded to {how.dtype}, and another dtype is given",
            path=dataset.file.filename,
            remedy="give cf or dtype, not both",
        )
    return how


def start_into_reused(
    dataset: Any, selection: Any, out: Any, options: OptionKeys, cf: bool | Decoding = False
) -> Request[Any]:
    """Start to read into an array whose old elements the caller must not see again."""
    reader = DatasetReader.of(dataset)
    return start(dataset, reader, selection, out, None, None, None, options, cf=cf, is_new=True)


class _Reading(NamedTuple):
    """A read that was started."""

    request: Request[Any]
    view: arrays.View | None
    """The memory that the request fills; ``None`` if h5py has filled it."""
    copy_back: Callable[[], None] | None
    """Copies a temporary to the array; ``None`` if there is no temporary."""
    single: bool
    """Whether one element is selected, not an array of one."""


def _start(
    dataset: Any,
    reader: DatasetReader,
    argument: Any,
    target: Target,
    call: SubmitOptions,
    *,
    blocking: bool,
) -> _Reading:
    out, device, dtype, _ = target
    if out is not None and dtype is not None:
        raise InvalidError("give out or dtype, not both: the elements become those of out")
    given = None
    if out is not None:
        transfer.check_device(out, device)
        describe = arrays.new if target.is_new else arrays.strided_destination
        given = describe(out, call.stream)
    try:
        return _submit(dataset, reader, argument, target, given, call, blocking=blocking)
    except (OnlyH5pyError, Error) as error:
        reason = by_h5py.why_left(error, dataset)
    stream, how = call.stream, reader.how
    made = by_h5py.read(dataset, argument, out, device, dtype, stream, reason, how)
    return _Reading(made, None, None, False)


def _submit(
    dataset: Any,
    reader: DatasetReader,
    argument: Any,
    target: Target,
    given: arrays.View | None,
    call: SubmitOptions,
    *,
    blocking: bool,
) -> _Reading:
    """Start a read by the library, into memory that is given or into a new array.

    Raises:
        OnlyH5pyError: h5py has to read.
    """
    extent = dataset.shape
    if not extent:
        raise OnlyH5pyError(by_h5py.without_dimensions(dataset))
    indices, names = selections.split(argument)
    array, stream, conversions = target.out, call.stream, reader.conversions
    for_numpy = given is None and is_numpy(target.device)
    element, inner, kind, rules = conversions.to_read(
        names, None if given is None else given.dtype, target.dtype, for_numpy=for_numpy
    )
    if given is not None and reader.how is not None:
        reader.how.check_out(given.dtype, dataset)
    selection = selections.select(dataset, extent, indices)
    shape = selection.shape + inner
    view = given
    if view is None:
        if for_numpy:
            made = numpy_dtype(element)
            # A structure may have gaps, and fields that the dataset lacks, which no transfer fills.
            array = (np.zeros if made.kind == "V" else np.empty)(shape, made)
        else:
            array = allocate(shape, element, target.device, stream)
        view = arrays.view(array, stream)
    view, copy_back = _destination(view, array, stream, selection, len(inner), blocking)
    if copy_back is not None:
        by_h5py.refuse_more_fields(conversions.field(names).base, element)
    if view.shape != shape:
        raise InvalidError(f"out has shape {view.shape}, and the selection has shape {shape}")
    request_made = submit(
        request.READ,
        dataset,
        selection,
        TypedMemory(view, kind, view.outer_strides(len(inner)), rules),
        call,
        blocking=blocking,
        may_change=reader.is_writable(dataset),
        array=array,
        is_new=target.is_new or given is None,
    )
    return _Reading(request_made, view, copy_back, single=not selection.shape)


def _destination(
    view: arrays.View,
    array: Any,
    stream: int | None,
    selection: selections.Selection,
    inner: int,
    blocking: bool,
) -> tuple[arrays.View, Callable[[], None] | None]:
    """Return memory that the library can fill: that of the array, or a temporary.

    The second value is that of :func:`arrays.destination`.
    """
    has_gaps = view.dtype.numpy is not None and memory_types.has_gaps(view.dtype.numpy)
    if view.contiguous or (selection.is_grid and view.is_dense(inner) and not has_gaps):
        return view, None
    if blocking:
        return arrays.destination(array, stream, keeps=True)
    return arrays.contiguous_destination(array, stream), None
