"""DeepSpeed's operator ``gds``: transfers of GPU memory by cuFile, if it starts."""

from __future__ import annotations

import os
from typing import Any

from penstock import arrays
from penstock._native import lib, pointer
from penstock.deepnvme.handle import Handle
from penstock.deepnvme.operation import Target
from penstock.deepnvme.pinned import length_of
from penstock.errors import IncompatibleError, UnavailableError, check
from penstock.machine import describe
from penstock.placement import allocate


class gds_handle(Handle):  # noqa: N801 - DeepSpeed's name
    """Transfers between files and arrays; those on a GPU go through cuFile.

    If cuFile does not start or refuses the file system, the engine chooses another route, and the
    reports (:attr:`reports`, ``penstock.last_report()``) say why. Arrays need not be pinned.
    Pinning pays for arrays that are used often, because cuFile then needs no bounce buffers.

    >>> handle = gds_handle()
    >>> tensor = handle.new_pinned_device_tensor(1 << 20, torch.empty(0, device="cuda"))
    >>> handle.sync_pread(tensor, "w.bin")
    1
    """

    def get_alignment(self) -> int:
        """Return the length in bytes whose multiples DeepSpeed's own operations require."""
        return 512

    def new_pinned_device_tensor(self, num_elem: int, example_tensor: Any) -> Any:
        """Return a pinned array in GPU memory, with the data type of an example.

        It is on the example's GPU, or on the current one if the example is in host memory. It is a
        torch tensor if torch can use the GPU, else a CuPy array, else a
        :class:`penstock.DeviceArray`.
        """
        example = arrays.view(example_tensor)
        count = length_of(num_elem, example.dtype)
        device = "cuda" if example.device < 0 else example.device
        made = allocate((count,), example.dtype, device)
        self.pin_device_tensor(made)
        return made

    def free_pinned_device_tensor(self, tensor: Any) -> bool:
        """Unpin an array of :meth:`new_pinned_device_tensor`, and return ``True``.

        Its memory is freed with the last array that uses it.
        """
        return self.unpin_device_tensor(tensor)

    def pin_device_tensor(self, tensor: Any) -> bool:
        """Register an array in GPU memory with cuFile, if it starts, and return ``True``.

        The array must be C-contiguous. The handle keeps it alive until it is unpinned.
        """
        found = _device_memory(tensor)
        if not found.nbytes:
            return True
        with self._lock:
            if found.pointer not in self._pins:
                # Stored before the memory is registered, so that no interrupt can lose it.
                self._pins[found.pointer] = pin = _Pin(found)
                try:
                    pin.register()
                except BaseException:
                    del self._pins[found.pointer]
                    raise
        return True

    def unpin_device_tensor(self, tensor: Any) -> bool:
        """Undo :meth:`pin_device_tensor`, and return ``True``.

        This waits for background operations. :meth:`wait` still returns or raises their results.
        """
        found = _device_memory(tensor)
        with self._lock:
            for operation in self._pending:
                operation.settle()
            self._pins.pop(found.pointer, None)
        return True

    def _route(self, view: arrays.View, target: Target) -> tuple[str | None, str]:
        if view.device < 0:
            return None, ""
        refusal = _refusal(os.stat(target).st_dev, target)
        if refusal is None:
            return "gds", ""
        return "auto", f"the gds route is not available: {refusal}"


class _Pin:
    """The registration of an array with cuFile. It ends with this object."""

    def __init__(self, view: arrays.View) -> None:
        self._view = view
        self._is_registered = False
        self._deregister = lib.penstock_buffer_deregister  # refuses in a forked child

    def register(self) -> None:
        """Register the memory. Without cuFile, do nothing."""
        try:
            check(lib.penstock_buffer_register(pointer(self._view.pointer), self._view.nbytes))
            self._is_registered = True
        except UnavailableError:
            pass

    def __del__(self) -> None:
        if self._is_registered:
            self._deregister(pointer(self._view.pointer))


def _device_memory(tensor: Any) -> arrays.View:
    found = arrays.view(tensor)
    if found.device < 0:
        raise IncompatibleError(
            f"a {type(tensor).__name__} in host memory cannot be pinned for cuFile",
            remedy="use new_cpu_locked_tensor for host memory",
        )
    if not found.contiguous:
        raise IncompatibleError(
            f"a {type(tensor).__name__} of shape {found.shape} cannot be pinned, because it is "
            "not C-contiguous",
            remedy="pin the array that it is a part of",
        )
    return found


_asked: dict[int, str | None] = {}
"""cuFile's results for file systems, by device number."""


def _refusal(device: int, target: Target) -> str | None:
    """Return why cuFile does not serve the file system of a file; ``None`` if it does."""
    if device not in _asked:
        path = f"/proc/self/fd/{target}" if isinstance(target, int) else target
        cufile = describe(path)["cufile"]
        _asked[device] = cufile["reason"] if cufile["mode"] is None else None
    return _asked[device]
