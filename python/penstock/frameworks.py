"""All uses of torch, CuPy and JAX, which are optional.

Only :func:`installed`, :func:`torch_module`, :func:`with_gpu` and :func:`jax_array` import them;
the other functions use what the program has imported. A stream is an integer here: the CUstream
handle, 0 for the legacy default stream.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

from penstock._native import ffi, lib, pointer
from penstock.errors import IncompatibleError, InvalidError, UnavailableError, check
from penstock.streams import wait_for

LEGACY_DEFAULT_STREAM = 0


def loaded(name: str) -> ModuleType | None:
    """Return the framework's module if the program has imported it."""
    return sys.modules.get(name)


@lru_cache(maxsize=2)
def installed(name: str) -> ModuleType | None:
    """Import the framework; return its module, or ``None`` if it is absent or broken."""
    try:
        return __import__(name)
    except (ImportError, OSError, RuntimeError):
        return None


def torch_module() -> Any:
    """Import torch.

    Raises:
        UnavailableError: It is absent or broken.
    """
    torch = installed("torch")
    if torch is None:
        raise UnavailableError("torch is not installed", remedy="pip install 'penstock[torch]'")
    return torch


@lru_cache(maxsize=4)
def with_gpu(name: str) -> ModuleType | None:
    """Import the framework; return its module if it can use a GPU, else ``None``."""
    try:
        module = __import__(name)
        return module if module.cuda.is_available() else None
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None  # absent or broken, such as a wheel for another driver


def jax_array(lender: Any, dtype: Any) -> Any:
    """Return an array of JAX in the memory that an object lends, and keeps, by DLPack.

    Raises:
        UnavailableError: JAX is absent, or does not use the device of the memory.
        IncompatibleError: JAX, or DLPack, does not have the type ``dtype`` of NumPy.
    """
    if installed("jax") is None:
        raise UnavailableError("jax is not installed", remedy="pip install jax")
    from jax.dlpack import from_dlpack  # type: ignore[import-not-found, unused-ignore]

    try:
        made = from_dlpack(lender)
    except BufferError as error:
        raise IncompatibleError(f"JAX cannot have elements of {dtype}: {error}") from None
    except RuntimeError as error:
        raise UnavailableError(f"jax cannot use the memory: {error}") from None
    if made.dtype != dtype:  # it is a copy
        raise IncompatibleError(
            f"JAX has no data type {dtype} here, and would convert to {made.dtype}",
            remedy='jax.config.update("jax_enable_x64", True), or load it with another dtype',
        )
    return made


