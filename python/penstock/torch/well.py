"""The Well's data sets (polymathic-ai's package ``the_well``), read by Penstock.

The classes derive from those of ``the_well``, which does all but the reads: it finds the files,
normalizes, pads, transforms and arranges samples. Tested with ``the_well`` 1.2.0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from penstock.data.files import OpenFiles, Source, opened_file, version_of
from penstock.data.order import Indices
from penstock.data.samples import FileSamples
from penstock.data.started import Started
from penstock.dtypes import element_type
from penstock.errors import InvalidError
from penstock.placement import torch_dtype
from penstock.torch.data.dataset import checked_device, checked_indices, host_in_worker
from penstock.torch.data.framework import torch, torch_data
from penstock.torch.data.started import Part, start

_datasets: Any = import_module("the_well.data.datasets")
_utils: Any = import_module("the_well.data.utils")

__all__ = ["DeltaWellDataset", "WellDataset"]

_VARYING = ("t0_fields", "t1_fields", "t2_fields", "scalars")
"""The groups of datasets that a sample consists of."""


class _Described(NamedTuple):
    """What stays in memory of a file."""

    source: Source
    names: tuple[str, ...]
    """The paths of all its datasets."""
    attributes: dict[str, dict[str, Any]]
    """The attributes of each group and dataset, by path."""
    dtypes: dict[str, np.dtype[Any]]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.source.shapes[self.names.index(name)]


class _Place(NamedTuple):
    """Where a sample is."""

    file: int
    sample: int
    time: int
    stride: int


class _Read(NamedTuple):
    """A sample that is read: what ``the_well`` gets in place of its number."""

    place: _Place
    loaded: dict[str, Any]
    """Tensors by the path of their dataset."""


class _Node:
    """A group or dataset of a file, as ``the_well`` uses h5py's."""

    def __init__(
        self,
        described: _Described,
        datasets: Mapping[str, Any],
        loaded: Any,
        device: Any,
        path: str,
    ) -> None:
        self._described = described
        self._datasets = datasets
        self._loaded = loaded
        self._device = device
        self._path = path

    @property
    def attrs(self) -> dict[str, Any]:
        return self._described.attributes[self._path]

    def keys(self) -> list[str]:
        inside = f"{self._path}/"
        paths = (path for path in self._described.attributes if path.startswith(inside))
        return [name for path in paths if "/" not in (name := path.removeprefix(inside))]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            path = f"{self._path}/{key}".lstrip("/")
            return _Node(self._described, self._datasets, self._loaded, self._device, path)
        if self._path in self._loaded:
            return self._loaded[self._path]
        found = self._datasets[self._path][key]
        if self._path.startswith(_VARYING):
            return torch.as_tensor(np.asarray(found)).to(self._device)
        return found


_Base: Any = object


