"""Legate arrays in HDF5 files: every leaf task reads and writes its tile by itself.

The functions have the names and arguments of ``legate.io.hdf5``. Legate partitions and schedules;
each leaf has Penstock move its hyperslab from or to the memory that Legate gave it, on a CPU or a
GPU.

>>> from penstock.dist import legate as penstock_legate
>>> rho = penstock_legate.from_file("run.h5", "rho")
>>> penstock_legate.to_file(rho, "copy.h5", "rho")

A function returns when its leaves are done, and raises what one of them has raised. In a scope of
Legate whose mode of exceptions is ``DEFERRED``, reads return at once, and the end of the scope
raises.
"""

from __future__ import annotations

import functools
import itertools
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any

import numpy as np

import penstock
from penstock._options import OptionKeys, Unpack, resolve
from penstock.dist import transfers
from penstock.dist.description import Description, StoredArray
from penstock.dist.partition import partition
from penstock.dist.storage import Storage, put_in_place, temporary_path
from penstock.errors import Error, IncompatibleError, InvalidError, IOFailure
from penstock.files import WRITE, NativeFile, Path, encode, path_of_new
from penstock.hdf5 import reading

try:
    import legate.core
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "legate":
        raise
    raise ImportError(
        "penstock.dist.legate needs Legate, which is not installed: pip install penstock[legate]",
        name="legate",
    ) from error

from legate.core import (
    LEGATE_MAX_DIM,
    ExceptionMode,
    Scope,
    StoreTarget,
    TaskContext,
    Type,
    VariantCode,
    VariantOptions,
    binary_type,
    get_legate_runtime,
    uint64,
)
from legate.core.task import InputStore, OutputStore, task

_LONGEST_ERROR = 1200
"""Bytes of a pickled error. With its text and a short traceback it stays below the 4096 bytes of
Legate (``LEGATE_MAX_EXCEPTION_SIZE``), beyond which Legate ends the process."""
_CORES = os.sched_getaffinity(0)
"""The cores of the process.

Legate binds the thread of a leaf to one of them, and the threads that it starts inherit this.
"""


def from_file(
    path: Path, dataset_name: str, *, slab: Any = (), **options: Unpack[OptionKeys]
) -> Any:
    """Read a dataset into a Legate array, a tile a leaf task.

    Tiles are whole chunks of the file if the slab starts at a border of chunks, as the whole
    dataset does.

    Args:
        path: The file, which all processes find by this path.
        dataset_name: The path of the dataset in the file.
        slab: Slices, as of an index, for a part of the dataset; all of it by default.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        A ``LogicalArray`` of the shape of the slab, of shape ``(1,)`` for a scalar, as by Legate;
        a ``LogicalStore`` by versions of Legate that have no other arrays. The elements are in
        native byte order. Strings of a fixed length and opaque elements are of Legate's type
        ``binary_type(length)``, which NumPy sees as ``"S"``.

    Raises:
        FileNotFoundError: There is no such file.
        InvalidError: There is no such dataset, or it has no elements (a null dataspace), or the
            slab is outside.
        IncompatibleError: Legate holds no elements of this type (strings of variable length,
            structures, references), or no arrays with this number of dimensions.
        Error: A leaf could not read its tile.
    """
    source = _Source.find(path, dataset_name, dict(options))
    return _as_array(source.read(transfers.ranges_of(slab, source.shape)))


