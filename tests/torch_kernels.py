"""Operations of torch whose kernels the stand-in GPU does not run, computed by the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

CPU = torch.device("cpu")
UNAVAILABLE = ("no kernel image is available", "CUBLAS_STATUS_NOT_INITIALIZED")


@contextmanager
def kernels_on_cpu() -> Iterator[None]:
    """On the stand-in GPU, has the CPU compute torch's kernels. A real GPU runs them."""
    if not torch.cuda.is_available() or "stand-in" not in torch.cuda.get_device_name():
        yield
        return
    with KernelsOnCpu(), patch.object(torch.cuda, "_sleep", _sleep):
        yield


def _sleep(cycles: int) -> None:
    """Keep the current stream busy, as `torch.cuda._sleep` does, for a time of 2 GHz."""
    launch = ctypes.CDLL("libcudart.so.13").cudaLaunchHostFunc
    launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
    assert launch(torch.cuda.current_stream().cuda_stream, usleep, cycles // 2000) == 0


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
        if storage.data_ptr() not in copies:
            # Not by `cpu`, which tests replace to find its calls.
            copies[storage.data_ptr()] = storage, torch.UntypedStorage(len(storage)).copy_(storage)
        _, copy = copies[storage.data_ptr()]
        host = torch.empty(0, dtype=value.dtype)
        host.set_(copy, value.storage_offset(), value.shape, value.stride())
        host = host.conj() if value.is_conj() else host
        host = torch._neg_view(host) if value.is_neg() else host
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
