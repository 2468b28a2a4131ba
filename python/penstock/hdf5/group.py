"""Groups, which open, create and copy datasets and other objects."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Set
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from penstock import arrays, frameworks, report, staging
from penstock._keys import ReadKeys
from penstock._native import lib
from penstock._options import current
from penstock.dtypes import ElementType, element_type
from penstock.errors import IncompatibleError, InvalidError, check
from penstock.hdf5 import dropped, many, memory_types, small
from penstock.hdf5.dataset import Dataset
from penstock.hdf5.library import (
    any_pending,
    calls_back,
    creation_properties,
    lock,
    make_durable,
    open_readonly,
    wait_for_file,
)
from penstock.hdf5.objects import Object
from penstock.hdf5.writing import write
from penstock.records import has_padding, in_c_order, of_type
from penstock.shapes import Shape, lengths_of
from penstock.streams import stream_handle

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.hdf5.file import File


class Group(Object, h5py.Group):  # type: ignore[misc]
    """A group of an HDF5 file: an ``h5py.Group`` whose datasets are those of Penstock.

    ``group["name"]`` is a :class:`Dataset`, a :class:`Group`, or h5py's object for a named type.

    Args:
        group: An open ``h5py.Group``, or its identifier.
        file: The file that it was reached from.
    """

    _class = h5py.Group
    _is_readonly: bool | None = None
    """Whether the file is open only for reading; ``None`` before it was asked for."""

    def __init__(self, group: Any, file: Any = None) -> None:
        self._adopt(group if isinstance(group, h5py.Group) else h5py.Group(group), file)

    def __getitem__(self, name: Any) -> Any:
        """Open an object by its name or by a reference to it."""
        if self._is_readonly is None and self:
            self._is_readonly = self.file.mode == "r"
        if self._is_readonly and type(name) is str:
            found = open_readonly(self, name)
            if isinstance(found, h5py.h5d.DatasetID):
                return Dataset._opened(found, self._root())
            if isinstance(found, h5py.h5g.GroupID):
                return Group(found, self._root())
        return _wrap(super().__getitem__(name), self._root())

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
        return _wrap(found, self._root())

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
        root, handle = self._root(), stream_handle(stream)
        lengths = None if shape is None else lengths_of(shape)
        kind = _h5py_dtype(dtype)
        is_brief = partial(_is_brief, lengths, kind, arguments.keys())
        is_plain = type(data) is np.ndarray and handle is None
        by_hdf5 = data is None or (is_plain and is_brief(data.nbytes, data.shape, data.dtype))
        view = None if by_hdf5 else _memory(data, handle)
        is_from_gpu = view and view.device >= 0 and view.contiguous
        if view and is_from_gpu and is_brief(view.nbytes, view.shape, view.dtype.numpy):
            data, view = staging.to_host(view), None
        if view is None:
            wanted = getattr(data, "dtype", None) if kind is None else kind
            is_value = isinstance(data, (list, tuple, np.generic))
            if is_value and isinstance(wanted, np.dtype) and has_padding(wanted):
                data = of_type(data, wanted)
            began = perf_counter_ns()
            made = self.h5py.create_dataset(name, lengths, kind, data, **arguments)
            dropped.adopt(made, root)
            if data is not None:
                dropped.watch(made)
                make_durable(made)
                nbytes = getattr(data, "nbytes", 0)
                report.remember((nbytes, perf_counter_ns() - began, small.WRITE_REASON))
            return Dataset(made, root)
        lengths = view.shape if lengths is None else lengths
        if math.prod(lengths) != math.prod(view.shape):
            raise InvalidError(
                f"data of shape {view.shape} do not fill a dataset of shape {lengths}"
            )
        if dtype is None:
            kind = _h5py_dtype(getattr(data, "dtype", view.dtype))
        made = self.h5py.create_dataset(name, lengths, kind, **arguments)
        dropped.adopt(made, root)
        if lengths != view.shape:
            with frameworks.on_stream(view.framework, view.stream, view.device):
                data = _reshaped(data, lengths)
        write(made, data, stream=stream)
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
        dataset: Dataset = _wrap(found, self._root())
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
        with lock():
            options = (
                expand_soft * h5py.h5o.COPY_EXPAND_SOFT_LINK_FLAG
                | expand_external * h5py.h5o.COPY_EXPAND_EXT_LINK_FLAG
                | expand_refs * h5py.h5o.COPY_EXPAND_REFERENCE_FLAG
            )
            self._prepare_copy(source, options)
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

    def _prepare_copy(self, source: Any, options: int) -> None:
        """Make HDF5's buffers of what is copied agree with the file. The caller holds the lock.

        The library finds the open datasets that a copy reads, and makes HDF5 write and forget what
        it would copy wrongly. The defect that remains, see :meth:`copy`, concerns elements that
        ``H5Ocopy`` decodes and encodes again, from the file as from the cache.

        Args:
            source: The h5py object, or its path.
            options: HDF5's flags for the links and references that the copy follows.
        """
        is_path = isinstance(source, (str, bytes))
        if any_pending():
            found = self.get(source) if is_path else source
            if found is None:
                return  # h5py says so
            wait_for_file(found)
            del found  # HDF5 has no buffers of a dataset that only this call has opened
            if options:  # into any other open file
                kinds = h5py.h5f.OBJ_FILE | h5py.h5f.OBJ_DATASET
                for identifier in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, kinds):
                    check(lib.penstock_hdf5_settle(identifier.id))
        where, name = (self, source) if is_path else (source, b".")
        encoded = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
        properties = h5py.h5p.create(h5py.h5p.OBJECT_COPY)
        properties.set_copy_object(options)
        check(lib.penstock_object_prepare_copy(where.id.id, encoded, properties.id))

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
            return super().visititems(lambda name, item: func(name, _wrap(item, root)))

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


def _wrap(found: Any, file: File | None) -> Any:
    """Return a dataset or group of h5py as ours; anything else, such as a named type, as it is."""
    if type(found) is h5py.Dataset:
        return Dataset(found, file)
    return Group(found, file) if type(found) is h5py.Group else found


def _memory(data: Any, stream: int | None) -> arrays.View | None:
    """Return the memory of the data; ``None`` for values that only h5py converts."""
    if isinstance(data, np.ndarray) and (data.dtype.hasobject or data.dtype.kind in "UTM"):
        return None
    if isinstance(data, (str, bytes, list, tuple, bool, int, float, complex, np.generic)):
        return None
    try:
        found = arrays.view(data, stream)
    except IncompatibleError:
        # h5py has no types that torch has and NumPy lacks, and knows no DLPack.
        if frameworks.is_torch(data) or _has_only_dlpack(data):
            raise
        return None
    # h5py converts single values of the types that it has.
    is_known = found.framework == "numpy" and not found.dtype.is_extended
    return found if found.shape or not is_known or _has_only_dlpack(data) else None


def _is_brief(
    lengths: tuple[int, ...] | None,
    kind: Any,
    arguments: Set[str],
    nbytes: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any] | None,
) -> bool:
    """Whether HDF5 writes the data of a new dataset in less time than a native reader is opened.

    It does so for few numbers of the dataset's type, without options: HDF5 cannot sync what is in
    another file, and the library refuses that before it writes.
    """
    return (
        nbytes <= (small.BRIEF if _FILTERS & arguments else small.DECODED)
        and small.LIMIT > 0
        and not current()
        and "external" not in arguments
        and dtype is not None
        and dtype.isbuiltin == 1  # not a type that only ml_dtypes has
        and dtype.kind in "biufc"
        and kind in (None, dtype)
        and lengths in (None, shape)
    )


_FILTERS = {"compression", "dcpl", "fletcher32", "scaleoffset", "shuffle"}
"""Arguments of a dataset whose chunks may have filters, which workers apply at the same time."""


def _has_only_dlpack(data: Any) -> bool:
    """Whether NumPy makes no array of an object whose memory DLPack describes."""
    others = ("__array__", "__array_interface__", "__array_struct__", "__buffer__")
    return hasattr(data, "__dlpack__") and not any(hasattr(data, name) for name in others)


def _h5py_dtype(dtype: Any) -> Any:
    """Return a type that h5py accepts, also for types that only torch and ml_dtypes have."""
    if dtype is None or isinstance(dtype, (h5py.Datatype, h5py.h5t.TypeID)):
        return dtype
    try:
        element = dtype if isinstance(dtype, ElementType) else element_type(dtype)
    except IncompatibleError:
        return dtype  # h5py judges types of strings and objects
    special = memory_types.special_type(element.name)
    if special is not None:
        return h5py.Datatype(special)
    if element.is_extended:
        raise IncompatibleError(f"HDF5 has no data type {element.name}")
    return dtype if isinstance(dtype, np.dtype) else element.numpy


def _reshaped(data: Any, shape: tuple[int, ...]) -> Any:
    if not hasattr(data, "reshape"):
        raise InvalidError(
            f"a {type(data).__name__} cannot be reshaped to {shape}",
            remedy="leave the shape out, or give data of that shape",
        )
    return (in_c_order(data) if isinstance(data, np.ndarray) else data).reshape(shape)
