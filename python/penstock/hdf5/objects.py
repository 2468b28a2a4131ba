"""What files, groups and datasets share: h5py's objects, their attributes and their pickling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import h5py
import numpy as np

from penstock.errors import IncompatibleError
from penstock.hdf5 import memory_types
from penstock.hdf5.library import lock

if TYPE_CHECKING:
    from penstock.hdf5.file import File


class Attributes(h5py.AttributeManager):  # type: ignore[misc]
    """h5py's attributes, except that lists of variable length have the numbers of the file.

    Args:
        item: An object of h5py.
    """

    def __getitem__(self, name: str) -> Any:
        """Read the value of an attribute."""
        with lock():
            found = super().__getitem__(name)
            if isinstance(found, (np.ndarray, np.void)):
                attribute = self.get_id(name)
                if memory_types.has_lists(attribute.get_type()):
                    memory_types.correct_lists(found, attribute.dtype)
        return found


class Object:
    """What Penstock adds to a class of h5py: a base of its classes, before h5py's.

    An object can be pickled if its file can: see :class:`penstock.File`.
    """

    id: Any
    name: str | None
    _class: ClassVar[Any]
    """The class of h5py."""
    _file_class: ClassVar[type[File]]
    """The class of files, whose module sets it."""
    _file: File | None = None
    """The file that the object was reached from."""
    _h5py: Any = None

    def _adopt(self, found: Any, file: File | None) -> None:
        """Become the same object as one of h5py, reached from a file, if that is known."""
        self.__dict__.update(found.__dict__)  # the identifier, and what h5py knows of it
        if file is not None:
            self._file = file

    @property
    def h5py(self) -> Any:
        """h5py's own object, whose methods are all h5py's."""
        if self._h5py is None:
            made = self._class.__new__(self._class)
            made.__dict__.update(self.__dict__)
            self._h5py = made
        return self._h5py

    @property
    def file(self) -> File:
        """The file of the object. After an external link, it is the file that the link names."""
        found = h5py.File(self.id)
        if self._file is not None and self._file == found:
            return self._file
        return self._file_class._of(found)

    @property
    def attrs(self) -> Any:
        """The attributes, an ``h5py.AttributeManager`` whose lists have the numbers of the file."""
        return Attributes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        name = self.name if self else None
        if name is None:
            what = "without a name" if self else "that is closed"
            raise IncompatibleError(
                f"an object {what} cannot be pickled: it is found again by its name"
            )
        return _member, (self.file, name)

    def __repr__(self) -> str:
        return f"<penstock.{type(self).__name__} {super().__repr__()}>"


def _member(file: File, name: str) -> Any:
    return file[name]
