"""Groups, whose datasets read into and write from any array."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from penstock._keys import ReadKeys
from penstock.hdf5 import copying, create, many
from penstock.hdf5.dataset import Dataset
from penstock.hdf5.library import calls_back, creation_properties, lock, make_durable, wait_for_file
from penstock.hdf5.objects import Object, wrap
from penstock.shapes import Shape

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Group(Object, h5py.Group):  # type: ignore[misc]
    """A group of an HDF5 file: an ``h5py.Group`` whose datasets are those of Penstock.

    ``group["name"]`` is a :class:`Dataset`, a :class:`Group`, or h5py's object for a named type.

    Args:
        group: An open ``h5py.Group``, or its identifier.
        file: The file that it was reached from.
    """

    _class = h5py.Group

    def __init__(self, group: Any, file: Any = None) -> None:
        self._adopt(group if isinstance(group, h5py.Group) else h5py.Group(group), file)

    def __getitem__(self, name: Any) -> Any:
        """Open an object by its name or by a reference to it."""
        return wrap(super().__getitem__(name), self._root())

    def __setitem__(self, name: str, item: Any) -> None:
        """Give a name to an object, a link, a type or a new dataset of an array in any memory."""
        if isinstance(item, (h5py.HLObject, h5py.SoftLink, h5py.ExternalLink, np.dtype)):
            super().__setitem__(name, item)
            return
        super().__setitem__(name, self.create_dataset(None, data=item))
        make_durable(self)  # the link; the dataset had no name when it was written

    def __delitem__(self, name: str) -> None:
        """Wait for the pending requests of the file, and remove a name from the group."""
        wait_for_file(self)
        super().__delitem__(name)

    def get(
        self,
        name: Any,
        default: Any = None,
        getclass: bool = False,
        getlink: bool = False,
        **access: Any,
    ) -> Any:
        """Return an object, its class, its link or the class of its link.

        Args:
            name: The path within the group.
            default: What to return if there is no such name.
            getclass: Return the class of the object, or of its link.
            getlink: Return the link, h5py's ``HardLink``, ``SoftLink`` or ``ExternalLink``.
            **access: Further arguments of ``h5py.Group.get``.
        """
        found = super().get(name, default, getclass, getlink, **access)
        if found is default:
            return default
        if getclass and not getlink:
            return {h5py.Dataset: Dataset, h5py.Group: Group}.get(found, found)
        return wrap(found, self._root())

    def read_many(
        self,
        names: Iterable[Any],
        **keys: Unpack[ReadKeys],
    ) -> list[Any]:
        """Read many datasets, or parts of them, as one request: see :func:`penstock.read_many`.

        This opens them more cheaply than ``group[name]`` does.

        Args:
            names: The paths within the group, or pairs of a path and a selection.
            out: An array for each name, as for :func:`penstock.read_many`.
            device: Where new arrays go, as there.
            dtype: Convert the elements to this type.
            stream: A CUDA stream, as there.
            like: The library of new arrays, as there.
            pin: Whether new arrays in host memory are page-locked, as there.
            **keys: The arguments above from ``out`` on, and those of
                :class:`penstock.OptionKeys`.

        Returns:
            The arrays, in the order of the names.

        Raises:
            KeyError: The group has no object of a name.
            InvalidError: A name is not that of a dataset, or as for :func:`penstock.read_many`.

        >>> tensors = f.read_many([f"layers/{n}/weight" for n in range(96)], device="cuda")
        """
        return many.read_named(self, names, **keys)

    def create_dataset(
        self,
        name: str | None,
        shape: Shape | None = None,
        dtype: Any = None,
        data: Any = None,
        *,
        stream: Any = None,
        **arguments: Any,
    ) -> Dataset:
        """Create a dataset, and write it if there are data.

        Args:
            name: The path within the group; missing groups in it are created. ``None`` for no name.
            shape: Lengths of the dimensions; those of ``data`` by default.
            dtype: The type of the elements; that of ``data`` by default.
            data: Any array on the CPU or a GPU, or any value that ``h5py`` accepts.
            stream: A CUDA stream whose queued work makes the data.
            **arguments: Further arguments of ``h5py.Group.create_dataset``: ``chunks``,
                ``compression``, ``compression_opts``, ``shuffle``, ``fletcher32``,
                ``scaleoffset``, ``fillvalue``, ``maxshape`` and so on.

        >>> f.create_dataset("group/rho", data=t, chunks=(64, 64), compression="gzip", shuffle=True)
        """
        root = self._root()
        made = create.create(self, root, name, shape, dtype, data, stream, arguments)
        return Dataset(made, root)

    create = create_dataset
    """A shorter name."""

    def require_dataset(
        self,
        name: str,
        shape: Shape,
        dtype: Any,
        exact: bool = False,
        **arguments: Any,
    ) -> Dataset:
        """Return a dataset, which is created if there is none of this name.

        Args:
            name: The path within the group.
            shape: Lengths of the dimensions.
            dtype: The type of the elements.
            exact: Whether the type must be this one, rather than one that it can be cast to.
            **arguments: Those of :meth:`create_dataset`.

        Raises:
            TypeError: What has this name is not a dataset, or has another shape or type.
        """
        with lock():
            found = super().require_dataset(name, shape, dtype, exact, **arguments)
        dataset: Dataset = wrap(found, self._root())
        return dataset

    def create_dataset_like(self, name: str | None, other: Any, **arguments: Any) -> Dataset:
        """Create a dataset with the properties of another one, and without its elements."""
        with creation_properties(other) as known:
            made: Dataset = super().create_dataset_like(name, known, **arguments)
        return made

    def create_virtual_dataset(self, name: str, layout: Any, fillvalue: Any = None) -> Dataset:
        """Create a dataset of parts of others, which an ``h5py.VirtualLayout`` describes."""
        return Dataset(super().create_virtual_dataset(name, layout, fillvalue), self._root())

    def create_group(self, name: str | None, *arguments: Any, **more: Any) -> Group:
        """Create a group. Further arguments are those of ``h5py.Group.create_group``."""
        return Group(super().create_group(name, *arguments, **more), self._root())

    def copy(
        self,
        source: Any,
        dest: Any,
        name: str | None = None,
        shallow: bool = False,
        expand_soft: bool = False,
        expand_external: bool = False,
        expand_refs: bool = False,
        without_attrs: bool = False,
    ) -> None:
        """Copy an object with all that is in it, after the pending requests of its file.

        This first makes HDF5 write its buffers of open datasets that are copied, and drop their
        filtered chunks, for which their stored bytes are read once more: HDF5 alone would copy old
        elements, or crash.

        HDF5 can still write past the end of its memory where records hold strings or arrays of
        variable length and filters can make a chunk longer, such as zstd or gzip with fletcher32.
        Copy such a dataset by ``create_dataset_like`` and an assignment of its elements.

        Args:
            source: The path within the group, or an object of this file or another one.
            dest: The path within the group, or a group of this file or another one.
            name: The name in the group ``dest``; that of the source by default.
            shallow: Of a group, copy only its direct members.
            expand_soft: Copy what soft links lead to, instead of the links.
            expand_external: Copy what external links lead to, instead of the links.
            expand_refs: Copy what references point to as well.
            without_attrs: Copy no attributes.
        """
        from h5py import h5o

        with lock():
            options = (
                expand_soft * h5o.COPY_EXPAND_SOFT_LINK_FLAG
                | expand_external * h5o.COPY_EXPAND_EXT_LINK_FLAG
                | expand_refs * h5o.COPY_EXPAND_REFERENCE_FLAG
            )
            copying.prepare(self, source, options)
            super().copy(
                source,
                dest,
                name,
                shallow=shallow,
                expand_soft=expand_soft,
                expand_external=expand_external,
                expand_refs=expand_refs,
                without_attrs=without_attrs,
            )

    def visit(self, func: Callable[[str], Any]) -> Any:
        """Call a function with each name below the group, until it returns something.

        The function may read and write, but HDF5 cannot flush the file meanwhile: a durable write
        is refused. The library cannot detect h5py's own ``visit``, in which such a write may
        damage the file.
        """
        with calls_back():
            return super().visit(func)

    def visititems(self, func: Callable[[str, Any], Any]) -> Any:
        """Call a function with each name and object below the group, as :meth:`visit` does."""
        root = self._root()
        with calls_back():
            return super().visititems(lambda name, item: func(name, wrap(item, root)))

    def visit_links(self, func: Callable[[str], Any]) -> Any:
        """Call a function with the name of each link below the group, as :meth:`visit` does."""
        with calls_back():
            return super().visit_links(func)

    def visititems_links(self, func: Callable[[str, Any], Any]) -> Any:
        """Call a function with the name and each link below the group, as :meth:`visit` does."""
        with calls_back():
            return super().visititems_links(func)

    def _root(self) -> Any:
        """Return the file that objects of this group are reached from."""
        return self._file