class _Reads(FileSamples, _Base):  # type: ignore[misc]
    """The reads of a data set of the Well, before a class of ``the_well`` in the order of bases."""

    def __init__(self, *arguments: Any, device: Any = "cpu", **keys: Any) -> None:
        self.device = checked_device(device)
        self.norm: Any = None
        super().__init__(*arguments, **keys)
        if not isinstance(self.fs, import_module("fsspec").get_filesystem_class("file")):
            raise InvalidError(
                f"{self.data_path} is not in a local file system",
                remedy="copy the data set to a local file system, or use the_well's own class",
            )
        self._host_norm: Any = self.norm
        self._described: dict[int, _Described] = {}
        self._files = OpenFiles()
        self._bound: tuple[int, Any] | None = None

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read a batch of samples together."""
        found: list[dict[str, Any]] = self._start(indices, list).wait()
        return found

    def start(self, indices: Sequence[int] | Indices) -> Started:
        """Start to read a batch of samples, and return at once; see :class:`HDF5Dataset`."""
        return self._start(indices, torch_data.default_collate)

    def blocks(self, length: int | None = None) -> Indices:
        """Return the first sample of each block: by default, those of a trajectory are one."""
        if length is not None or self.restriction_set is not None:
            return np.arange(0, len(self), length or 64)
        windows = np.repeat(self.n_windows_per_trajectory, self.n_trajectories_per_file)
        starts: Indices = np.cumsum(windows) - windows
        return starts

    def _start(self, indices: Sequence[int] | Indices, collate: Callable[[Any], Any]) -> Started:
        device = self._bind()
        places = map(self._place, checked_indices(indices, len(self)).tolist())
        reads = [_Read(place, {}) for place in places]
        item = super().__getitem__
        started = Started(lambda: collate([item(read) for read in reads]))

        def read_group(files: Sequence[int]) -> None:
            parts: list[Part] = []
            for read in reads:
                if files[0] <= read.place.file <= files[-1]:
                    parts += self._parts(read, device, started)
            start(started, parts)

        return self._read(started, sorted({read.place.file for read in reads}), read_group)

    def _place(self, index: int) -> _Place:
        """Return where a sample is, and the stride of its steps, which may be drawn at random."""
        if self.restriction_set is not None:
            index = int(self.restriction_set[index])
        file = int(np.searchsorted(self.file_index_offsets, index, side="right")) - 1
        sample, time = divmod(
            index - max(int(self.file_index_offsets[file]), 0), self.n_windows_per_trajectory[file]
        )
        stride = self.min_dt_stride
        if self.max_dt_stride > stride:
            most = _utils.maximum_stride_for_initial_index(
                time, self.n_steps_per_trajectory[file], self.n_steps_input, self.n_steps_output
            )
            most = min(most, self.max_dt_stride)
            if most > stride:
                stride = int(np.random.randint(stride, most + 1))
        if self.full_trajectory_mode and self.start_output_steps_at_t >= 0:
            time = self.start_output_steps_at_t - self.n_steps_input * stride
        return _Place(file, sample, time, stride)

    @property
    def _steps(self) -> int:
        return int(self.n_steps_input + min(self.n_steps_output, self.max_rollout_steps))

    def _parts(self, read: _Read, device: Any, user: Started) -> list[Part]:
        """Return the reads of the datasets that vary, whose tensors the sample then has.

        ``user`` is what the reads are added to.
        """
        place = read.place
        described = self._describe(place.file)
        datasets = self._datasets(described, user)
        time = slice(place.time, place.time + self._steps * place.stride, place.stride)
        parts = []
        for group in _VARYING:
            for field in described.attributes[group]["field_names"]:
                name = f"{group}/{field}"
                attributes = described.attributes[name]
                lengths = list(described.shape(name))
                selection: list[slice] = []
                if attributes["sample_varying"]:
                    selection.append(slice(place.sample, place.sample + 1))
                if attributes["time_varying"]:
                    selection.append(time)
                if not selection:
                    continue
                for axis, part in enumerate(selection):
                    lengths[axis] = len(range(*part.indices(lengths[axis])))
                kind = torch_dtype(torch, element_type(described.dtypes[name].newbyteorder("=")))
                out = torch.empty(lengths, dtype=kind, device=device)
                read.loaded[name] = out[0] if attributes["sample_varying"] else out
                if out.numel():
                    parts.append(Part(datasets[name], tuple(selection), out))
        return parts

    def _load_one_sample(self, read: _Read) -> Any:
        """Do what ``the_well`` does after it has opened a file, with what is loaded."""
        place = read.place
        described = self._describe(place.file)
        file = _Node(described, self._datasets(described), read.loaded, self._bind(), "")
        what = file, self.caches[place.file], place.sample, place.time, self._steps, place.stride
        data: dict[str, Any] = {}
        data["variable_fields"], data["constant_fields"] = self._reconstruct_fields(*what)
        data["variable_scalars"], data["constant_scalars"] = self._reconstruct_scalars(*what)
        if self.boundary_return_type is not None:
            data["boundary_conditions"] = self._reconstruct_bcs(*what)
        if self.return_grid:
            data["space_grid"], data["time_grid"] = self._reconstruct_grids(*what)
        device = self._bind()
        for name in ("boundary_conditions", "space_grid", "time_grid"):
            if name in data:
                data[name] = data[name].to(device)
        return data, place.file, place.sample, place.time, place.stride

    def _check_cache(self, cache: dict[str, Any], name: str, data: Any) -> None:
        super()._check_cache(cache, name, data.to(self._bind()))

    def _bind(self) -> Any:
        """Return the device, where the cached tensors and those of the normalization are.

        A worker process has host tensors, and must not use those that its parent has on a GPU.
        """
        device = host_in_worker(self.device)
        if self._bound != (os.getpid(), device):
            self._bound = os.getpid(), device
            self.caches: list[dict[str, Any]] = [{} for _ in self.files_paths]
            self.norm = _moved(self._host_norm, device)
        return device

    def _describe(self, number: int) -> _Described:
        if number not in self._described:
            self._described[number] = _described(self.files_paths[number])
        return self._described[number]

    def _datasets(self, described: _Described, user: Started | None = None) -> dict[str, Any]:
        found = self._files.datasets(described.source, described.names, user)
        return dict(zip(described.names, found, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"norm": self._host_norm, "_described": {}, "_bound": None}
        return state | {"caches": [{} for _ in self.files_paths]}


def _described(path: str) -> _Described:
    import h5py

    from penstock.hdf5.objects import Attributes

    attributes: dict[str, dict[str, Any]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, np.dtype[Any]] = {}
    path = os.path.abspath(path)
    version = version_of(path)
    with opened_file(path) as file:

        def visit(name: str, found: Any) -> None:
            attributes[name] = dict(Attributes(found))
            if isinstance(found, h5py.Dataset):
                shapes[name], dtypes[name] = found.shape, found.dtype

        file.h5py.visititems(visit)
    source = Source(path, "", tuple(shapes.values()), (), version)
    return _Described(source, tuple(shapes), attributes, dtypes)


def _moved(norm: Any, device: Any) -> Any:
    """Return a normalization whose tensors are on a device."""
    if isinstance(norm, torch.Tensor):
        return norm.to(device)
    if isinstance(norm, dict):
        return {name: _moved(part, device) for name, part in norm.items()}
    if not hasattr(norm, "__dict__"):
        return norm
    made = copy(norm)
    made.__dict__.update(_moved(vars(norm), device))
    return made


class WellDataset(_Reads, _datasets.WellDataset):  # type: ignore[misc]
    """A data set of the Well, with the arguments and samples of the class of ``the_well``.

    Args:
        *arguments: Those of ``the_well.data.WellDataset``. The files are in a local file system.
        device: Where samples go, as for :class:`HDF5Dataset`.
        **keys: As for ``arguments``.

    >>> dataset = WellDataset(well_base_path="data", well_dataset_name="active_matter",
    ...                       well_split_name="train", n_steps_input=4, device="cuda")
    >>> for batch in penstock.torch.Batches(dataset, 8):
    ...     step(batch["input_fields"], batch["output_fields"])
    """


class DeltaWellDataset(_Reads, _datasets.DeltaWellDataset):  # type: ignore[misc]
    """The same for ``the_well.data.datasets.DeltaWellDataset``."""
