"""A reader for the datapipes of NVIDIA PhysicsNeMo. Tested with version 2.2.2."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from penstock.data.files import check_samples, numbers, opened_dataset, opened_file
from penstock.data.started import Started
from penstock.errors import InvalidError
from penstock.hdf5.file import File
from penstock.hdf5.reading import read_placed
from penstock.torch.data.framework import torch
from penstock.torch.data.started import Part, start

_readers: Any = import_module("physicsnemo.datapipes.readers.hdf5")
_registry: Any = import_module("physicsnemo.datapipes.registry")

__all__ = ["HDF5Reader"]

_REMEDY = "leave it out of fields"


@_registry.register("PenstockHDF5Reader")
class HDF5Reader(_readers.HDF5Reader):  # type: ignore[misc]
    """PhysicsNeMo's ``HDF5Reader`` with the reads of Penstock.

    The arguments, samples and metadata are the same. Two things are more: a field of one number for
    each sample is a tensor without dimensions, and with ``pin_memory=True`` the elements are
    read straight into page-locked memory. As the datapipes require, tensors are in host memory;
    ``physicsnemo.datapipes.Dataset(reader, device="cuda")`` copies them.

    >>> reader = HDF5Reader("run.h5", fields=["pressure", "velocity"], pin_memory=True)
    >>> dataset = physicsnemo.datapipes.Dataset(reader, device="cuda")
    """

    def __init__(self, path: Any, **keys: Any) -> None:
        super().__init__(path, **keys)
        self._datasets: dict[str, Any] = {}
        if not self._is_directory:
            file = File(self._h5_file)
            self._datasets = {field: opened_dataset(file, "", field) for field in self.fields}

    def _load_sample(self, index: int) -> dict[str, Any]:
        if not self._is_directory:
            return self._load_row(index)
        path = str(self._files[index])
        with opened_file(path) as file:
            datasets = {field: opened_dataset(file, "", field) for field in self.fields}
            # Zeros, as a read may leave elements that were never written.
            tensors = {
                field: self._new(path, one, one.shape, torch.zeros)
                for field, one in datasets.items()
            }
            for field, out in tensors.items():
                # Without a reader, which only several reads of an open file are worth.
                read_placed(datasets[field], None, (), out.numpy(), None, None, None, {})
        return tensors

    def _load_row(self, index: int) -> dict[str, Any]:
        path = str(self.path)
        if self._h5_file is None:
            raise InvalidError(f"the reader of {path} is closed", path=path)
        tensors = {}
        for field, dataset in self._datasets.items():
            check_samples(path, dataset, _REMEDY)
            if index >= len(dataset):
                raise IndexError(
                    f"dataset {dataset.name} of {path} has {len(dataset)} samples, and sample "
                    f"{index} is wanted; give the shortest one as index_key"
                )
            tensors[field] = self._new(path, dataset, (1, *dataset.shape[1:]), torch.empty)
        row = slice(index, index + 1)
        parts = [Part(self._datasets[field], row, out) for field, out in tensors.items()]
        start(Started(list), parts).wait()
        return {field: out[0] for field, out in tensors.items()}

    def _new(self, path: str, dataset: Any, shape: Any, make: Callable[..., Any]) -> Any:
        _, inner, kind = numbers(path, dataset, torch, _REMEDY)
        return make((*shape, *inner), dtype=kind, device="cpu", pin_memory=self.pin_memory)

    def close(self) -> None:
        """Close the file."""
        self._datasets = {}
        super().close()
