"""What groups, files and datasets have in common, and their relation to h5py's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from penstock.hdf5 import pickling
from penstock.hdf5.attributes import Attributes

if TYPE_CHECKING:
    from penstock.hdf5.file import File


class Object:
    """What Penstock adds to a class of h5py: a base of its classes, before h5py's.

    An object can be pickled if its file can: see :class:`penstock.File`.
    """

    id: Any
    name: str | None
    _class: ClassVar[Any]
    """The class of h5py."""
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
        import h5py

        from penstock.hdf5.file import File

        found = h5py.File(self.id)
        return self._file if self._file is not None and self._file == found else File._of(found)

    @property
    def attrs(self) -> Any:
        """The attributes, an ``h5py.AttributeManager`` whose lists have the numbers of the file."""
        return Attributes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickling.of_object(self)

    def __repr__(self) -> str:
        return f"<penstock.{type(self).__name__} {super().__repr__()}>"


def wrap(found: Any, file: File | None) -> Any:
    """Return a dataset or group of h5py as ours; anything else, such as a named type, as it is."""
    import h5py

    from penstock.hdf5.dataset import Dataset
    from penstock.hdf5.group import Group

    if type(found) is h5py.Dataset:
        return Dataset(found, file)
    return Group(found, file) if type(found) is h5py.Group else found
