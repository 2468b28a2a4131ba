"""Two doors at once: the Python interface by one handle of a file, and another door by a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

import penstock
from penstock._native import lib
from penstock.errors import check
from penstock.hdf5.library import lock

from ..selection import Picked
from ..values import Memory
from .base import Door, Transfer
from .c import C
from .connector import Connector
from .driver import Driver
from .python import Python


class Handle:
    """A file, as h5py and as penstock.File have it, and the door that its transfers take."""

    def __init__(self, door: Door, own: Any, file: Any) -> None:
        self.door = door
        self.own = own
        self.file = file


class Two(Door):
    new_arrays = True
    strided = True
    cancels = True
    device = True
    two_handles = True
    interrupts = True
    copies = True

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        second = {"c": C, "connector": Connector, "driver": Driver}[settings["second"]]
        self._python, self._second = Python(settings), second(settings)

    def open(self, path: Path, mode: str, *, again: bool = False, **arguments: Any) -> Any:
        file = self._second.open(path, mode, **arguments)
        if again:
            return Handle(self._second, file, file)
        return Handle(self._python, penstock.File(file), file)

    def h5py(self, file: Any) -> h5py.File:
        found: h5py.File = file.file
        return found

    def close(self, file: Any) -> None:
        file.door.let_go(file.own)
        try:
            if isinstance(file.own, penstock.File):
                file.own.close()  # which reports, and leaves the file open
        finally:
            self._second.close(file.file)

    def flush(self, file: Any) -> None:
        file.file.flush()

    def copy(self, file: Any, name: str, to: str) -> None:
        file.own.copy(name, to)

    def forget(self, name: str) -> None:
        self._python.forget(name)
        self._second.forget(name)

    def read_closed(self) -> None:
        self._python.read_closed()
        self._second.read_closed()

    def door_of(self, file: Any) -> Door:
        door: Door = file.door
        return door

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
        arguments = (name, picked, memory, options)
        self.settle(file, name, lib.PENSTOCK_OP_READ)
        made: Transfer = file.door.read(file.own, *arguments, waits=waits, dtype=dtype, way=way)
        return made

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
        self.settle(file, name, lib.PENSTOCK_OP_WRITE)
        made: Transfer = file.door.write(file.own, name, picked, memory, options, waits=waits)
        return made

    def settle(self, file: Any, name: str, operation: int = lib.PENSTOCK_OP_READ) -> None:
        """The driver sees addresses of the file, when HDF5 has looked the chunks up already: the
        program settles what H5Dread and H5Dwrite come after."""
        if isinstance(file.door, Driver):
            dataset = file.file[name]
            with lock():
                check(lib.penstock_dataset_settle(dataset.id.id, operation))

    def end(self) -> None:
        self._second.end()
