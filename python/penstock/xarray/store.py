"""xarray's variables of a group of a file."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from xarray import Variable
from xarray.backends.common import AbstractDataStore
from xarray.coding.strings import create_vlen_dtype
from xarray.coding.variables import CFMaskCoder, CFScaleOffsetCoder
from xarray.core.indexing import LazilyIndexedArray

from penstock.hdf5 import cf, small
from penstock.placement import Device
from penstock.xarray.array import (
    LazyArray,
    LazyStrings,
    PaddedArray,
    ThreadedArray,
    is_text,
    type_in_lists,
)
from penstock.xarray.files import OpenFile
from penstock.xarray.group import Group, Stored

_TIME_UNITS: Final = {
    "days",
    "hours",
    "minutes",
    "seconds",
    "milliseconds",
    "microseconds",
    "nanoseconds",
}
_RELATED: Final = (
    "bounds",
    "grid_mapping",
    "climatology",
    "geometry",
    "node_coordinates",
    "node_count",
    "part_node_count",
    "interior_ring",
    "cell_measures",
    "formula_terms",
)
"""Attributes that name variables, which are coordinates with ``decode_coords="all"``."""
_DEFLATE, _SHUFFLE, _FLETCHER32, _SZIP, _BZIP2, _LZF, _BLOSC = 1, 2, 3, 4, 307, 32000, 32001
_BY_LEVEL: Final = {_DEFLATE: "zlib", _BZIP2: "bzip2", 32015: "zstd"}
"""Filters whose first parameter is their level."""
_BLOSC_COMPRESSORS: Final = ("lz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_SZIP_NEAREST_NEIGHBOUR: Final = 32


class Options(NamedTuple):
    """What :meth:`Store.get_variables` depends on."""

    device: Device = None
    """Where data variables go; ``None`` for NumPy arrays."""
    mask_and_scale: bool | Mapping[str, bool] = True
    decode_coords: bool | str = True
    without: frozenset[str] = frozenset()
    """The names of variables that xarray leaves out, after it has used them to decode others."""


class Store(AbstractDataStore):  # type: ignore[misc, unused-ignore]
    """A group of a file that xarray's file manager opens.

    Args:
        manager: The file manager, of :class:`penstock.xarray.files.OpenFile`.
        group: The path of the group.
        options: How its variables are read.
    """

    __slots__ = ("_group", "_manager", "_options")

    def __init__(self, manager: Any, group: str | None, options: Options) -> None:
        self._manager = manager
        self._group = group or "/"
        self._options = options

    def get_variables(self) -> dict[str, Variable]:
        """Return the variables; of data variables, packed numbers are decoded as they are read."""
        with self._manager.acquire_context() as file:
            found = self._found(file)
            stored = found.variables(self._options.without)
            hosted = self._hosted(found, stored) if self._options.device is not None else None
            return {one.name: self._variable(one, file.name, hosted) for one in stored}

    def get_attrs(self) -> dict[str, Any]:
        """Return the attributes of the group."""
        with self._manager.acquire_context() as file:
            return self._found(file).attributes()

    def get_dimensions(self) -> dict[str, int]:
        """Return the sizes of the dimensions."""
        with self._manager.acquire_context() as file:
            return {name: one.size for name, one in self._found(file).dimensions.items()}

    def get_parent_dimensions(self) -> dict[str, int]:
        """Return the sizes of the dimensions of the parents."""
        with self._manager.acquire_context() as file:
            parent = self._found(file).parent
            known = parent.all_dimensions if parent else {}
            return {name: one.size for name, one in known.items()}

    def get_encoding(self) -> dict[str, Any]:
        """Return the names of the unlimited dimensions."""
        with self._manager.acquire_context() as file:
            known = self._found(file).dimensions
            return {"unlimited_dims": {name for name, one in known.items() if one.is_unlimited}}

    def paths_below(self) -> list[str]:
        """Return the paths of this group and of all below it, each before those below it."""
        with self._manager.acquire_context() as file:
            return list(file.paths_below(self._group))

    def child(self, path: str) -> Store:
        """Return another group of the same file."""
        return Store(self._manager, path, self._options)

    def close(self) -> None:
        """Close the file."""
        self._manager.close()

    def _found(self, file: OpenFile) -> Group:
        return file.group(self._group)

    def _hosted(self, group: Group, stored: list[Stored]) -> set[str]:
        """Return the names of what stays on the host: coordinates, and the bounds of times.

        xarray decodes these bounds by the units of the times, also of those that are dropped.
        """
        names = set(group.all_dimensions)
        times = (one.attributes for one in stored if _is_time(one.attributes))
        names.update(str(attributes["bounds"]) for attributes in times if "bounds" in attributes)
        keys = ["coordinates"] if self._options.decode_coords else []
        if self._options.decode_coords == "all":
            keys += _RELATED
        kept = (one.attributes for one in stored if one.name not in self._options.without)
        for attributes in (group.attributes(), *kept):
            for key in keys:
                names.update(str(attributes.get(key, "")).replace(":", " ").split())
        return names

    def _variable(self, stored: Stored, source: str, hosted: set[str] | None) -> Variable:
        encoding = _encoding(stored) | {"source": source, "original_shape": stored.shape}
        attributes = dict(stored.attributes)
        if "least_significant_digit" in attributes:
            encoding["least_significant_digit"] = attributes.pop("least_significant_digit")
        is_padded = stored.shape != stored.extent
        is_plain = stored.dtype.kind in "iuf" and not is_padded and not _is_time(attributes)
        fits_gpu = stored.dtype.kind in "biufc" and not is_padded and not _is_time(attributes)
        is_on_host = hosted is None or stored.name in hosted or not fits_gpu
        array = _array_class(stored)(
            self._manager,
            stored.path,
            stored.shape,
            stored.dtype,
            _type_in_memory(stored.dtype),
            is_brief=is_on_host and not is_padded and _is_brief(stored),
            device=None if is_on_host else self._options.device,
        )
        variable = Variable(stored.dimensions, LazilyIndexedArray(array), attributes, encoding)
        if not is_plain or stored.name in self._options.without:
            return variable
        return self._decoded(variable, array, stored)

    def _decoded(self, variable: Variable, array: LazyArray, stored: Stored) -> Variable:
        """Return a variable whose numbers are decoded while they are read.

        xarray's coders give its attributes and encoding, and warn.
        """
        wanted = self._options.mask_and_scale
        if isinstance(wanted, Mapping):
            wanted = wanted.get(stored.name, True)
        if not wanted or variable.attrs.keys().isdisjoint(cf.NAMES):
            return variable
        coded = variable.copy(deep=False)  # the coders change the attributes
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            for coder in (CFMaskCoder(), CFScaleOffsetCoder()):
                coded = coder.decode(coded, name=stored.name)
        data: LazyArray | None = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the coders have warned
                decoding = cf.decoding(stored.attributes, stored.dtype, name=stored.name)
            data = array if decoding is None else array.decoded(decoding)
        except (TypeError, ValueError, OverflowError, KeyError):
            pass  # xarray raises it when the variable is read
        if data is not None and data.dtype == coded.dtype:
            for one in raised:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
            return Variable(coded.dims, LazilyIndexedArray(data), coded.attrs, coded.encoding)
        # xarray's arithmetic is that of NumPy. Its coders warn when it decodes the variable.
        on_host = LazilyIndexedArray(array.on_host())
        return Variable(variable.dims, on_host, variable.attrs, variable.encoding)


def _array_class(stored: Stored) -> type[LazyArray]:
    if stored.shape != stored.extent:
        return PaddedArray
    if is_text(stored.dtype):
        return LazyStrings
    return ThreadedArray if stored.dtype.hasobject else LazyArray


def _type_in_memory(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if is_text(dtype):
        found: np.dtype[Any] = create_vlen_dtype(str)  # type: ignore[no-untyped-call, unused-ignore]
        return found
    # As the netCDF4 engine says: xarray would take the first list of objects for one object.
    dtype = type_in_lists(dtype) or dtype
    return dtype.newbyteorder("=") if dtype.kind in "iufc" else dtype


def _is_brief(stored: Stored) -> bool:
    """Whether HDF5 alone reads all elements in the time of a small read."""
    nbytes = math.prod(stored.shape) * stored.dtype.itemsize
    is_small = stored.dtype.kind in "iuf" and nbytes <= small.BRIEF
    return is_small and stored.filters.keys() <= {_DEFLATE, _SHUFFLE, _FLETCHER32}


def _is_time(attributes: Mapping[str, Any]) -> bool:
    """Whether xarray may decode numbers as times, which stay on the host."""
    units = attributes.get("units")
    is_unit = isinstance(units, str) and ("since" in units or units in _TIME_UNITS)
    return is_unit or str(attributes.get("dtype", "")).startswith(("timedelta64", "datetime64"))


def _encoding(stored: Stored) -> dict[str, Any]:
    """Return how a variable is stored, in the words of xarray's h5netcdf engine."""
    found: dict[str, Any] = {"dtype": str if is_text(stored.dtype) else stored.dtype}
    if stored.enum_name is not None:
        assert stored.dtype.metadata is not None
        values = stored.dtype.metadata["enum"]
        metadata = {"enum": values, "enum_name": stored.enum_name}
        found["dtype"] = np.dtype(stored.dtype, metadata=metadata)
    found["contiguous"] = stored.chunks is None
    found["chunksizes"] = stored.chunks
    if stored.chunks is not None:
        found["preferred_chunks"] = dict(zip(stored.dimensions, stored.chunks, strict=True))
    return found | _filters(stored.filters)


def _filters(filters: dict[int, tuple[int, ...]]) -> dict[str, Any]:
    """Return the filters by netCDF's names, and those of h5py that netCDF lacks."""
    found: dict[str, Any] = {name: number in filters for number, name in _BY_LEVEL.items()}
    found |= {"szip": False, "blosc": False}
    for number in filters.keys() & _BY_LEVEL.keys():
        if filters[number]:
            found["complevel"] = filters[number][0]
    match filters.get(_BLOSC):
        case (_, _, _, _, level, shuffle, compressor, *_) if compressor < len(_BLOSC_COMPRESSORS):
            name = f"blosc_{_BLOSC_COMPRESSORS[compressor]}"
            found |= {"blosc": {"compressor": name, "shuffle": shuffle}, "complevel": level}
    match filters.get(_SZIP):
        case (mask, pixels, *_):
            coding = "nn" if mask & _SZIP_NEAREST_NEIGHBOUR else "ec"
            found["szip"] = {"coding": coding, "pixels_per_block": pixels}
    if _LZF in filters:
        found |= {"compression": "lzf", "compression_opts": None}
    found["shuffle"] = _SHUFFLE in filters
    found["fletcher32"] = _FLETCHER32 in filters
    return found
