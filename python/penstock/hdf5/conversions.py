"""Conversions between the elements of a dataset and those of an array, each looked up once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np

from penstock._native import CData
from penstock.dtypes import ElementType, element_type
from penstock.errors import InvalidError
from penstock.hdf5 import memory_types
from penstock.hdf5.selection import field_dtype

if TYPE_CHECKING:
    from penstock.hdf5.cf import Decoding


class OnlyH5pyError(Exception):
    """The native library lacks what is asked for, and h5py has it. The text says why."""


class InMemory(NamedTuple):
    """The elements of an array."""

    element: ElementType
    """The type of an element, or of the elements of one that is itself an array."""
    inner: tuple[int, ...]
    """The shape of an element that is itself an array."""
    type: Any
    """The ``h5py.h5t.TypeID`` of an element."""
    rules: CData | None = None
    """The ``penstock_decoding``; ``None`` if HDF5's rules convert the elements."""


class Conversions:
    """Conversions of the elements of one type in files.

    Args:
        identifier: The ``h5py.h5d.DatasetID`` of a dataset with such elements. It is used once.
        how: How the elements are decoded.
    """

    def __init__(self, identifier: Any, how: Decoding | None = None) -> None:
        self._identifier: Callable[[], Any] = ref(identifier)
        self._kind: Any = None
        self._stored: np.dtype[Any] | None = None
        self._how = how
        self._known: dict[Any, InMemory | str] = {}
        """Conversions, and why there are none."""

    # functools.cached_property would hold a lock of its own (Python 3.11), for which a thread that
    # holds h5py's lock may wait.
    @property
    def kind(self) -> Any:
        """The ``h5py.h5t.TypeID`` of the elements: a copy, since the file's own keeps it open."""
        if self._kind is None:
            self._kind = self._identifier().get_type().copy()
        return self._kind

    @property
    def stored(self) -> np.dtype[Any]:
        """h5py's type of the elements."""
        if self._stored is None:
            self._stored = self.kind.dtype
        return self._stored

    def to_read(
        self,
        names: tuple[str, ...] = (),
        out: ElementType | None = None,
        dtype: Any = None,
        *,
        for_numpy: bool = True,
    ) -> InMemory:
        """Return the elements of an array that is read.

        Args:
            names: The fields to read; all if there are none.
            out: The type of elements of a given array.
            dtype: Otherwise, the type that the caller asks for; ``None`` for that of the dataset.
            for_numpy: Whether a new array is one of NumPy's, which has the byte order of the file.

        Raises:
            OnlyH5pyError: The library does not convert the elements so.
        """
        key = names, out, dtype, for_numpy
        wanted = dtype if out is None else out.numpy
        if isinstance(wanted, np.dtype) and not is_equal_to_equals(wanted):
            return self._to_read(*key)
        return self._once(key, self._to_read)

    def to_write(self, names: tuple[str, ...], array: ElementType) -> InMemory:
        """Return the elements of an array that is written to some fields, or to whole elements.

        Raises:
            OnlyH5pyError: The library does not convert the elements so.
        """
        if array.numpy is not None and not is_equal_to_equals(array.numpy):
            return self._to_write(names, array)
        return self._once((names, array), self._to_write)

    def _once(self, key: tuple[Any, ...], find: Callable[..., InMemory]) -> InMemory:
        try:
            found = self._known.get(key)
        except TypeError:  # the type of a structure that is no key
            return find(*key)
        if found is None:
            try:
                found = find(*key)
            except OnlyH5pyError as refused:
                found = str(refused)
            self._known[key] = found
        if isinstance(found, str):
            raise OnlyH5pyError(found)
        return found

    def _to_read(
        self, names: tuple[str, ...], out: ElementType | None, dtype: Any, for_numpy: bool
    ) -> InMemory:
        stored = self.field(names)
        if stored.hasobject:
            raise OnlyH5pyError(f"elements of type {stored} are stored elsewhere in the file")
        base, inner = stored.subdtype or (stored, ())
        if self._how is not None:
            return self._decoded(self._how, names)
        if out is None and dtype is None:
            out = element_type(base if for_numpy else base.newbyteorder("="))
        wanted = element_type(_of_elements(dtype, inner)) if out is None else out
        kind = memory_types.memory_type(wanted, base)
        if kind is not None:
            kind = memory_types.array_type(kind, inner)
            if len(names) == 1:
                kind = memory_types.field_type(kind, names[0])
        if not _converts(self.kind, kind, wanted, base):
            raise OnlyH5pyError(f"HDF5 has no conversion to {wanted.name}")
        if wanted.is_numpys(base):
            wanted = element_type(base)  # with the metadata of the stored type
        return InMemory(wanted, inner, kind)

    def _decoded(self, how: Decoding, names: tuple[str, ...]) -> InMemory:
        rules = None if names else how.rules(self.kind)
        if rules is None:
            raise OnlyH5pyError("only NumPy decodes such elements")
        element = element_type(how.dtype)
        return InMemory(element, (), memory_types.memory_type(element, how.dtype), rules)

    def _to_write(self, names: tuple[str, ...], array: ElementType) -> InMemory:
        field, dtype = self.field(names), array.numpy
        if field.hasobject:
            raise OnlyH5pyError(f"HDF5 converts values to {field}")
        is_opaque = self.stored.kind == "V" and self.stored.subdtype is None
        if is_opaque and not names and (dtype is None or dtype.kind != "V"):
            raise OnlyH5pyError(f"NumPy converts values of type {array.name} to {self.stored}")
        base, inner = field.subdtype or (field, ())
        kind = memory_types.memory_type(array, base)
        if kind is not None and names:
            if dtype is not None and dtype.names is not None:
                if set(dtype.names) - set(names):
                    raise OnlyH5pyError("the array has more fields than are written")
                kind, inner = memory_types.fields_type(dtype, names), ()
            elif len(names) == 1 and dtype == base and not inner:
                kind = memory_types.field_type(kind, names[0])
            else:
                raise OnlyH5pyError("NumPy converts the values of the fields")
        elif kind is not None:
            kind = memory_types.array_type(kind, inner)
        if not _converts(kind, self.kind, array, base):
            raise OnlyH5pyError(f"HDF5 has no conversion from {array.name}")
        return InMemory(array, inner, kind)

    def field(self, names: tuple[str, ...]) -> np.dtype[Any]:
        """Return h5py's type of some fields, or of the elements if there are no names."""
        return field_dtype(self.stored, names) if names else self.stored


def _converts(source: Any, target: Any, memory: ElementType, stored: np.dtype[Any]) -> bool:
    """Whether HDF5 converts from one type to another, if it has both."""
    return (
        source is not None
        and target is not None
        and not memory_types.needs_numpy(stored, memory.numpy)
        and memory_types.converts(source, target, memory)
    )


def is_equal_to_equals(dtype: np.dtype[Any]) -> bool:
    """Whether all types that NumPy takes for equal are: it compares them without metadata."""
    return not dtype.metadata and dtype.kind != "V"


def _of_elements(dtype: Any, inner: tuple[int, ...]) -> Any:
    """Return the type of the numbers, if a type of elements that are arrays is given."""
    if isinstance(dtype, (str, tuple)):
        with suppress(TypeError):  # the name of a type that NumPy lacks
            dtype = np.dtype(dtype)
    if not isinstance(dtype, np.dtype) or dtype.subdtype is None:
        return dtype
    base, shape = dtype.subdtype
    if shape != inner:
        raise InvalidError(f"elements of shape {inner} cannot become elements of shape {shape}")
    return base