def from_file_batched(
    path: Path, dataset_name: str, chunk_size: Sequence[int], **options: Unpack[OptionKeys]
) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Iterate over a dataset in batches, the last dimension fastest.

    Args:
        path: The file, which all processes find by this path.
        dataset_name: The path of the dataset in the file.
        chunk_size: The shape of a batch. Those at the dataset's edge are smaller.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        An iterator over pairs: an array as from :func:`from_file`, and the indices of its first
        element in the dataset. The file must not change as long as the iterator is in use.

    Raises:
        InvalidError: A side of a batch is less than 1, or the numbers of dimensions differ. It is
            raised by this call, where Legate's own function waits for the first batch.
        Error: As for :func:`from_file`.
    """
    sides = tuple(chunk_size)
    if any(side <= 0 for side in sides):
        raise InvalidError(f"a batch of shape {sides} has no elements")
    source = _Source.find(path, dataset_name, dict(options))
    if len(sides) != len(source.shape):
        raise InvalidError(
            f"a batch of shape {sides} has {len(sides)} dimensions, and {source.path}:"
            f"{source.dataset} has {len(source.shape)}"
        )
    starts = (range(0, side, step) for side, step in zip(source.shape, sides, strict=True))
    return (
        (_as_array(source.read(_batch(source.shape, sides, at))), at)
        for at in itertools.product(*starts)
    )


def _batch(shape: Sequence[int], sides: Sequence[int], at: Sequence[int]) -> transfers.Ranges:
    together = zip(at, sides, shape, strict=True)
    return tuple(range(start, min(start + side, end)) for start, side, end in together)


@dataclass(frozen=True)
class _Source:
    """A dataset by its path, as leaves get it."""

    path: str
    dataset: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """The type of an element in the file."""
    chunks: tuple[int, ...] | None
    options: dict[str, Any]

    @classmethod
    def find(cls, path: Path, dataset: str, options: dict[str, Any]) -> _Source:
        name = os.path.abspath(os.fsdecode(encode(path)))
        resolve(options)  # a wrong one is an error here and not in a leaf
        with penstock.File(name) as file:
            found = file.get(dataset)
            if not isinstance(found, penstock.Dataset):
                raise InvalidError(f"{name} has no dataset {dataset!r}", path=name)
            shape, dtype, chunks = found.shape, found.dtype, found.chunks
        if shape is None:
            raise InvalidError(f"{name}:{dataset} has no elements (it has a null dataspace)")
        if len(shape) > LEGATE_MAX_DIM:
            raise IncompatibleError(
                f"{name}:{dataset} has {len(shape)} dimensions, and this Legate knows arrays of "
                f"{LEGATE_MAX_DIM} at most",
                remedy="use a Legate that was built with a larger LEGATE_MAX_DIM",
            )
        found = cls(name, dataset, shape, dtype, chunks, options)
        found.type()
        return found

    def type(self) -> Any:
        """Return Legate's type of an element."""
        import h5py

        dtype = np.dtype(self.dtype.str)  # without the names of an enumeration
        is_bytes = self.dtype.kind == "S" or (self.dtype.kind == "V" and not self.dtype.names)
        if is_bytes and self.dtype.subdtype is None:
            return binary_type(dtype.itemsize)
        try:
            return Type.from_numpy_dtype(dtype.newbyteorder("="))
        except (NotImplementedError, ValueError):
            pass
        remedy = "store the fields or elements as datasets of numbers"
        if h5py.check_string_dtype(self.dtype) is not None:
            remedy = "store strings with a fixed length, by h5py.string_dtype(length=...)"
        raise IncompatibleError(
            f"{self.path}:{self.dataset} has elements of type {self.dtype}, which a Legate array "
            "cannot hold",
            path=self.path,
            remedy=remedy,
        ) from None

    def read(self, ranges: transfers.Ranges) -> Any:
        """Have leaves read a slab into a new store."""
        runtime = get_legate_runtime()
        # As for Legate's own reader, a scalar is an array of one element.
        shape = transfers.lengths(ranges) or (1,)
        store = runtime.create_store(self.type(), shape)
        if 0 in shape:
            return store  # Legate launches no empty set of tasks
        aligned = self.chunks is not None and all(
            part.start % side == 0 for part, side in zip(ranges, self.chunks, strict=True)
        )
        leaves = runtime.get_machine().count() * Scope.parallel_policy().overdecompose_factor
        tiling = partition(shape, self.chunks if aligned else None, leaves).tile
        tiles = store.partition_by_tiling(tiling)
        work = runtime.create_manual_task(_read.library, _read.task_id, tiles.color_shape)
        work.add_output(tiles)
        first = tuple(part.start for part in ranges)
        _add_plan(work, (self, first))
        work.execute()
        return store


