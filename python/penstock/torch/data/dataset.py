"""Data sets of HDF5 files."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._options import OptionKeys, Unpack, resolve
from penstock.data import files
from penstock.data.order import Indices
from penstock.data.samples import FileSamples, counted
from penstock.data.started import Started
from penstock.errors import InvalidError, UnavailableError
from penstock.hdf5.dataset import Dataset
from penstock.torch.data.framework import torch, torch_data
from penstock.torch.data.samples import Sample, Samples, sample_of
from penstock.torch.data.started import Part, read, start
from penstock.torch.data.windows import Geometry, Windows

if TYPE_CHECKING:
    from penstock.hdf5.cf import Decoding

HOST = torch.device("cpu")


class HDF5Dataset(FileSamples, torch_data.Dataset):  # type: ignore[misc]
    """The samples of datasets of HDF5 files, as a map-style data set of torch.

    A sample is a dictionary of tensors: index ``i`` of the first dimension of each dataset, or a
    window. Files follow one another, and may have different numbers of samples.

    A batch (:meth:`__getitems__`, :class:`Batches`) is read as a whole, straight into tensors on
    ``device``. In a worker process of torch's ``DataLoader`` they are in host memory, which its
    ``pin_memory=True`` makes page-locked. Objects can be pickled: the files are opened again.

    Args:
        paths: A file or several: each a path, or ``"file.h5:group"`` for the datasets of a group.
        names: Names of datasets: one, several, or a dictionary of keys of the batch and names.
        device: Where batches go: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a ``torch.device``.
        transform: Called with each batch, a dictionary of tensors whose first dimension is that of
            the samples, on ``device``. Its result replaces the batch. For ``dataset[i]`` it is
            called with a batch of one. For :class:`Batches` on a GPU, see there.
        dtype: The data type to which elements are converted as they are read: one for all
            datasets, or a dictionary by key. By default, the type in the file.
        steps: Makes each sample a window of this number of indices along ``axis``. Windows do not
            cross files.
        stride: The distance from the start of a window to that of the next.
        spacing: The distance between the indices of a window.
        axis: The axis of the windows in the datasets. If it is not 0, axis 0 counts the rows of
            windows, and a dataset without this axis is read by row.
        cf: Whether packed and missing values are decoded by the attributes of each dataset, as for
            :func:`penstock.read`. Elements then have the type that xarray chooses.
        **options: Those of the reads, such as ``decode`` or ``threads``: see
            :class:`penstock.OptionKeys`.

    Raises:
        KeyError: A file lacks a dataset; the error lists those that it has.
        InvalidError: Datasets of one file differ in length, the arguments make no samples, or
            ``cf`` and ``dtype`` are given for one dataset.
        IncompatibleError: Shapes or types differ between files, or torch lacks a type.
        UnavailableError: The device is not there.
        OSError: A file cannot be opened.

    >>> images = HDF5Dataset(["a.h5", "b.h5"], ["image", "label"], device="cuda")
    >>> images[7]["image"].shape
    """

    def __init__(
        self,
        paths: Any,
        names: str | Iterable[str] | Mapping[str, str],
        *,
        device: Any,
        transform: Callable[[Any], Any] | None = None,
        dtype: Any = None,
        steps: int | None = None,
        stride: int = 1,
        spacing: int = 1,
        axis: int = 0,
        cf: bool | Decoding = False,
        **options: Unpack[OptionKeys],
    ) -> None:
        self.device = checked_device(device)
        self.transform = transform
        resolve(options)
        self._options = options
        self._read_row = partial(Dataset.read, cf=cf, **options) if cf or options else getitem
        self._cf = cf
        self._windows = Windows.of(steps, stride, spacing, axis)
        by_key = files.named(names)
        if isinstance(dtype, Mapping) and (unknown := set(dtype) - set(by_key)):
            raise InvalidError(
                f"dtype has the key {min(unknown)!r}, which is not among names",
                remedy=f"use keys of {', '.join(by_key)}",
            )
        self._sources = files.described(paths, by_key, dtype, torch, cf)
        self._names = tuple(by_key.values())
        self._geometries = [
            Geometry(self._windows, source.shapes, str(source)) for source in self._sources
        ]
        self._add_files([geometry.count for geometry in self._geometries])
        first = self._sources[0]
        self._fields = first.fields
        self._shapes = self._sample_shapes(0)
        fields = (field for source in self._sources for field in source.fields)
        is_plain = self._windows is None and transform is None
        self._are_rows = is_plain and all(field.is_as_read for field in fields)
        for number, source in enumerate(self._sources):
            files.check_same(source, self._sample_shapes(number), first, self._shapes)

    def _sample_shapes(self, number: int) -> list[tuple[int, ...]]:
        """Return the shapes of a sample of a file."""
        geometry = self._geometries[number]
        return [geometry.shape(field.rest) for field in self._sources[number].fields]

    def __len__(self) -> int:
        return self._stops[-1]

    def __getitem__(self, index: int) -> Any:
        """Read a sample.

        Raises:
            IndexError: There is no such sample.
            Error: The read failed.
        """
        count = self._stops[-1]
        if not -count <= index < count:
            raise out_of_range(index, count)
        sample = operator.index(index) % count
        number = bisect_right(self._stops, sample)
        if self._are_rows and host_in_worker(self.device) == HOST:
            row = sample - self._stops[number] + self._geometries[number].count
            found = Sample()
            datasets = self._files.datasets(self._sources[number], self._names)
            for field, dataset in zip(self._fields, datasets, strict=True):
                found[field.name] = torch.from_numpy(np.asarray(self._read_row(dataset, row)))
            return found
        tensors = self._tensors(1)
        for part in self._parts(number, np.array([sample]), tensors, 0):
            read(part, self._options, self._cf)
        return sample_of(self._transformed(tensors), 0)

    def __getitems__(self, indices: Sequence[int]) -> Samples:
        """Read a batch of samples together.

        Returns:
            A sequence of samples. ``default_collate`` of torch turns it into the batch.

        Raises:
            IndexError: There is no such sample.
            Error: The read failed.
        """
        return Samples(self._start(indices, waits=True).wait(), len(indices))

    def start(self, indices: Sequence[int] | Indices) -> Started:
        """Start to read a batch of samples, in this order, and return at once.

        ``wait()`` of the result returns the batch: what ``transform`` made, or a dictionary of
        tensors of the shapes ``(len(indices), ...)``. On a GPU, the memory is that of torch's
        current stream.

        Raises:
            IndexError: There is no such sample.
        """
        return self._start(indices, waits=False)

    def _start(self, indices: Sequence[int] | Indices, *, waits: bool) -> Started:
        """Do what :meth:`start` does. If the caller waits at once, one read needs no request."""
        samples = checked_indices(indices, len(self))
        sources = self._files_of(samples)
        order = None
        if (np.diff(sources) < 0).any():
            order = np.argsort(sources, kind="stable")
            samples, sources = samples[order], sources[order]
        count = len(samples)
        tensors = self._tensors(count)
        firsts = np.flatnonzero(np.diff(sources, prepend=-1)).tolist()
        ranges = list(pairwise([*firsts, count]))

        given: list[Any] = []

        def finish() -> Any:
            batch = tensors if order is None else _reordered(tensors, order)
            if self.transform is not None:
                given.extend(batch.values())
            return self._transformed(batch)

        started = Started(finish)
        started.given = given

        def read_group(group: Sequence[tuple[int, int]]) -> None:
            parts: list[Part] = []
            for begin, end in group:
                number = int(sources[begin])
                parts += self._parts(number, samples[begin:end], tensors, begin, started)
            if waits and len(parts) == 1 == len(ranges):
                read(parts[0], self._options, self._cf)
            else:
                start(started, parts, self._options, self._cf)

        return self._read(started, ranges, read_group)

    def _tensors(self, count: int) -> dict[str, Any]:
        """Return a tensor for each field of some samples."""
        device = host_in_worker(self.device)
        return {
            field.name: torch.empty((count, *shape), dtype=field.dtype, device=device)
            for field, shape in zip(self._fields, self._shapes, strict=True)
        }

    def _transformed(self, tensors: dict[str, Any]) -> Any:
        return tensors if self.transform is None else self.transform(tensors)

    def _parts(
        self,
        number: int,
        samples: Indices,
        tensors: Mapping[str, Any],
        begin: int,
        user: Started | None = None,
    ) -> list[Part]:
        """Return the reads of samples of one file into the tensors from row ``begin`` on.

        ``user`` is what the reads are added to.
        """
        source, geometry = self._sources[number], self._geometries[number]
        local = samples - (self._ends[number] - geometry.count)
        datasets = self._files.datasets(source, self._names, user)
        return [
            Part(dataset, selection, out)
            for dataset, shape, tensor in zip(
                datasets, source.shapes, tensors.values(), strict=True
            )
            for selection, out in geometry.selections(
                len(shape), local, tensor[begin : begin + len(samples)]
            )
            if out.numel()
        ]

    def _block(self) -> int:
        """Return the samples in a chunk of the dataset with the most bytes for each sample.

        64 if that is not chunked.
        """
        largest = max(self._fields, key=lambda one: math.prod(one.rest) * one.stored.itemsize)
        rows = largest.chunk or 64
        if self._windows is None:
            return rows
        if self._windows.axis == 0:
            return math.ceil(rows / self._windows.stride)
        in_row = self._geometries[0].count // max(self._sources[0].shapes[0][0], 1)
        return max(rows * in_row, 1)

    def __repr__(self) -> str:
        fields = ", ".join(field.name for field in self._fields)
        return f"<HDF5Dataset of {len(self)} samples in {len(self._sources)} files: {fields}>"


def checked_device(device: Any) -> Any:
    """Return a ``torch.device`` that is there.

    Raises:
        InvalidError: It is neither that of the host nor a GPU.
        UnavailableError: There is no such GPU, or torch cannot use it.
    """
    try:
        found = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise InvalidError(
            f"{device!r} is not a device", remedy='use "cpu", "cuda" or "cuda:1"'
        ) from error
    if found.type not in ("cpu", "cuda"):
        raise InvalidError(f"device {found} is not supported", remedy='use "cpu" or "cuda"')
    if found.type == "cuda" and torch_data.get_worker_info() is None:
        if not torch.cuda.is_available():
            raise UnavailableError(
                f"device {found} is not there: torch finds no GPU", remedy='use device="cpu"'
            )
        count = torch.cuda.device_count()
        if found.index is None:
            found = torch.device("cuda", torch.cuda.current_device())
        if found.index >= count:
            raise UnavailableError(
                f"device {found} is not there: torch finds {count}",
                remedy=f"use a device up to cuda:{count - 1}",
            )
    return found


def host_in_worker(device: Any) -> Any:
    """Return the device of a batch: the host in a worker process of a ``DataLoader``."""
    return device if torch_data.get_worker_info() is None else HOST


def checked_indices(indices: Sequence[int] | Indices, count: int) -> Indices:
    """Return the numbers of samples, where negative ones count from the end.

    Raises:
        IndexError: There is no such sample.
    """
    found = np.asarray(indices, dtype=np.int64 if len(indices) == 0 else None)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InvalidError(f"{indices!r} are not numbers of samples", remedy="give integers")
    return counted(found, count, out_of_range)


def out_of_range(index: int, count: int) -> IndexError:
    """Return the error of a sampler that draws a sample that is not there."""
    return IndexError(
        f"sample {index} is out of range: the data set has {count} samples; give the sampler the "
        "data set, or its length"
    )


def _reordered(tensors: Mapping[str, Any], order: Indices) -> dict[str, Any]:
    """Return tensors whose row ``i`` is to become row ``order[i]``."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    index = torch.from_numpy(place).to(next(iter(tensors.values())).device, non_blocking=True)
    return {name: tensor.index_select(0, index) for name, tensor in tensors.items()}
