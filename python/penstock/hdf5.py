"""Reading and writing HDF5 datasets.

A contiguous dataset of a native type goes raw: HDF5 says where it lies, and the bytes travel as
those of any file. All else goes through h5py in host memory, and for the GPU through one more
copy; the report then has the route "h5py" and says why.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import arrays, hdf5_raw, report, request, staging, transfer
from penstock._options import OptionKeys, resolve
from penstock.dtypes import element_type, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError
from penstock.placement import HOST, Device, allocate, parse_device
from penstock.report import Report
from penstock.selection import parse, runs
from penstock.streams import stream_handle

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
        selection: What would stand in ``dataset[...]``, for example ``np.s_[0:10, :, 3]``; all
            of the dataset by default.
        out: An array of the selection's shape to fill. Elements are converted to its type.
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
    if out is not None and dtype is not None:
        raise InvalidError("give out or dtype, not both: the elements become those of out")
    after = stream_handle(stream)
    native_options = resolve(options)
    if out is not None:
        transfer.check_device(out, device)
    on_host = out is None and parse_device(device) == HOST

    raw = hdf5_raw.locate(dataset)
    if isinstance(raw, str):
        reason = raw
    elif dtype is not None and element_type(dtype) != raw.dtype:
        reason = f"the elements are converted to {element_type(dtype).name}"
    elif (slab := parse(selection, raw.shape)) is None:
        reason = "the selection is not a regular hyperslab"
    elif (pieces := runs(slab, raw.shape)) is None:
        reason = "the selection falls into too many pieces"
    else:
        target = out
        if target is None:
            target = allocate(slab.shape, raw.dtype, device, after)
        view, finish = arrays.destination(target, after)
        if view.shape != slab.shape:
            raise _wrong_shape(view.shape, slab.shape)
        if view.dtype == raw.dtype:
            if raw.writable:
                hdf5_raw.flush(dataset)
            hdf5_raw.move(raw, request.READ, pieces, view, native_options)
            transfer.complete(view, finish)
            scalar = on_host and not slab.shape and selection is not Ellipsis
            return target[()] if scalar else target
        reason = f"the elements are converted to {view.dtype.name}"
    return _read_by_h5py(dataset, selection, out, device, dtype, after, reason)


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
        array: Any array on the CPU or a GPU, or what h5py takes. Elements are converted to the
            dataset's type.
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
    native_options = resolve(options)
    source = _source(array, stream_handle(stream))
    raw = hdf5_raw.locate(dataset)
    if isinstance(raw, str):
        reason = raw
    elif source is None or source.dtype != raw.dtype:
        reason = f"the elements are converted to {raw.dtype.name}"
    elif not raw.writable:
        reason = "the file is not open for writing"
    elif not raw.forgets:
        reason = "the dataset fits into HDF5's sieve buffer"
    elif (slab := parse(selection, raw.shape)) is None or slab.shape != source.shape:
        reason = "the selection is not a regular hyperslab of the array's shape"
    elif (pieces := runs(slab, raw.shape)) is None:
        reason = "the selection falls into too many pieces"
    else:
        hdf5_raw.flush(dataset)
        try:
            hdf5_raw.move(raw, request.WRITE, pieces, source, native_options)
        finally:
            hdf5_raw.forget_sieve(dataset)
        return
    start = perf_counter_ns()
    value = array if source is None else staging.to_host(source)
    dataset[selection] = value
    device = HOST if source is None else source.device
    _remember(np.asarray(value).nbytes, device, start, reason)


def _source(array: Any, stream: int | None) -> arrays.View | None:
    """The memory of an array, ``None`` for other values that h5py can make something of."""
    if isinstance(array, (str, bytes, list, tuple, int, float, complex, np.generic)) or (
        isinstance(array, np.ndarray) and array.dtype.hasobject
    ):
        return None
    return arrays.source(array, stream)


def _read_by_h5py(
    dataset: Any,
    selection: Any,
    out: Any,
    device: Device,
    dtype: Any,
    stream: int | None,
    reason: str,
) -> Any:
    start = perf_counter_ns()
    if out is None and parse_device(device) == HOST:
        value = _value(dataset, selection, dtype)
        _remember(getattr(value, "nbytes", 0), HOST, start, reason)
        return value
    view, finish = None, None
    if out is not None:
        view, finish = arrays.destination(out, stream)
        dtype = view.dtype.numpy
    host = np.asarray(_value(dataset, selection, dtype))
    if host.dtype.kind not in "biufcV" or host.dtype.hasobject:
        raise IncompatibleError(
            f"elements of type {dataset.dtype} cannot be put into such an array",
            path=dataset.file.filename,
            remedy='read them with device="cpu"',
        )
    if view is None:
        host = host.astype(host.dtype.newbyteorder("="), copy=False)
        out = allocate(host.shape, element_type(host.dtype), device, stream)
        view, finish = arrays.destination(out, stream)
    if view.shape != host.shape:
        raise _wrong_shape(view.shape, host.shape)
    staging.from_host(view, host)
    transfer.complete(view, finish)
    _remember(view.nbytes, view.device, start, reason)
    return out


def _value(dataset: Any, selection: Any, dtype: Any) -> Any:
    """The selected elements in host memory, converted by HDF5 where it has such a type."""
    element = None if dtype is None else element_type(dtype)
    if element is None or element.numpy == dataset.dtype:
        return dataset[selection]
    wanted = numpy_dtype(element)
    if wanted.kind in "biufc" and dataset.dtype.kind in "biufc":
        return dataset.astype(wanted)[selection]
    return np.asarray(dataset[selection]).astype(wanted)[()]


def _remember(nbytes: int, device: int, start: int, reason: str) -> None:
    report.remember(
        Report(
            route="h5py",
            device=device,
            bytes=nbytes,
            h5py=nbytes,
            elapsed_ns=perf_counter_ns() - start,
            copies=0 if device == HOST else 1,
            threads=1,
            note=f"through HDF5 in host memory: {reason}",
        )
    )


def _check_dataset(dataset: Any) -> None:
    import h5py

    if not isinstance(dataset, h5py.Dataset):
        raise IncompatibleError(f"a {type(dataset).__name__} is not an h5py.Dataset")
    if not dataset.id.valid:
        raise InvalidError("the dataset is closed")


def _wrong_shape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> InvalidError:
    return InvalidError(f"out has shape {shape}, and the selection has shape {wanted}")
