"""Tensors that share memory: which of them a file can have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from penstock import frameworks


def storage_ptr(tensor: Any) -> int:
    """Return the address of a tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


def storage_size(tensor: Any) -> int:
    """Return the bytes of a tensor's storage."""
    return int(tensor.untyped_storage().nbytes())


def end_ptr(tensor: Any) -> int:
    """Return the address behind a tensor's last element; for one without elements, its address."""
    start = int(tensor.data_ptr())
    if not tensor.numel():
        return start
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start + (int(last) + 1) * int(tensor.element_size())


def is_complete(tensor: Any) -> bool:
    """Whether a tensor has all of its storage."""
    nbytes = tensor.numel() * tensor.element_size()
    return bool(tensor.data_ptr() == storage_ptr(tensor) and nbytes == storage_size(tensor))


def find_shared_tensors(tensors: Mapping[str, Any]) -> list[set[str]]:
    """Group the names of tensors whose bytes overlap; those alone are groups of one."""
    torch = frameworks.loaded("torch")
    assert torch is not None
    meta = torch.device("meta")
    by_storage: dict[Any, list[tuple[int, int, str]]] = defaultdict(list)
    for name, tensor in tensors.items():
        if tensor.device == meta or not storage_ptr(tensor) or not storage_size(tensor):
            continue
        key = (tensor.device, storage_ptr(tensor), storage_size(tensor))
        by_storage[key].append((tensor.data_ptr(), end_ptr(tensor), name))
    groups: list[set[str]] = []
    for members in by_storage.values():
        behind = None
        for start, end, name in sorted(members):
            if behind is None or start >= behind:
                groups.append(set())
            groups[-1].add(name)
            behind = end if behind is None else max(behind, end)
    return groups


def remove_duplicate_names(
    tensors: Mapping[str, Any],
    *,
    preferred_names: Iterable[str] = (),
    discard_names: Iterable[str] = (),
) -> dict[str, list[str]]:
    """Return, for each name to keep, the other names of its memory, which a file does not have.

    Of the tensors that have all of the shared memory, the first in alphabetical order is kept:
    among the preferred names if there are such, else among those that are not to be discarded.

    Raises:
        RuntimeError: No tensor has all of the shared memory.
    """
    preferred, discarded = set(preferred_names or ()), set(discard_names or ())
    removed: dict[str, list[str]] = {}
    for group in find_shared_tensors(tensors):
        complete = {name for name in group if is_complete(tensors[name])}
        if not complete:
            raise RuntimeError(
                f"the tensors {sorted(group)} share memory, and none of them covers the entire "
                "storage: a file would have fewer bytes than the model, or more. Save clones of "
                "them, or see https://huggingface.co/docs/safetensors/torch_shared_tensors"
            )
        kept = min(complete & preferred or complete - discarded or complete)
        if len(group) > 1:
            removed[kept] = sorted(group - {kept})
    return removed
