"""Operations of torch whose kernels the stand-in GPU does not run, computed by the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

CPU = torch.device("cpu")
UNAVAILABLE = ("no kernel image is available", "CUBLAS_STATUS_NOT_INITIALIZED")


class KernelsOnCpu(TorchDispatchMode):
    """Computes on copies in host memory what fails for want of a kernel.

    The results are copied back on the current stream, without a wait: they are pending when the
    operation returns, as on a GPU. Its operands are not: the operation waits for them.
    """

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if not any(text in str(error) for text in UNAVAILABLE):
                raise
        return _on_cpu(function, args, kwargs)


def _on_cpu(function: Any, args: Any, kwargs: Any) -> Any:
    copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
    tensors: list[tuple[torch.Tensor, torch.Tensor]] = []

    def to_host(value: Any) -> Any:
        if isinstance(value, torch.device):
            return CPU
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return value
        storage = value.untyped_storage()
        _, copy = copies.setdefault(storage.data_ptr(), (storage, storage.cpu()))
        host = torch.empty(0, dtype=value.dtype)
        host.set_(copy, value.storage_offset(), value.shape, value.stride())
        tensors.append((value, host))
        return host

    def to_gpu(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or is_for_host:
            return value
        for original, host in tensors:
            if value is host:
                return original
        return value.contiguous().pin_memory().to("cuda", non_blocking=True)

    targets = [kwargs.get("device"), *(args[:1] if function._schema.is_mutable else ())]
    is_for_host = any(getattr(target, "device", target) == CPU for target in targets)
    result = function(*tree_map(to_host, args), **tree_map(to_host, kwargs))
    if function._schema.is_mutable:
        for storage, copy in copies.values():
            storage.copy_(copy.pin_memory(), non_blocking=True)
    return tree_map(to_gpu, result)
