"""Reading and writing HDF5 datasets.

h5py says what a selection means, the native library moves the bytes and converts the elements.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import arrays, transfer
from penstock._options import OptionKeys
from penstock.errors import IncompatibleError, InvalidError
from penstock.hdf5 import by_h5py
from penstock.hdf5 import reading as hdf5_reading
from penstock.hdf5 import writing as hdf5_writing
from penstock.hdf5.library import lock, writable
from penstock.hdf5.submit import Manner
from penstock.placement import HOST, Device, parse_device
from penstock.request import Request

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
    how = Manner.of(stream, options)
    scalar = out is None and parse_device(device) == HOST
    if scalar and dtype is None and 0 < dataset.nbytes <= by_h5py.SMALL:
        made = by_h5py.read(dataset, selection, None, None, None, None, by_h5py.TOO_SMALL)
        return transfer.finish(made)
    with _held(dataset):
        reading = hdf5_reading.start(dataset, selection, out, device, dtype, how, waits=True)
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
    how = Manner.of(stream, options)
    with lock():
        reading = hdf5_reading.start(dataset, selection, out, device, dtype, how, waits=False)
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
    how = Manner.of(stream, options)
    with _held(dataset):
        transfer.finish(hdf5_writing.start(dataset, array, selection, how, waits=True))


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
    how = Manner.of(stream, options)
    with lock():
        return hdf5_writing.start(dataset, array, selection, how, waits=False)


def _held(dataset: Any) -> AbstractContextManager[Any]:
    """Nothing else may happen to a file that is open for writing while a call is under way."""
    return lock() if writable(dataset) else nullcontext()


def _check_dataset(dataset: Any) -> None:
    import h5py

    if not isinstance(dataset, h5py.Dataset):
        raise IncompatibleError(f"a {type(dataset).__name__} is not an h5py.Dataset")
    if not dataset.id.valid:
        raise InvalidError("the dataset is closed")
