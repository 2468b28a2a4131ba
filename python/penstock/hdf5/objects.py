"""What groups, files and datasets have in common, and their relation to h5py's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.hdf5 import pickling
from penstock.hdf5.library import lock

if TYPE_CHECKING:
    from penstock.hdf5.file import File
    from penstock.hdf5.group import Group


class Object:
    """A named object of an HDF5 file, around h5py's object of the same name.

    Two objects are equal if they are the same object of the same file, h5py's objects included.
    An object is true as long as its file is open. It can be pickled if its file can: see
    :class:`penstock.File`.
    """

    def __init__(self, found: Any, file: File | None = None) -> None:
        self._h5py = unwrap(found)
        self._file = file

    @property
    def h5py(self) -> Any:
        """h5py's object."""
        return self._h5py

    @property
    def name(self) -> str | None:
        """The path within the file; ``None`` for an object without a name."""
        name: str | None = self._h5py.name
        return name

    @property
    def file(self) -> File:
        """The file of the object. After an external link, it is the file that the link names."""
        from penstock.hdf5.file import File

        found = self._h5py.file
        return self._file if self._file is not None and self._file == found else File._of(found)

    @property
    def parent(self) -> Group:
        """The group that the name is in."""
        parent: Group = wrap(self._h5py.parent, self._file)
        return parent

    @property
    def id(self) -> Any:
        """h5py's low-level identifier, such as an ``h5py.h5d.DatasetID``."""
        return self._h5py.id

    @property
    def attrs(self) -> Any:
        """The attributes, an ``h5py.AttributeManager`` whose lists have the numbers of the file."""
        from penstock.hdf5.attributes import Attributes

        return Attributes(self._h5py)

    @property
    def ref(self) -> Any:
        """A reference to the object, an ``h5py.Reference``."""
        return self._h5py.ref

    @property
    def regionref(self) -> Any:
        """Makes region references: ``dataset.regionref[0:10]`` is an ``h5py.RegionReference``."""
        return self._h5py.regionref

    def __bool__(self) -> bool:
        return bool(self._h5py)

    def __eq__(self, other: object) -> Any:
        # NotImplemented for what is not an object of HDF5, so that NumPy compares elements.
        return self._h5py.__eq__(unwrap(other))

    def __hash__(self) -> int:
        return hash(self._h5py)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickling.of_object(self)

    def __repr__(self) -> str:
        return f"<penstock.{type(self).__name__} {self._h5py!r}>"


def wrap(found: Any, file: File | None) -> Any:
    """Return a dataset or group of h5py as ours; anything else, such as a named type, as it is."""
    import h5py

    from penstock.hdf5.dataset import Dataset
    from penstock.hdf5.group import Group

    if isinstance(found, h5py.Dataset):
        return Dataset(found, file)
    return Group(found, file) if isinstance(found, h5py.Group) else found


def unwrap(item: Any) -> Any:
    """Return h5py's object for one of ours; anything else as it is."""
    return item._h5py if isinstance(item, Object) else item


def open_readonly(file: Any, name: str) -> Any | None:
    """Open a dataset or group of an ``h5py.File`` that is open only for reading.

    Returns h5py's object; ``None`` for a name or an object that ``file[name]`` has to open. h5py
    makes an object for the file each time, only to ask for its mode. That takes a third of the time
    of the first small read of a dataset.
    """
    import h5py

    if not name.isascii() or not hasattr(file, "_lapl"):
        return None
    with lock():
        found = h5py.h5o.open(file.id, name.encode(), lapl=file._lapl)
        if isinstance(found, h5py.h5d.DatasetID):
            return h5py.Dataset(found, readonly=True)
        return h5py.Group(found) if isinstance(found, h5py.h5g.GroupID) else None
