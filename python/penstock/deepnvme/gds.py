"""DeepSpeed's operator ``gds``: transfers of GPU memory by cuFile, where it starts."""

from __future__ import annotations

import os
from typing import Any

from penstock import arrays
from penstock._native import lib, pointer
from penstock.deepnvme.handle import (
    DEFAULT_BLOCK_SIZE,
    DEFAULT_PARALLELISM,
    DEFAULT_QUEUE_DEPTH,
    Handle,
)
from penstock.deepnvme.operation import Target
from penstock.deepnvme.pinned import length_of
from penstock.errors import IncompatibleError, UnavailableError, check
from penstock.machine import describe
from penstock.placement import allocate


class gds_handle(Handle):  # noqa: N801 - DeepSpeed's name
    """Transfers between files and arrays, those on a GPU by cuFile.

    Where cuFile does not start, or refuses the file system, the engine chooses another route; the
    reports (:attr:`reports`, ``penstock.last_report()``) say so, and why. Arrays need not be
    pinned; those that are used often gain by it, because cuFile then needs no buffers of its own.

    >>> handle = gds_handle()
    >>> tensor = handle.new_pinned_device_tensor(1 << 20, torch.empty(0, device="cuda"))
    >>> handle.sync_pread(tensor, "w.bin")
    1
    """

    def __init__(
        self,
        block_size: int = DEFAULT_BLOCK_SIZE,
        queue_depth: int = DEFAULT_QUEUE_DEPTH,
        single_submit: bool = False,
        overlap_events: bool = False,
        intra_op_parallelism: int = DEFAULT_PARALLELISM,
    ) -> None:
        # Requests are let go of before: CPython clears attributes in the order of their making.
        super().__init__(
            block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism
        )
        self._pins: dict[int, _Pin] = {}

    def get_alignment(self) -> int:
        """The length in bytes of which DeepSpeed's own operations take multiples only."""
        return 512

    def new_pinned_device_tensor(self, num_elem: int, example_tensor: Any) -> Any:
        """An array in GPU memory, of the type of another array and on its GPU if it is on one.

        It is a torch tensor where torch can use the GPU, else a CuPy array, else a
        :class:`penstock.DeviceArray`.
        """
        example = arrays.view(example_tensor)
        count = length_of(num_elem, example.dtype)
        device = "cuda" if example.device < 0 else example.device
        made = allocate((count,), example.dtype, device)
        self.pin_device_tensor(made)
        return made

    def free_pinned_device_tensor(self, tensor: Any) -> bool:
        """Give up an array of :meth:`new_pinned_device_tensor`, and return ``True``.

        Its memory goes with the last array that uses it.
        """
        return self.unpin_device_tensor(tensor)

    def pin_device_tensor(self, tensor: Any) -> bool:
        """Register an array in GPU memory with cuFile, where that starts, and return ``True``.

        The array, which must be C-contiguous, lives until it is unpinned or the handle is gone.
        """
        found = _device_memory(tensor)
        if not found.nbytes:
            return True
        with self._lock:
            if found.pointer not in self._pins:
                # One that exists before the memory is registered cannot be lost by an interrupt.
                self._pins[found.pointer] = pin = _Pin(found)
                try:
                    pin.register()
                except BaseException:
                    del self._pins[found.pointer]
                    raise
        return True

    def unpin_device_tensor(self, tensor: Any) -> bool:
        """Take back :meth:`pin_device_tensor`, and return ``True``.

        Operations in the background are waited for; their outcome is told by :meth:`wait`.
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
        return "auto", f"the gds route is not there: {refusal}"


class _Pin:
    """An array that is registered with cuFile as long as this lives."""

    def __init__(self, view: arrays.View) -> None:
        self._view = view
        self._is_registered = False

    def register(self) -> None:
        """Register the memory; without cuFile there is nothing to do."""
        try:
            check(lib.penstock_buffer_register(pointer(self._view.pointer), self._view.nbytes))
            self._is_registered = True
        except UnavailableError:
            pass

    def __del__(self) -> None:
        if self._is_registered:
            lib.penstock_buffer_deregister(pointer(self._view.pointer))


def _device_memory(tensor: Any) -> arrays.View:
    found = arrays.view(tensor)
    if found.device < 0:
        raise IncompatibleError(
            f"a {type(tensor).__name__} in host memory is not to be pinned for cuFile",
            remedy="use new_cpu_locked_tensor for host memory",
        )
    if not found.contiguous:
        raise IncompatibleError(
            f"a {type(tensor).__name__} of shape {found.shape} that is not C-contiguous cannot be "
            "pinned",
            remedy="pin the array that it is a part of",
        )
    return found


_asked: dict[int, str | None] = {}
"""What cuFile says of file systems, by their device numbers."""


def _refusal(device: int, target: Target) -> str | None:
    """Why cuFile does not serve the file system of a file; ``None`` if it does."""
    if device not in _asked:
        path = f"/proc/self/fd/{target}" if isinstance(target, int) else target
        cufile = describe(path)["cufile"]
        _asked[device] = cufile["reason"] if cufile["mode"] is None else None
    return _asked[device]
