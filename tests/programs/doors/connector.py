"""The connector: H5Dread_async and H5Dwrite_async with event sets, and HDF5's plain calls."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import Any

import h5py
from h5py._objects import phil

from ..selection import Picked
from ..values import Memory
from . import hdf5
from .base import CancelledError, Door, Transfer


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
            told = (ctypes.byref(left), ctypes.byref(failed))
            hdf5.check(hdf5.library.H5EScancel(self._events, *told))
        self._cancelled = True

    def drop(self) -> None:
        # An event set can be closed only when all in it has ended.
        self._dropped.append(self)

    def _look(self, timeout_ns: int) -> bool:
        if self._events < 0:
            return True
        left, failed = ctypes.c_size_t(), ctypes.c_bool()
        with phil:
            told = (ctypes.byref(left), ctypes.byref(failed))
            hdf5.check(hdf5.library.H5ESwait(self._events, timeout_ns, *told))
            if left.value and not failed.value:
                return False
            if failed.value and not self._cancelled:
                self._outcome = hdf5.FailedError("the event set has an error")
            hdf5.check(hdf5.library.H5ESclose(self._events))
        self._events, self._keep = -1, None
        return True


class Connector(Door):
    settles = frozenset({"plain", "close", "flush", "resize", "delete"})
    device = True
    once_a_call = True
    cancels = True
    copies = True

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._dropped: list[Inserted] = []

    def open(self, path: Path, mode: str, **arguments: Any) -> Any:
        options = {
            "implicit": self.settings.get("implicit", False),
            "copy": self.settings.get("copy", "auto"),
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

    def read(
        self,
        file: Any,
        name: str,
        picked: Picked,
        memory: Memory | None,
        options: dict[str, Any],
        *,
        waits: bool,
        dtype: Any,
        way: str,
    ) -> Transfer:
        assert memory is not None
        lib = hdf5.library
        return self._start(lib.H5Dread, lib.H5Dread_async, file, name, picked, memory, waits)

    def read_many(
        self,
        file: Any,
        parts: list[tuple[str, Picked, Memory | None]],
        options: dict[str, Any],
        *,
        by_name: bool,
        dtype: Any,
    ) -> list[Any]:
        hdf5.read_many(file, parts, in_background=by_name)
        return [None] * len(parts)

    def write(
        self,
        file: Any,
        name: str,
        picked: Picked,
        memory: Memory,
        options: dict[str, Any],
        *,
        waits: bool,
    ) -> Transfer:
        lib = hdf5.library
        made = self._start(lib.H5Dwrite, lib.H5Dwrite_async, file, name, picked, memory, waits)
        # Plain calls never leave their buffer in use.
        if (waits or self.settings.get("copy") != "never") and memory.kind != "device":
            memory.change()
        return made

    def _start(
        self,
        plain: Any,
        in_background: Any,
        file: Any,
        name: str,
        picked: Picked,
        memory: Memory,
        waits: bool,
    ) -> Transfer:
        with hdf5.described(file, name, picked, memory) as arguments:
            if waits:
                hdf5.check(plain(*arguments))
                return Transfer()
            events = hdf5.check(hdf5.library.H5EScreate())
            try:
                hdf5.check(in_background(*hdf5.PLACE, *arguments, events))
            except BaseException:
                hdf5.library.H5ESclose(events)
                raise
        return Inserted(events, memory, self._dropped)
