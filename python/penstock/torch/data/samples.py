"""Batches as torch's ``DataLoader`` takes them: as sequences of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from types import ModuleType
from typing import Any, overload

import numpy as np

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


_MOST_SEARCHED = 10_000
"""The largest number of objects of a batch that are searched for tensors."""

_WITHOUT_TENSORS = (
    *(type(None), bool, int, float, complex, str, bytes),
    *(np.generic, torch.dtype, torch.device, torch.Size, Enum, PurePath),
)

_HEAP_TYPE, _CANNOT_BE_MADE = 1 << 9, 1 << 7
"""Flags of a type: ``Py_TPFLAGS_HEAPTYPE`` and ``Py_TPFLAGS_DISALLOW_INSTANTIATION``."""


def tensors_of(batch: Any) -> tuple[list[Any], bool]:
    """Return the tensors of a batch, and whether these are all.

    The search covers tensors, mappings, tuples, lists, sets and the attributes of objects, however
    nested. There may be more tensors in objects of other types, such as functions, iterators and
    those of extension modules, and in a batch of very many objects.
    """
    tensors: list[Any] = []
    seen: dict[int, Any] = {}
    left, is_complete = [batch], True
    while left:
        part = left.pop()
        if isinstance(part, _WITHOUT_TENSORS) or id(part) in seen:
            continue
        if len(seen) == _MOST_SEARCHED:
            return tensors, False
        seen[id(part)] = part
        if isinstance(part, (type, ModuleType)):
            is_complete = False
            continue
        left += getattr(part, "__dict__", {}).values()
        left += _slots(part)
        if isinstance(part, torch.Tensor):
            if part.layout == torch.strided and _has_own_memory(type(part)):
                tensors.append(part)
            else:
                is_complete = False
        elif isinstance(part, Mapping):
            left += part.values()
            is_complete &= isinstance(part, dict) or _is_plain(part)
        elif isinstance(part, (tuple, list, set, frozenset)):
            left += part
        elif isinstance(part, np.ndarray):
            is_complete &= not part.dtype.hasobject
        else:
            is_complete &= _is_plain(part)
    return tensors, is_complete


def _has_own_memory(kind: Any) -> bool:
    """Return whether tensors of a type do not wrap other tensors."""
    return bool(kind.__torch_dispatch__ == torch.Tensor.__torch_dispatch__)


def _is_plain(part: Any) -> bool:
    """Return whether an object is that of a class in Python, with nothing but its attributes."""
    kind: Any = type(part)
    is_class = kind.__flags__ & (_HEAP_TYPE | _CANNOT_BE_MADE) == _HEAP_TYPE
    return bool(is_class and kind.__new__ is object.__new__)


def _slots(part: Any) -> list[Any]:
    names = (name for kind in type(part).__mro__ for name in _listed(kind))
    return [getattr(part, name) for name in names if hasattr(part, name)]


def _listed(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else slots
    private = f"_{kind.__name__.lstrip('_')}"
    return [
        f"{private}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    ]


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(batch, Samples):
        return batch.batch
    names = batch[0].keys()
    return {
        name: _collate_module.collate([one[name] for one in batch], collate_fn_map=collate_fn_map)
        for name in names
    }


_collate_module.default_collate_fn_map[Sample] = _collate
