"""Attributes as xarray's netCDF4 engine gives them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

HIDDEN: Final = frozenset(
    {
        "CLASS",
        "DIMENSION_LIST",
        "NAME",
        "REFERENCE_LIST",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
    }
)
"""Attributes by which netCDF-4 stores its data model."""


def names_of(identifier: Any) -> list[str]:
    """Return the names of an object's attributes: in the order of creation where HDF5 keeps it."""
    from h5py import h5, h5a, h5p

    order = identifier.get_create_plist().get_attr_creation_order()
    is_tracked = order & h5p.CRT_ORDER_TRACKED
    found: list[bytes] = []
    h5a.iterate(
        identifier,
        lambda name: found.append(name),  # another result than None would end the iteration
        index_type=h5.INDEX_CRT_ORDER if is_tracked else h5.INDEX_NAME,
    )
    return [name.decode("utf-8", "surrogateescape") for name in found]


def visible(identifier: Any, names: list[str]) -> dict[str, Any]:
    """Return the attributes that netCDF shows.

    References are left out: they are meaningless without the file.
    """
    found = {}
    for name in names:
        if name not in HIDDEN and (value := read(identifier, name)) is not None:
            found[name] = value
    return found


def read(identifier: Any, name: str) -> Any:
    """Return the value of an attribute; ``None`` for one that holds references.

    A text is a string, several are a list, one number is a scalar of NumPy, and several are an
    array, all in the byte order of the machine.
    """
    from h5py import h5a, h5s, h5t

    attribute = h5a.open(identifier, name.encode("utf-8", "surrogateescape"))
    kind = attribute.get_type()
    is_null = attribute.get_space().get_simple_extent_type() == h5s.NULL
    if kind.get_class() == h5t.STRING:
        return _text(attribute, kind, name, is_null=is_null)
    if kind.get_class() == h5t.REFERENCE:
        return None
    if is_null:
        return np.empty(0, attribute.dtype.newbyteorder("="))
    values = raw(attribute)
    if values.dtype.kind in "iufc":
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return values.reshape(-1)[0] if values.size == 1 else values


def raw(attribute: Any) -> np.ndarray[Any, Any]:
    """Return the elements of an ``h5py.h5a.AttrID`` as h5py reads them."""
    dtype = attribute.dtype
    base, inner = dtype.subdtype or (dtype, ())
    values = np.zeros(attribute.shape + inner, base)
    attribute.read(values, mtype=attribute.get_type() if inner else None)
    return values


def _text(attribute: Any, kind: Any, name: str, *, is_null: bool) -> Any:
    # netCDF takes fixed-length strings without dimensions for one string of characters, else for
    # strings.
    is_characters = not kind.is_variable_str() and attribute.shape == ()
    if is_null:
        return [] if kind.is_variable_str() else ""
    values = raw(attribute)
    if is_characters and name == "_FillValue":
        return np.bytes_(values[()])
    texts = [_decoded(value) for value in values.flat]
    return texts[0] if len(texts) == 1 else texts


def _decoded(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.replace("\0", "")
