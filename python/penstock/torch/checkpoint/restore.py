"""Objects of tensors, collections and numbers, restored from an archive without ``torch.load``.

It takes a fraction of the time. Names in the pickle can only stand for what a state dict needs:
nothing that has effects outside the object is called or changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from penstock._collector import paused_collector
from penstock.torch.checkpoint import archive
from penstock.torch.checkpoint.archive import Directory, Entry, Unsupported
from penstock.torch.checkpoint.storages import new_storage
from penstock.torch.checkpoint.unpickling import checked


class Restored:
    """An object whose storages are not filled yet.

    Args:
        directory: The archive.
        device_of: Returns the device for a location.

    Raises:
        Unsupported: Only ``torch.load`` can restore it, or say what is wrong with it.
    """

    def __init__(self, directory: Directory, device_of: Callable[[str], torch.device]) -> None:
        if _len_modes():
            raise Unsupported("a mode of torch changes what is made")
        unpickler = _Unpickler(directory, device_of)
        try:
            with paused_collector():
                self.object: Any = unpickler.load()
        except (Unsupported, torch.cuda.OutOfMemoryError):
            raise
        except Exception as error:
            raise Unsupported(f"it is not plain: {error}") from error
        self.storages: list[tuple[Any, Entry]] = []
        """Storages with bytes, and the places of their bytes."""
        if unpickler.unused:
            raise Unsupported("a storage is not that of a tensor")
        for storage, _, place in unpickler.storages.values():
            if storage.nbytes() != place.length:  # a tensor is longer, and torch has extended it
                raise Unsupported("a tensor is longer than its storage")
            if place.length:
                self.storages.append((storage, place))


def _len_modes() -> int:
    return int(torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack())


class _Unpickler(archive.TensorUnpickler):
    """Makes tensors of new storages.

    The pickle gets a plain ``object`` for each use of a storage, which no instruction can change.
    The storages themselves, whose memory the file is about to fill, stay out of its reach.
    """

    def __init__(self, directory: Directory, device_of: Callable[[str], torch.device]) -> None:
        super().__init__(checked(directory.content("data.pkl")), encoding="utf-8")
        self.storages: dict[str, tuple[Any, torch.dtype, Entry]] = {}
        """By key: storage, data type, and the place of the bytes."""
        self.unused: dict[object, str] = {}
        """The keys of the storages that the pickle has named, but not made a tensor of yet."""
        self._directory, self._device_of = directory, device_of

    def find_class(self, module: str, name: str) -> Any:
        # Attributes of these classes cannot be set.
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch", "Size"):
            return torch.Size
        return super().find_class(module, name)

    def persistent_load(self, saved: Any) -> Any:
        stored = super().persistent_load(saved)
        dtype = stored.kind.dtype or torch.uint8
        nbytes = stored.length * dtype.itemsize
        if stored.key not in self.storages:
            place = self._directory.entry(f"data/{stored.key}")
            device = self._device_of(stored.location)
            if place.length != nbytes or device.type not in ("cpu", "cuda"):
                raise Unsupported(f"storage {stored.key} is not filled by its bytes")
            self.storages[stored.key] = new_storage(nbytes, device), dtype, place
        _, known, place = self.storages[stored.key]
        if known != dtype or place.length != nbytes:
            raise Unsupported(f"storage {stored.key} has two types")
        use = object()
        self.unused[use] = stored.key
        return use

    def rebuilt(
        self,
        storage: object,
        first: int,
        shape: Sequence[int],
        strides: Sequence[int],
        requires_grad: bool,
        hooks: Any,
        dtype: torch.dtype | None,
        metadata: Any = None,
    ) -> torch.Tensor:
        filled, of_storage, _ = self.storages[self.unused.pop(storage)]
        dtype = of_storage if dtype is None else dtype
        archive.check_simple(dtype, metadata)
        tensor = torch.empty(0, dtype=dtype, device=filled.device)
        tensor.set_(filled, first, shape, strides)
        tensor.requires_grad = requires_grad
        tensor._backward_hooks = hooks
        return tensor
