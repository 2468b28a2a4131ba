"""What a door has to offer."""

from __future__ import annotations

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
    """A transfer that was started. This one was finished when it was started."""

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
        """Let go of it without waiting."""


class Door:
    """Transfers by one way. Files are what :meth:`open` returns; all else is done by h5py."""

    penstock: ClassVar[bool] = True
    """Whether it leads into Penstock at all."""
    settles: ClassVar[frozenset[str]] = frozenset()
    """What this door has that waits for requests by itself: ``close``, ``flush``, ``resize``,
    ``delete``; ``plain`` if also what h5py does passes through it."""
    new_arrays: ClassVar[bool] = False
    """Whether it makes the arrays that it reads into, if it gets none."""
    broadcasts: ClassVar[bool] = False
    lists: ClassVar[str] = "sorted"
    """Which lists of indices it takes: see :func:`tests.programs.selection.pick`."""
    once_a_call: ClassVar[bool] = False
    """Whether a call may have parts of a dataset only once, as with H5Dread_multi."""
    objects: ClassVar[bool] = False
    """Whether it reads and writes arrays of Python's objects, such as variable-length strings."""
    strided: ClassVar[bool] = False
    """Whether the arrays of boxes may have any strides."""
    device: ClassVar[bool] = False
    cancels: ClassVar[bool] = False
    two_handles: ClassVar[bool] = False
    """Whether each file is open by two handles, which differ: ``open`` is told ``again``."""

    close_tells: ClassVar[bool] = False
    """Whether closing a file raises what went wrong with writes that nobody has waited for."""
    copies: ClassVar[bool] = False
    """Whether ``copy`` copies what was written before, with whatever filters."""
    interrupts: ClassVar[bool] = False
    """Whether Python code of the library runs in its calls, which a signal's handler can end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def open(self, path: Path, mode: str, **arguments: Any) -> Any:
        return h5py.File(path, mode, **arguments)

    def takes_device(self, kind: dict[str, Any], dtype: Any) -> bool:
        """Whether a dataset may be read into and written from GPU memory of a type."""
        return True

    def door_of(self, file: Any) -> Door:
        """The door that transfers by this handle take."""
        return self

    def settle(self, file: Any, name: str) -> None:
        """Wait for what a read of a dataset comes after, if the door itself does not."""

    def h5py(self, file: Any) -> h5py.File:
        """The same file, as h5py has it."""
        return file

    def let_go(self, file: Any) -> None:
        """Remember that what is kept of a file is that of a closed one."""

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
        """Start to read; into a new array, of that type, if there is no memory.

        ``way`` is how, of several ways that the door may have: ``plain``; ``kept``, by what it has
        kept of the dataset since an earlier read; or ``index``, by the shortest way.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def forget(self, name: str) -> None:
        """Let go of what is kept of a dataset, because it is deleted."""

    def read_closed(self) -> None:
        """Read by what was kept of files that are closed: an error, or nothing is read.

        AssertionError if something was read.
        """

    def end(self) -> None:
        """Let go of what belongs to no file."""
