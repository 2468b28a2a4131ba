"""Two interfaces at once: the Python interface by one handle of a file, another by a second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py

import penstock
from penstock._native import lib
from penstock.errors import check
from penstock.hdf5.library import lock

from .base import Interface, ReadRequest, Transfer, TransferRequest
from .c import C
from .connector import Connector
from .driver import Driver
from .python import Python


class Handle:
    """A file as h5py's and as penstock.File's object, and the interface of its transfers."""

    def __init__(self, interface: Interface, own: Any, file: Any) -> None:
        self.interface = interface
        self.own = own
        self.file = file


class Two(Interface):
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
        file.interface.let_go(file.own)
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

    def interface_of(self, file: Any) -> Interface:
        interface: Interface = file.interface
        return interface

    def read(self, request: ReadRequest) -> Transfer:
        handle = request.file
        self.settle(handle, request.name, lib.PENSTOCK_OP_READ)
        made: Transfer = handle.interface.read(replace(request, file=handle.own))
        return made

    def write(self, request: TransferRequest) -> Transfer:
        handle = request.file
        self.settle(handle, request.name, lib.PENSTOCK_OP_WRITE)
        made: Transfer = handle.interface.write(replace(request, file=handle.own))
        return made

    def settle(self, file: Any, name: str, operation: int = lib.PENSTOCK_OP_READ) -> None:
        """Wait for what precedes H5Dread and H5Dwrite by the driver.

        The driver is called with addresses of the file, after HDF5 has looked the chunks up.
        """
        if isinstance(file.interface, Driver):
            dataset = file.file[name]
            with lock():
                check(lib.penstock_dataset_settle(dataset.id.id, operation))

    def end(self) -> None:
        self._second.end()
