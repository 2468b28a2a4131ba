"""The base class of the interfaces, and the arguments of their transfers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np

from ..selection import Picked
from ..values import Memory

Array = np.ndarray[Any, Any]


class CancelledError(Exception):
    """A transfer ended because it was cancelled."""


class Transfer:
    """A started transfer. This base class is a transfer that has finished already."""

    def __init__(self, value: Any = None) -> None:
        self._value = value

    def wait(self) -> Any:
        """Wait, and return the array that was read; raise CancelledError, or what failed."""
        return self._value

    def done(self) -> bool:
        return True

    def cancel(self) -> None:
        pass

    def drop(self) -> None:
        """Release the transfer without waiting."""


@dataclass(frozen=True)
class TransferRequest:
    """The arguments of a write, and those that reads share with it."""

    file: Any
    """A file as :meth:`Interface.open` returns it."""
    name: str
    picked: Picked
    memory: Memory | None = None
    """``None``: a read makes a new array."""
    options: dict[str, Any] = field(default_factory=dict)
    waits: bool = True

    @property
    def given_memory(self) -> Memory:
        """The memory of a request that must have one."""
        assert self.memory is not None
        return self.memory


@dataclass(frozen=True)
class ReadRequest(TransferRequest):
    """The arguments of a read."""

    dtype: Any = None
    """The type of a new array; ``None``: the dataset's."""
    way: str = "plain"
    """``plain``; ``kept``: by the dataset object of an earlier read; ``index``: by an index."""


@dataclass(frozen=True)
class ManyRequest:
    """The arguments of a read of several datasets, all into memory or all into new arrays."""

    file: Any
    parts: list[tuple[str, Picked, Memory | None]]
    options: dict[str, Any]
    by_name: bool
    dtype: Any

    @property
    def memories(self) -> list[Memory]:
        return [memory for _, _, memory in self.parts if memory is not None]


class Interface:
    """Transfers by one interface. :meth:`open` returns its files; h5py does all else."""

    penstock: ClassVar[bool] = True
    """Whether transfers pass through Penstock at all."""
    settles: ClassVar[frozenset[str]] = frozenset()
    """Methods that wait for pending requests: ``close``, ``flush``, ``resize``, ``delete``.

    ``plain``: h5py's own calls on the file wait for them, too.
    """
    new_arrays: ClassVar[bool] = False
    """Whether a read without memory returns a new array."""
    broadcasts: ClassVar[bool] = False
    lists: ClassVar[str] = "sorted"
    """Which lists of indices it accepts: see :func:`tests.programs.selection.pick`."""
    once_a_call: ClassVar[bool] = False
    """Whether a dataset may be in a call only once, as in H5Dread_multi."""
    objects: ClassVar[bool] = False
    """Whether it reads and writes arrays of Python's objects, such as variable-length strings."""
    strided: ClassVar[bool] = False
    """Whether the arrays of boxes may have any strides."""
    device: ClassVar[bool] = False
    cancels: ClassVar[bool] = False
    two_handles: ClassVar[bool] = False
    """Whether each file is open by two different handles; ``open`` takes ``again``."""
    close_raises: ClassVar[bool] = False
    """Whether closing a file raises the failures of writes that the program did not wait for."""
    copies: ClassVar[bool] = False
    """Whether ``copy`` copies earlier writes, whatever the filters."""
    maps: ClassVar[bool] = False
    """Whether it reads virtual datasets whose sources have another shape than the mapping says.

    HDF5 itself then reads other elements.
    """
    interrupts: ClassVar[bool] = False
    """Whether its calls run Python code of the library, which a signal handler can end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def open(
        self, path: Path, mode: str, *, opening: dict[str, Any] | None = None, **arguments: Any
    ) -> Any:
        """Open a file, by the ``driver`` and ``connector`` and with the ``options`` of an opening.

        Several openings of a file at a time may have different options.
        """
        return h5py.File(path, mode, **arguments)

    def takes_device(self, kind: dict[str, Any], dtype: Any) -> bool:
        """Whether a dataset may be read into and written from GPU memory of a type."""
        return True

    def interface_of(self, file: Any) -> Interface:
        """The interface of transfers by this handle."""
        return self

    def settle(self, file: Any, name: str) -> None:
        """Wait for what precedes a read of a dataset, if the interface itself does not."""

    def h5py(self, file: Any) -> h5py.File:
        """The h5py object of the same file."""
        return file

    def let_go(self, file: Any) -> None:
        """Mark the kept objects of a file as those of a closed file."""

    def close(self, file: Any) -> None:
        self.let_go(file)
        file.close()

    def flush(self, file: Any) -> None:
        file.flush()

    def resize(self, file: Any, name: str, shape: tuple[int, ...]) -> None:
        self.h5py(file)[name].resize(shape)

    def delete(self, file: Any, name: str) -> None:
        del self.h5py(file)[name]

    def copy(self, file: Any, name: str, to: str) -> None:
        self.h5py(file).copy(name, to)

    def create(self, file: Any, name: str, values: Array | None, **arguments: Any) -> None:
        self.h5py(file).create_dataset(name, data=values, **arguments)

    def read(self, request: ReadRequest) -> Transfer:
        """Start a read."""
        raise NotImplementedError

    def write(self, request: TransferRequest) -> Transfer:
        """Start a write of what the memory holds."""
        raise NotImplementedError

    def forget(self, name: str) -> None:
        """Release the kept objects of a dataset that is deleted."""

    def read_closed(self) -> None:
        """Raise AssertionError if the kept objects of closed files can be read."""

    def end(self) -> None:
        """Release what belongs to no file."""
