"""The connector: H5Dread_async and H5Dwrite_async with event sets, and HDF5's plain calls."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import Any

import h5py
from h5py._objects import phil

from . import hdf5
from .base import (
    CancelledError,
    Interface,
    ManyRequest,
    ReadRequest,
    Transfer,
    TransferRequest,
)


class Inserted(Transfer):
    """A transfer in an event set of its own."""

    def __init__(self, events: int, keep: object, dropped: list[Inserted]) -> None:
        self._events = events
        self._keep = keep
        self._dropped = dropped
        self._cancelled = False
        self._outcome: Exception | None = None

    def wait(self) -> None:
        self._look(hdf5.FOREVER)
        if self._outcome is not None:
            raise self._outcome
        if self._cancelled:
            raise CancelledError

    def done(self) -> bool:
        return self._look(0)

    def cancel(self) -> None:
        if self._events < 0:
            return
        left, failed = ctypes.c_size_t(), ctypes.c_bool()
        with phil:
            outcome = (ctypes.byref(left), ctypes.byref(failed))
            hdf5.check(hdf5.library.H5EScancel(self._events, *outcome))
        self._cancelled = True

    def drop(self) -> None:
        # An event set can be closed only when all in it has ended.
        self._dropped.append(self)

    def _look(self, timeout_ns: int) -> bool:
        if self._events < 0:
            return True
        left, failed = ctypes.c_size_t(), ctypes.c_bool()
        with phil:
            outcome = (ctypes.byref(left), ctypes.byref(failed))
            hdf5.check(hdf5.library.H5ESwait(self._events, timeout_ns, *outcome))
            if left.value and not failed.value:
                return False
            if failed.value and not self._cancelled:
                self._outcome = hdf5.FailedError("the event set has an error")
            hdf5.check(hdf5.library.H5ESclose(self._events))
        self._events, self._keep = -1, None
        return True


class Connector(Interface):
    settles = frozenset({"plain", "close", "flush", "resize", "delete"})
    device = True
    once_a_call = True
    cancels = True
    copies = True

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._dropped: list[Inserted] = []

    def open(
        self, path: Path, mode: str, *, opening: dict[str, Any] | None = None, **arguments: Any
    ) -> Any:
        options = {
            "implicit": self.settings.get("implicit", False),
            "copy": self.settings.get("copy", "auto"),
            **(opening or {}).get("options", {}),
        }
        if small := self.settings.get("at_once"):
            options["small"] = small
        return h5py.File(path, mode, driver="penstock_async", **options, **arguments)

    def close(self, file: Any) -> None:
        self.end()
        file.close()

    def end(self) -> None:
        for transfer in self._dropped:
            with contextlib.suppress(CancelledError):
                transfer.wait()
        self._dropped.clear()

    def read(self, request: ReadRequest) -> Transfer:
        return self._start(hdf5.library.H5Dread, hdf5.library.H5Dread_async, request)

    def read_many(self, request: ManyRequest) -> list[Any]:
        hdf5.read_many(request, in_background=request.by_name)
        return [None] * len(request.parts)

    def write(self, request: TransferRequest) -> Transfer:
        memory = request.given_memory
        made = self._start(hdf5.library.H5Dwrite, hdf5.library.H5Dwrite_async, request)
        # Plain calls never leave their buffer in use.
        if (request.waits or self.settings.get("copy") != "never") and memory.kind != "device":
            memory.change()
        return made

    def _start(self, plain: Any, in_background: Any, request: TransferRequest) -> Transfer:
        with hdf5.described(request) as arguments:
            if request.waits:
                hdf5.check(plain(*arguments))
                return Transfer()
            events = hdf5.check(hdf5.library.H5EScreate())
            try:
                hdf5.check(in_background(*hdf5.PLACE, *arguments, events))
            except BaseException:
                hdf5.library.H5ESclose(events)
                raise
        return Inserted(events, request.memory, self._dropped)