def is_torch(array: object) -> bool:
    torch = loaded("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_cupy(array: object) -> bool:
    cupy = loaded("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def torch_stream(ordinal: int) -> int:
    """Return torch's current stream of a device."""
    torch = loaded("torch")
    assert torch is not None
    # The private function takes a tenth of the time.
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return int(raw(ordinal) if raw else torch.cuda.current_stream(ordinal).cuda_stream)


def note_write(tensor: Any) -> None:
    """Record in torch's autograd that a tensor has changed: autograd may have saved it."""
    torch = loaded("torch")
    assert torch is not None
    increment = getattr(torch.autograd.graph, "increment_version", None)
    if increment is not None and not tensor.is_inference():
        increment(tensor)


def records_gradients(array: object) -> bool:
    """Whether torch would record changes of the array; it cannot record a read from a file."""
    torch = loaded("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return False
    return bool(array.requires_grad and torch.is_grad_enabled())


def address(tensor: Any) -> int:
    """Return the address of a strided tensor, all of whose elements are in its storage.

    Raises:
        InvalidError: The tensor has no memory; its storage is too short, as after ``resize_``; or
            forward-mode differentiation has given it a tangent, which no file has.
        IncompatibleError: The tensor is one of a transformation of ``torch.func``.
    """
    torch = loaded("torch")
    assert torch is not None
    if is_fake(tensor):  # its address would raise a warning
        raise _without_memory(tensor)
    try:
        start, storage = int(tensor.data_ptr()), int(tensor.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError) as error:
        raise IncompatibleError(
            f"{_named(tensor)} has no memory: {str(error).partition(chr(10))[0]}",
            remedy="pass a tensor from outside of torch.func and torch.compile",
        ) from None
    forward = getattr(torch.autograd, "forward_ad", None)
    if getattr(forward, "_current_level", -1) >= 0 and _has_tangent(forward, tensor):
        raise InvalidError(
            f"{_named(tensor)} has a tangent of forward-mode differentiation, which no file has",
            remedy="pass its primal, by torch.autograd.forward_ad.unpack_dual",
        )
    last = tensor.numel() - 1
    if last < 0:
        return start
    itemsize = int(tensor.element_size())
    offset = int(tensor.storage_offset()) * itemsize
    if start == offset or not storage:  # the storage's own address is null
        raise _without_memory(tensor)
    if not tensor.is_contiguous():
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    end = offset + (last + 1) * itemsize
    if end > storage:
        raise InvalidError(
            f"{_named(tensor)} ends at byte {end} of its storage, which has {storage} bytes",
            remedy="resize the storage to the tensor's length again",
        )
    return start


def _named(tensor: Any) -> str:
    return f"{type(tensor).__name__} of shape {tuple(tensor.shape)} and type {tensor.dtype}"


def is_fake(tensor: Any) -> bool:
    """Whether a tensor is one of ``FakeTensorMode``, which has a shape and no elements."""
    fake = loaded("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def makes_fakes() -> bool:
    """Whether ``FakeTensorMode`` is on: torch makes tensors that have no memory."""
    torch = loaded("torch")
    return (
        torch is not None
        and torch._C._len_torch_dispatch_stack() > 0
        and torch._guards.detect_fake_mode(None) is not None
    )


def _without_memory(tensor: Any) -> InvalidError:
    return InvalidError(
        f"{_named(tensor)} has no memory: its address is a null pointer",
        remedy="pass a tensor with memory: it may have been freed, and fake tensors have none",
    )


def _has_tangent(forward: Any, tensor: Any) -> bool:
    return forward.unpack_dual(tensor).tangent is not None


def detached(array: Any) -> Any:
    """Return a tensor of the same memory that records no gradients; any other array as it is."""
    return array.detach() if records_gradients(array) else array


def torch_pending(ordinal: int) -> int | None:
    """Return torch's current stream of a device if it still has work queued, else ``None``."""
    stream = torch_stream(ordinal)
    # torch's own query would end CUDA graph captures in progress on other threads.
    is_idle = ffi.new("int *")
    check(lib.penstock_stream_query(ordinal, pointer(stream), is_idle))
    return None if is_idle[0] else stream


@contextmanager
def on_stream(name: str, stream: int | None, ordinal: int) -> Iterator[None]:
    """Make a device and ``stream`` the framework's current ones within a block.

    ``None`` keeps the framework's current stream. For host memory (a negative ``ordinal``), this
    waits for the work queued on ``stream`` instead.
    """
    module = loaded(name) if name in ("torch", "cupy") else None
    if ordinal < 0:
        wait_for(stream, ordinal)
        yield
    elif module is None:
        yield
    elif name == "torch":
        with (
            module.cuda.device(ordinal),
            module.cuda.stream(_torch_stream(module, stream, ordinal)),
        ):
            yield
    else:
        with module.cuda.Device(ordinal), _cupy_stream(module, stream, ordinal):
            yield


def _torch_stream(torch: Any, stream: int | None, ordinal: int) -> Any:
    """Return torch's object for a handle; ``None`` for ``None``."""
    if stream is None:
        return None
    if stream == LEGACY_DEFAULT_STREAM:  # an external stream 0 would be any stream of torch's pool
        return torch.cuda.default_stream(ordinal)
    return torch.cuda.ExternalStream(stream, device=ordinal)


def _cupy_stream(cupy: Any, stream: int | None, ordinal: int) -> AbstractContextManager[Any]:
    """Return CuPy's context manager for a handle; for ``None``, one that changes nothing."""
    if stream is None:
        return nullcontext()
    if stream == LEGACY_DEFAULT_STREAM:
        null: AbstractContextManager[Any] = cupy.cuda.Stream.null
        return null
    external: AbstractContextManager[Any] = (
        cupy.cuda.Stream.from_external(_Handle(stream))
        if hasattr(cupy.cuda.Stream, "from_external")
        else cupy.cuda.ExternalStream(stream, ordinal)
    )
    return external


class _Handle:
    """A stream's handle in the form of the CUDA stream protocol."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream
