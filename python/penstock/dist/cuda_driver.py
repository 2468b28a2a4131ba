"""The CUDA driver's functions for copies within GPU memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import GpuError, UnavailableError


class Driver:
    """The CUDA driver, with the primary context of a GPU."""

    def __init__(self, ordinal: int) -> None:
        name = os.environ.get("PENSTOCK_CUDA_LIBRARY") or "libcuda.so.1"
        try:
            self._cuda = ctypes.CDLL(name)
        except OSError as error:
            raise UnavailableError(f"{name} cannot be opened: {error}") from None
        self._ordinal = ordinal
        self._context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            UnavailableError: The driver has no such function.
            GpuError: It has failed.
        """
        function = getattr(self._cuda, name, None)
        if function is None:
            raise UnavailableError(f"the CUDA driver has no {name}")
        if code := function(*arguments):
            raise GpuError(f"{name}: {self._name_of(code)}", gpu_code=code)

    def _name_of(self, code: int) -> str:
        found = ctypes.c_char_p()
        failed = self._cuda.cuGetErrorName(code, ctypes.byref(found))
        return f"error {code}" if failed or found.value is None else found.value.decode()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current on this thread within a block."""
        self.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def close(self) -> None:
        """Give the context back."""
        self.call("cuDevicePrimaryCtxRelease_v2", self._ordinal)