def _leaf(function: Callable[..., None]) -> Callable[..., None]:
    """Let the workers of a leaf run on all cores; raise errors that can reach the caller."""

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        core = os.sched_getaffinity(0)
        os.sched_setaffinity(0, _CORES)
        try:
            function(**arguments)
        except Exception as error:
            short = _short(error)
        else:
            return
        finally:
            os.sched_setaffinity(0, core)
        # The error leads to this frame, and Legate's stores must not outlive their task.
        arguments.clear()
        try:
            raise short
        finally:
            del short

    return run


def _short(error: Exception) -> Exception:
    """Return an error that can be pickled and is short: no traceback, its text cut if need be."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        words = pickle.dumps(error)
        pickle.loads(words)
        if len(words) <= _LONGEST_ERROR:
            return error
    except Exception:
        pass  # an error with arguments of its own
    text = str(error)
    if len(text) > 400:
        text = f"{text[:200]} ... {text[-200:]}"
    if isinstance(error, Error):
        return type(error)(text, errno=error.errno)
    return IOFailure(f"{type(error).__name__}: {text}")


@_leaf
def _read_tile(context: TaskContext, tile: OutputStore, plan: bytes) -> None:
    """Read the part of a dataset that a leaf has got memory for."""
    source, first = pickle.loads(plan)
    # Not used for a scalar, whose tile has a dimension that the dataset lacks.
    slab = tuple(
        slice(start + part.start, start + part.stop)
        for start, part in zip(first, _ranges(tile), strict=False)
    )
    try:
        with penstock.File(source.path) as file:
            out = _memory(tile, source.dtype, len(source.shape))
            how = None, None, context.task_stream, source.options  # neither device nor type
            reading.read_placed(file[source.dataset], None, slab, out, *how, is_new=True)
    except Error:
        raise
    except Exception as error:
        # HDF5 has read, and does not say which file.
        where = f"{source.path}:{source.dataset}"
        raise IOFailure(f"{where}: {error}", path=source.path) from error


def to_file(array: Any, path: Path, dataset_name: str) -> None:
    """Write a Legate array to a dataset of a new HDF5 file.

    It becomes an ordinary contiguous dataset, into which the leaf that has a tile writes it. The
    file has a temporary name until it is complete, and then replaces the one at the path.

    Unlike ``legate.io.hdf5.to_file``, it makes one file that can be moved and not a virtual dataset
    over a folder of files, it leaves the file of before if it fails, and it returns when the file
    is complete, so no fence is needed before the file is read.

    Args:
        array: A bound ``LogicalArray`` or ``LogicalStore``, or an object with Legate's data
            interface and one of these. Binary elements are written as strings of a fixed length.
        path: The file, on a file system that all processes share. Folders that are missing are
            made.
        dataset_name: The path of the dataset in the file. Groups that are missing are made.

    Raises:
        InvalidError: The array is unbound or has a null mask, or the path is a folder.
        IncompatibleError: HDF5 stores no elements of this type.
        Error: A leaf could not write its tile.
    """
    store = _store_of(array)
    name = os.path.abspath(path_of_new(path))
    shape = tuple(store.shape)
    runtime = get_legate_runtime()
    with Scope(exception_mode=ExceptionMode.IMMEDIATE):
        made = runtime.create_store(uint64, (1,))
        _once(_create, (name, dataset_name, shape, _dtype_of(store)), made)
        # One process draws the number, and all get it.
        token = int(np.asarray(made.get_physical_store())[0])
        temporary = temporary_path(FilePath(os.path.realpath(name)), token)
        try:
            if 0 not in shape:
                # Legate has no memory without dimensions.
                store = store if shape else store.promote(0, 1)
                _write(store, pickle.dumps((str(temporary), dataset_name)))
            runtime.issue_execution_fence(block=True)
            _once(_finish, (name, token))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@_leaf
def _create_file(token: OutputStore, plan: bytes) -> None:
    """Make the file with storage for all elements; return the number in its temporary name."""
    name, dataset, shape, dtype = pickle.loads(plan)
    path = FilePath(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    storage = Storage(path, {"libver": "v110"})
    try:
        storage.create(dataset, {"shape": shape, "dtype": dtype})
        storage.leave()
    except BaseException:
        storage.discard()
        raise
    np.asarray(token.get_inline_allocation())[0] = storage.token


@_leaf
def _write_tile(context: TaskContext, tile: InputStore, plan: bytes) -> None:
    """Write what a leaf has into its place in the file."""
    import h5py

    path, dataset = pickle.loads(plan)
    with h5py.File(path) as file:
        description = Description.of(file[dataset]).for_writing()
    ranges = _ranges(tile) if description.shape else ()
    memory = _memory(tile, description.dtype, len(description.shape))
    view = transfers.source(description, ranges, memory, context.task_stream)
    with NativeFile(path, WRITE) as file:
        transfers.write(StoredArray(description), file, ranges, view, resolve({}))


@_leaf
def _finish_file(plan: bytes) -> None:
    name, token = pickle.loads(plan)
    put_in_place(temporary_path(FilePath(os.path.realpath(name)), token), FilePath(name))


_ANYWHERE = (VariantCode.CPU, VariantCode.OMP, VariantCode.GPU)
_read = task(variants=_ANYWHERE, options=VariantOptions(may_throw_exception=True))(_read_tile)
_WRITES = {"may_throw_exception": True, "has_side_effect": True}
_write = task(variants=_ANYWHERE, options=VariantOptions(**_WRITES))(_write_tile)
# These have no part in the elements, and their one number is in host memory.
_create = task(options=VariantOptions(**_WRITES))(_create_file)
_finish = task(options=VariantOptions(**_WRITES))(_finish_file)


def _once(work: Any, plan: Any, output: Any = None) -> None:
    """Run a task once, in one of the processes."""
    launched = get_legate_runtime().create_manual_task(work.library, work.task_id, (1,))
    if output is not None:
        launched.add_output(output)
    _add_plan(launched, plan)
    launched.execute()


def _add_plan(work: Any, plan: Any) -> None:
    words = pickle.dumps(plan)
    work.add_scalar_arg(words, binary_type(len(words)))


def _ranges(tile: Any) -> transfers.Ranges:
    """Return the indices of a tile in the whole store."""
    together = zip(tile.domain.lo, tile.domain.hi, strict=True)
    return tuple(range(low, high + 1) for low, high in together)


def _memory(tile: Any, dtype: np.dtype[Any], dimensions: int) -> Any:
    """Return the memory of a tile as an array with elements of the file's type, where these are
    bytes.

    Legate has it until the task returns. ``dimensions`` are those of the dataset.
    """
    allocation = tile.get_inline_allocation()
    if allocation.target != StoreTarget.FBMEM:
        found = np.asarray(allocation)
        if dtype.kind in "SV":
            found = found.view(dtype)
        return found if dimensions else found.reshape(())
    interface = dict(allocation.__cuda_array_interface__)
    if dtype.kind in "SV":
        interface["typestr"] = dtype.str
    if not dimensions:
        interface |= {"shape": (), "strides": ()}
    return SimpleNamespace(__cuda_array_interface__=interface)


def _store_of(array: Any) -> Any:
    """Return the one store of an array."""
    if not hasattr(array, "__legate_data_interface__"):
        raise IncompatibleError(
            f"a {type(array).__name__} is not an array of Legate",
            remedy="pass a LogicalArray, a LogicalStore or an object with Legate's data interface",
        )
    fields = list(array.__legate_data_interface__["data"].values())
    if len(fields) != 1:
        raise InvalidError(f"the object has {len(fields)} arrays; one can be written at a time")
    (found,) = fields
    if getattr(found, "nullable", False) or getattr(found, "nested", False):
        raise InvalidError(
            "the array has a null mask or nested elements, for which HDF5 has no place",
            remedy="write its data and its mask as two arrays",
        )
    if found.unbound:
        raise InvalidError(
            "the array is unbound, so its shape is not known",
            remedy="pass it to the task that gives it its shape first",
        )
    return getattr(found, "data", found)


def _dtype_of(store: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = store.type.to_numpy_dtype()
    if dtype.kind not in "biufcS":
        raise IncompatibleError(
            f"an array of {store.type} cannot be written to HDF5",
            remedy="write arrays of numbers or of binary elements",
        )
    return dtype


def _as_array(store: Any) -> Any:
    """Return what this version of Legate calls an array."""
    kind = getattr(legate.core, "LogicalArray", None)
    return store if kind is None else kind.from_store(store)
