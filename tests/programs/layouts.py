"""Datasets of every layout, as a program describes them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from . import kinds, values
from .interfaces import hdf5
from .model import Dataset
from .program import Operation

PLUGINS = ("LZ4", "Zstd", "Blosc", "Blosc2", "Bitshuffle", "BZip2")
"""Filters of hdf5plugin, by the names of its classes."""
BUILT_IN = ("gzip", "lzf", "shuffle", "fletcher32", "szip", "scaleoffset", "nbit")
_BUILT_IN: dict[str, tuple[int, tuple[int, ...]]] = {
    "gzip": (h5py.h5z.FILTER_DEFLATE, (1,)),
    "lzf": (h5py.h5z.FILTER_LZF, ()),
    "shuffle": (h5py.h5z.FILTER_SHUFFLE, ()),
    "fletcher32": (h5py.h5z.FILTER_FLETCHER32, ()),
}
_FILL_TIME = {
    "ifset": h5py.h5d.FILL_TIME_IFSET,
    "alloc": h5py.h5d.FILL_TIME_ALLOC,
    "never": h5py.h5d.FILL_TIME_NEVER,
}
_STRATEGY = {
    "aggregate": h5py.h5f.FSPACE_STRATEGY_AGGR,
    "fsm": h5py.h5f.FSPACE_STRATEGY_FSM_AGGR,
    "page": h5py.h5f.FSPACE_STRATEGY_PAGE,
    "none": h5py.h5f.FSPACE_STRATEGY_NONE,
}
_ALLOCATION = {
    "early": h5py.h5d.ALLOC_TIME_EARLY,
    "late": h5py.h5d.ALLOC_TIME_LATE,
    "incr": h5py.h5d.ALLOC_TIME_INCR,
}


def model(operation: Operation) -> Dataset:
    """The values of a new dataset."""
    shape, dtype = tuple(operation["shape"]), kinds.dtype(operation["dtype"])
    fill = 0 if operation["layout"] == "external" else _fill(operation)
    if operation["seed"] is not None:
        narrow = kinds.is_narrow(operation["dtype"])
        made = values.make(operation["seed"], shape, dtype, narrow=narrow)
    else:
        made = kinds.filled(shape, fill, dtype)
    dataset = Dataset(made, fill, operation)
    if not _is_filled(operation):
        dataset.unknown = np.full(shape, operation["seed"] is None, kinds.flags(dtype))
    return dataset


def _is_filled(operation: Operation) -> bool:
    """Whether unwritten elements have the fill value."""
    if operation.get("fill_time") == "never" or operation.get("fill_is") == "undefined":
        return False
    # HDF5 does not write the default fill value to storage that it allocates as a whole, which may
    # have been used before.
    is_whole = operation["layout"] == "contiguous" or (
        operation["layout"] == "chunked" and operation["alloc"] != "incr"
    )
    if not is_whole:
        return True
    if operation.get("fill_time") == "alloc":
        # HDF5 2.0 itself leaves the fill value out where the first write is of all records, also if
        # it is of some of their members only.
        return operation["alloc"] == "early" or not kinds.dtype(operation["dtype"]).names
    kind = kinds.dtype(operation["dtype"])
    is_defined = operation.get("fill_is", "defined") == "defined"
    return kind.hasobject or (is_defined and kinds.is_number(operation["dtype"]))


def _fill(operation: Operation) -> Any:
    is_defined = operation.get("fill_is", "defined") == "defined"
    return operation["fill"] if is_defined and kinds.is_number(operation["dtype"]) else 0


def arguments(operation: Operation, folder: Path) -> dict[str, Any]:
    """The arguments of h5py.Group.create_dataset, without name and data."""
    shape, dtype = tuple(operation["shape"]), kinds.dtype(operation["dtype"])
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made: dict[str, Any] = {"shape": shape, "dtype": kinds.stored(operation["dtype"])}
    made["dcpl"] = properties
    layout = operation["layout"]
    properties.set_fill_time(_FILL_TIME[operation.get("fill_time", "ifset")])
    if layout == "external":
        raw = folder / f"{operation['name']}.raw"
        nbytes = math.prod(shape) * dtype.itemsize
        raw.write_bytes(bytes(nbytes))
        made["external"] = [(str(raw), 0, nbytes)]
        return made
    if operation.get("fill_is") == "undefined":
        hdf5.check(hdf5.library.H5Pset_fill_value(properties.id, h5py.h5t.STD_I32LE.id, None))
    elif operation.get("fill_is", "defined") == "defined" and kinds.is_number(operation["dtype"]):
        made["fillvalue"] = operation["fill"]
    if layout == "compact":
        properties.set_layout(h5py.h5d.COMPACT)
        return made
    if layout == "contiguous":
        if operation["alloc"] == "early":
            properties.set_alloc_time(_ALLOCATION["early"])
        return made
    properties.set_alloc_time(_ALLOCATION[operation["alloc"]])
    made["chunks"] = chunks = tuple(operation["chunks"])
    if operation.get("maxshape"):
        made["maxshape"] = tuple(operation["maxshape"])
    for name in operation["filters"]:
        _add_filter(properties, name, operation["dtype"], math.prod(chunks))
    return made


def _add_filter(properties: Any, name: str, dtype: str, elements: int) -> None:
    """Add a filter, an optional one if its name ends with a question mark.

    Filters that fail if they would not make a chunk shorter are always optional, as in h5py.
    """
    is_optional = name.endswith("?") or name in (*PLUGINS, "lzf")
    flags = h5py.h5z.FLAG_OPTIONAL if is_optional else h5py.h5z.FLAG_MANDATORY
    name = name.removesuffix("?")
    kind = kinds.dtype(dtype)
    if name == "szip":
        # Of single bytes HDF5 cannot read back all that it has written. And it leaves the
        # filter mask as it is where an encoded chunk, as long as its elements, takes the place
        # of one that could not be encoded: the fewer elements, the likelier.
        able = h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP) and kind.itemsize > 1
        if able and elements >= 2048 and kinds.is_number(dtype) and not properties.get_nfilters():
            properties.set_szip(h5py.h5z.SZIP_NN_OPTION_MASK, 8)
    elif name in ("scaleoffset", "nbit"):
        if kinds.is_number(dtype) and kind.kind in "iu" and not properties.get_nfilters():
            if name == "nbit":
                properties.set_filter(h5py.h5z.FILTER_NBIT, flags)
            else:
                properties.set_scaleoffset(h5py.h5z.SO_INT, 0)
    elif name in _BUILT_IN:
        number, values = _BUILT_IN[name]
        properties.set_filter(number, flags, values)
    else:
        import hdf5plugin

        chosen = dict(getattr(hdf5plugin, name)())
        values = tuple(chosen.get("compression_opts") or ())
        properties.set_filter(chosen["compression"], flags, values)


def make_file(path: Path, libver: str, about: dict[str, Any]) -> None:
    """An empty file, with the properties that only its creation sets."""
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_userblock(about.get("userblock", 0))
    creation.set_sizes(about.get("width", 8), 8)  # of addresses, and of lengths
    strategy = about.get("strategy", "fsm")
    creation.set_file_space_strategy(_STRATEGY[strategy], about.get("persist", False), 1)
    if strategy == "page":
        creation.set_file_space_page_size(about.get("page_size", 4096))
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    low, high = _VERSIONS[libver], h5py.h5f.LIBVER_LATEST
    access.set_libver_bounds(low, high)
    h5py.h5f.create(bytes(path), fapl=access, fcpl=creation).close()


_VERSIONS = {
    "earliest": h5py.h5f.LIBVER_EARLIEST,
    "v108": h5py.h5f.LIBVER_V18,
    "v110": h5py.h5f.LIBVER_V110,
    "latest": h5py.h5f.LIBVER_LATEST,
}


def make_virtual(
    file: h5py.File, folder: Path, operation: Operation, sources: list[Dataset]
) -> None:
    """One source after the other along the first dimension."""
    rows = sum(source.shape[0] for source in sources)
    first = sources[0]
    layout = h5py.VirtualLayout((rows, *first.shape[1:]), first.dtype)
    start = 0
    for name, source in zip(operation["sources"], sources, strict=True):
        where = "." if source.kind["file"] == "main" else str(folder / f"{source.kind['file']}.h5")
        stop = start + source.shape[0]
        layout[start:stop] = h5py.VirtualSource(where, name, source.shape)
        start = stop
    file.create_virtual_dataset(operation["name"], layout, fillvalue=0)
