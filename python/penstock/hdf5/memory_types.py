"""HDF5 types of elements in memory, and the lists of variable length among them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from penstock.dtypes import ElementType
from penstock.errors import IncompatibleError
from penstock.hdf5.library import lock

# Floats for which h5py has no type: length in bytes; position of the sign bit; position, length and
# bias of the exponent; length of the mantissa, which starts at bit 0.
_FLOATS = {
    "bfloat16": (2, 15, 7, 8, 127, 7),
    "float8_e4m3": (1, 7, 3, 4, 7, 3),
    "float8_e4m3fn": (1, 7, 3, 4, 7, 3),
    "float8_e5m2": (1, 7, 2, 5, 15, 2),
}


def memory_type(element: ElementType, stored: np.dtype[Any]) -> Any:
    """Return the HDF5 type of an element, an ``h5py.h5t.TypeID``; ``None`` if HDF5 has none.

    ``stored`` is h5py's type of the dataset. An array of the same type may lack its metadata (an
    enumeration, the encoding of a string, a tag), so the metadata of ``stored`` are used.
    """
    import h5py

    special = special_type(element.name)
    if special is not None:
        return special
    if element.numpy is None or element.is_extended:
        return None
    if element.numpy.names == ():  # HDF5 crashes on a conversion of no fields
        raise IncompatibleError("the elements in memory are structures without fields")
    try:
        if element.numpy.kind in "iufc" and (element.numpy != stored or not stored.metadata):
            return _number(element.numpy.str)
        return h5py.h5t.py_create(stored if element.numpy == stored else element.numpy)
    except TypeError:
        return None


@lru_cache(maxsize=64)
def _number(name: str) -> Any:
    import h5py

    return h5py.h5t.py_create(np.dtype(name))


def special_type(name: str) -> Any:
    """Return the HDF5 type of this name if h5py has no type for it, else ``None``."""
    if name not in _FLOATS and name != "complex32":
        return None
    import h5py

    if name in _FLOATS:
        size, sign, exponent, exponent_length, bias, mantissa_length = _FLOATS[name]
        made = h5py.h5t.IEEE_F16LE.copy()
        made.set_fields(sign, exponent, exponent_length, 0, mantissa_length)
        made.set_size(size)
        made.set_precision(8 * size)
        made.set_ebias(bias)
        return made
    half = h5py.h5t.py_create(np.dtype("f2"))
    pair = h5py.h5t.create(h5py.h5t.COMPOUND, 4)
    for offset, part in zip((0, 2), h5py.get_config().complex_names, strict=True):
        pair.insert(part.encode(), offset, half)
    return pair


def array_type(element: Any, shape: tuple[int, ...]) -> Any:
    """Return the type of an element that is itself an array."""
    import h5py

    return h5py.h5t.array_create(element, shape) if shape else element


def field_type(element: Any, name: str) -> Any:
    """Return a compound type that has only this field, at offset 0."""
    import h5py

    compound = h5py.h5t.create(h5py.h5t.COMPOUND, element.get_size())
    compound.insert(name.encode(), 0, element)
    return compound


def fields_type(dtype: np.dtype[Any], names: tuple[str, ...]) -> Any:
    """Return the compound type of some fields of a structure, at their offsets in it.

    ``None`` if it has none of them: HDF5 crashes on a conversion of no fields.
    """
    import h5py

    if dtype.fields is None or not set(names) & set(dtype.fields):
        return None
    compound = h5py.h5t.create(h5py.h5t.COMPOUND, dtype.itemsize)
    for name in dtype.names or ():
        if name in names:
            kind, offset = dtype.fields[name][:2]
            compound.insert(name.encode(), offset, h5py.h5t.py_create(kind))
    return compound


def has_gaps(dtype: np.dtype[Any]) -> bool:
    """Whether a structure has bytes that belong to no field, as a view of some fields has."""
    dtype = dtype.base
    if dtype.names is None:
        return False
    fields = [dtype[name] for name in dtype.names]
    return sum(field.itemsize for field in fields) < dtype.itemsize or any(map(has_gaps, fields))


def needs_numpy(source: np.dtype[Any], target: np.dtype[Any] | None) -> bool:
    """Whether only NumPy converts numbers of one type to the other correctly.

    HDF5 has no conversion between real and complex numbers. It stores booleans as an enumeration,
    to which it converts no float, and to which it copies the bytes of an integer unchanged: they
    are then neither true nor false.
    """
    if target is None or {source.kind, target.kind} - set("biufc"):
        return False
    return any((source.kind == kind) != (target.kind == kind) for kind in "bc")


def converts(source: Any, target: Any, memory: ElementType) -> bool:
    """Whether HDF5 can convert between two types, one of which is that of ``memory``.

    HDF5 cannot describe a float without infinities: it takes the largest numbers for those and NaN.
    It copies the bytes of such floats, but converts them wrongly. Of structures without a common
    field it converts nothing.
    """
    import h5py

    is_convertible = memory.name != "float8_e4m3fn" and h5py.h5t.find(source, target) is not None
    return source.equal(target) or (is_convertible and not _are_apart(source, target))


def _are_apart(*kinds: Any) -> bool:
    """Whether two types are structures without a common field."""
    import h5py

    if not all(isinstance(kind, h5py.h5t.TypeCompoundID) for kind in kinds):
        return False
    first, second = ({*map(kind.get_member_name, range(kind.get_nmembers()))} for kind in kinds)
    return first.isdisjoint(second)


def has_narrow_integers(kind: Any) -> bool:
    """Whether HDF5 may convert integers of a type wrongly: their bits fill only the lower end.

    It only reverses the bytes of integers of the same size in the other byte order. The library has
    HDF5 convert them in two steps, h5py does not.

    Args:
        kind: The ``h5py.h5t.TypeID`` of a dataset.
    """
    import h5py

    if isinstance(kind, h5py.h5t.TypeCompoundID):
        members = map(kind.get_member_type, range(kind.get_nmembers()))
        return any(map(has_narrow_integers, members))
    if isinstance(kind, (h5py.h5t.TypeArrayID, h5py.h5t.TypeEnumID)):
        return has_narrow_integers(kind.get_super())
    # h5py has no method for the bits of a bit field.
    return isinstance(kind, h5py.h5t.TypeBitfieldID) or (
        isinstance(kind, h5py.h5t.TypeIntegerID)
        and kind.get_offset() == 0
        and kind.get_precision() < 8 * kind.get_size()
    )


def is_numpys(kind: Any, dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a type of HDF5 have the bits of h5py's type for them.

    Those of bfloat16 are not the bits of float32, nor those of 12-bit integers those of int16.
    """
    import h5py

    return bool(kind.equal(h5py.h5t.py_create(dtype)))


