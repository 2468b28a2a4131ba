"""Batches as torch's ``DataLoader`` takes them: as sequences of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from penstock.torch.data.framework import torch, torch_data

_collate_module = torch_data._utils.collate


class Sample(dict[str, Any]):
    """A sample: a dictionary of tensors. A batch of them is collated as one of dictionaries is."""


class Samples(Sequence[Any]):
    """The samples of a batch, which are views of it.

    torch's ``default_collate`` returns the batch itself, without a copy.
    """

    def __init__(self, batch: Any, count: int) -> None:
        self.batch = batch
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"sample {index} of a batch of {self._count}")
        return sample_of(self.batch, index)


def sample_of(batch: Any, index: int) -> Any:
    """Return one sample of a batch: the parts of its tensors, in the batch's own structure."""
    if isinstance(batch, torch.Tensor):
        return batch[index]
    if isinstance(batch, Mapping):
        return Sample({name: sample_of(part, index) for name, part in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(sample_of(part, index) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(sample_of(part, index) for part in batch)
    return batch


def tensors_of(batch: Any) -> list[Any]:
    """Return all tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        return [tensor for part in batch.values() for tensor in tensors_of(part)]
    if isinstance(batch, (tuple, list)):
        return [tensor for part in batch for tensor in tensors_of(part)]
    return []


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(batch, Samples):
        return batch.batch
    names = batch[0].keys()
    return {
        name: _collate_module.collate([one[name] for one in batch], collate_fn_map=collate_fn_map)
        for name in names
    }


_collate_module.default_collate_fn_map[Sample] = _collate
