"""Objects of tensors, collections and numbers, restored from an archive without ``torch.load``.

It takes a fraction of the time. Names in the pickle can only stand for what a state dict needs:
nothing that has effects outside the object is called or changed.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from penstock._collector import paused_collector
from penstock.torch.checkpoint import archive
from penstock.torch.checkpoint.archive import Directory, Entry, Unsupported
from penstock.torch.checkpoint.storages import new_storage


class Restored:
    """An object whose storages are not filled yet.

    Args:
        directory: The archive.
        device_of: Returns the device for a location.

    Raises:
        Unsupported: Only ``torch.load`` can restore it, or say what is wrong with it.
    """

    def __init__(self, directory: Directory, device_of: Callable[[str], torch.device]) -> None:
        if torch._guards.detect_fake_mode(None) is not None or _len_modes():
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
        for typed, place in unpickler.storages.values():
            storage = typed._untyped_storage
            if storage.nbytes() != place.length:  # a tensor is longer, and torch has extended it
                raise Unsupported("a tensor is longer than its storage")
            if place.length:
                self.storages.append((storage, place))


def _len_modes() -> int:
    return int(torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack())


class _Unpickler(archive.TensorUnpickler):
    def __init__(self, directory: Directory, device_of: Callable[[str], torch.device]) -> None:
        super().__init__(io.BytesIO(directory.content("data.pkl")), encoding="utf-8")
        self.storages: dict[str, tuple[Any, Entry]] = {}
        self._directory, self._device_of = directory, device_of

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch._utils" and name == "_rebuild_tensor_v2":
            return partial(self._tensor)
        if module == "torch._utils" and name == "_rebuild_tensor_v3":
            return partial(self._tensor_of_type)
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch", "Size"):
            return torch.Size
        return super().find_class(module, name)

    def persistent_load(self, saved: Any) -> Any:
        stored = archive.storage_of(saved)
        dtype = stored.kind.dtype or torch.uint8
        known = self.storages.get(stored.key)
        if known is None:
            place = self._directory.entry(f"data/{stored.key}")
            device = self._device_of(stored.location)
            if place.length != stored.length * dtype.itemsize or device.type not in ("cpu", "cuda"):
                raise Unsupported(f"storage {stored.key} is not filled by its bytes")
            typed = torch.storage.TypedStorage(
                wrap_storage=new_storage(place.length, device), dtype=dtype, _internal=True
            )
            known = self.storages[stored.key] = typed, place
        if known[0].dtype != dtype or known[1].length != stored.length * dtype.itemsize:
            raise Unsupported(f"storage {stored.key} has two types")
        return known[0]

    def _tensor(
        self,
        typed: Any,
        first: int,
        shape: Sequence[int],
        strides: Sequence[int],
        requires_grad: bool,
        hooks: Any,
        *more: Any,
    ) -> torch.Tensor:
        return self._tensor_of_type(
            typed, first, shape, strides, requires_grad, hooks, typed.dtype, *more
        )

    def _tensor_of_type(
        self,
        typed: Any,
        first: int,
        shape: Sequence[int],
        strides: Sequence[int],
        requires_grad: bool,
        hooks: Any,
        dtype: torch.dtype,
        metadata: Any = None,
    ) -> torch.Tensor:
        if metadata:
            raise Unsupported("the tensor has metadata, such as a bit for its conjugate")
        storage = typed._untyped_storage
        tensor = torch.empty(0, dtype=dtype, device=storage.device)
        tensor.set_(storage, first, shape, strides)
        tensor.requires_grad = requires_grad
        tensor._backward_hooks = hooks
        return tensor