def in_order_of(memory: np.dtype[Any], kind: Any) -> np.dtype[Any]:
    """Return a type with the byte order of the file for what is stored as narrow integers.

    HDF5 converts these rightly to and from this type, and NumPy reverses the bytes. Other numbers
    keep their order: what HDF5 makes of them depends on it.

    Args:
        memory: The type of elements in memory.
        kind: Their ``h5py.h5t.TypeID`` in the file. Fields are matched by name.
    """
    import h5py

    if not has_narrow_integers(kind):
        return memory
    if memory.subdtype is not None:
        base, shape = memory.subdtype
        return np.dtype((in_order_of(base, kind), shape))
    if isinstance(kind, h5py.h5t.TypeArrayID):
        return in_order_of(memory, kind.get_super())
    if not isinstance(kind, h5py.h5t.TypeCompoundID):
        return memory.newbyteorder(kind.dtype.byteorder) if memory.kind in "iu" else memory
    if memory.names is None:
        return memory
    stored = [kind.get_member_name(at).decode() for at in range(kind.get_nmembers())]
    formats = [
        in_order_of(memory[name], kind.get_member_type(stored.index(name)))
        if name in stored
        else memory[name]
        for name in memory.names
    ]
    return with_formats(memory, formats)


def with_formats(structure: np.dtype[Any], formats: list[np.dtype[Any]]) -> np.dtype[Any]:
    """Return a structure whose fields have other types of the same sizes, at their offsets."""
    names, fields = structure.names or (), structure.fields
    assert fields is not None
    return np.dtype(
        {
            "names": names,
            "formats": formats,
            "offsets": [fields[name][1] for name in names],
            "itemsize": structure.itemsize,
        }
    )


def field_kind(kind: Any, names: tuple[str, ...]) -> Any:
    """Return the type of one field, or ``kind`` itself for no field or several."""
    if len(names) != 1:
        return kind
    return kind.get_member_type(kind.get_member_index(names[0].encode()))


def has_lists(kind: Any) -> bool:
    """Whether elements of an HDF5 type hold lists, other than strings."""
    import h5py

    return bool(kind.detect_class(h5py.h5t.VLEN))


def correct_lists(found: Any, stored: np.dtype[Any]) -> None:
    """Turn lists that h5py has read into those of the file, in place.

    h5py (3.16) returns the bytes of numbers in the other byte order than the machine's in arrays of
    the machine's order, so other numbers.

    Args:
        found: An array of elements, or one element.
        stored: h5py's type of the elements.
    """
    if has_wrong_lists(stored):
        _swap(found, stored)


def has_wrong_lists(stored: np.dtype[Any]) -> bool:
    """Whether h5py reads elements of its type ``stored`` with lists that are to be corrected."""
    return _has_swapped(stored) and _leaves_bytes()


def _of_list(stored: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the type of what a list holds; ``None`` for other types, strings among them."""
    found = None if stored.metadata is None else stored.metadata.get("vlen")
    return found if isinstance(found, np.dtype) else None


def _has_swapped(stored: np.dtype[Any]) -> bool:
    base = stored.base
    if base.names is not None:
        return any(_has_swapped(base[name]) for name in base.names)
    held = _of_list(base)
    if held is None:
        return False
    return _has_swapped(held) or (held.kind in "iufc" and not held.isnative)


def _swap(found: Any, stored: np.dtype[Any]) -> None:
    base = stored.base
    if base.names is not None:
        for name in base.names:
            if _has_swapped(base[name]):
                _swap(found[name], base[name])
    elif (held := _of_list(base)) is not None and isinstance(found, np.ndarray):
        if found.dtype.names is not None:
            _swap(found, held)
        elif found.dtype.hasobject:
            for one in found.flat:
                _swap(one, base)
        else:
            found.byteswap(inplace=True)


@lru_cache(maxsize=1)
def _leaves_bytes() -> bool:
    """Whether the h5py in use returns the bytes of the file, by a list that is in memory alone."""
    import h5py

    other = np.dtype(np.int16).newbyteorder()
    with lock(), h5py.File("penstock", "w", driver="core", backing_store=False) as file:
        lists = file.create_dataset("lists", (1,), h5py.vlen_dtype(other))
        lists[0] = np.ones(1, other)
        return bool(lists[0][0] != 1)
