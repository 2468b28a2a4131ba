"""All that Penstock asks of torch and CuPy, which it never needs and never imports for a look.

A stream is an integer here: the CUstream handle, 0 for the legacy default stream.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

from penstock._native import ffi, lib, pointer
from penstock.errors import check

LEGACY_DEFAULT_STREAM = 0


def loaded(name: str) -> ModuleType | None:
    """The framework's module if the program has imported it."""
    return sys.modules.get(name)


@lru_cache(maxsize=2)
def with_gpu(name: str) -> ModuleType | None:
    """The framework's module, imported if need be, where it can use a GPU; else ``None``."""
    try:
        module = __import__(name)
        return module if module.cuda.is_available() else None
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None  # absent, or broken: a wheel for another driver, for example


def is_torch(array: object) -> bool:
    torch = loaded("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_cupy(array: object) -> bool:
    cupy = loaded("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def torch_pending(ordinal: int) -> int | None:
    """torch's current stream of a device if it still has work queued, else ``None``."""
    torch = loaded("torch")
    assert torch is not None
    stream = int(torch.cuda.current_stream(ordinal).cuda_stream)
    # torch's own query ends captures into CUDA graphs that other threads have under way.
    is_idle = ffi.new("int *")
    check(lib.penstock_stream_query(ordinal, pointer(stream), is_idle))
    return None if is_idle[0] else stream


def on_stream(name: str, stream: int | None, ordinal: int) -> AbstractContextManager[Any]:
    """Make ``stream`` the framework's current stream within a block; ``None`` changes nothing."""
    if stream is None or ordinal < 0:
        return nullcontext()
    if name == "torch":
        torch = loaded("torch")
        assert torch is not None
        context: AbstractContextManager[Any] = torch.cuda.stream(
            torch.cuda.ExternalStream(stream, device=f"cuda:{ordinal}")
        )
        return context
    if name == "cupy":
        cupy = loaded("cupy")
        assert cupy is not None
        external: AbstractContextManager[Any] = (
            cupy.cuda.Stream.from_external(_Handle(stream))
            if hasattr(cupy.cuda.Stream, "from_external")
            else cupy.cuda.ExternalStream(stream, ordinal)
        )
        return external
    return nullcontext()


class _Handle:
    """A stream's handle in the form of the CUDA stream protocol."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream
