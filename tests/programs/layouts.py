"""Datasets of every layout, as a program describes them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from . import values
from .model import Dataset
from .program import Operation

_ALLOCATION = {
    "early": h5py.h5d.ALLOC_TIME_EARLY,
    "late": h5py.h5d.ALLOC_TIME_LATE,
    "incr": h5py.h5d.ALLOC_TIME_INCR,
}


def model(operation: Operation) -> Dataset:
    """What a new dataset holds."""
    shape, dtype = tuple(operation["shape"]), np.dtype(operation["dtype"])
    if operation["seed"] is not None:
        made = values.make(operation["seed"], shape, dtype)
    else:
        fill = 0 if operation["layout"] == "external" else operation["fill"]
        made = np.full(shape, fill, dtype)
    return Dataset(made, operation["fill"], operation)


def arguments(operation: Operation, folder: Path) -> dict[str, Any]:
    """What h5py.Group.create_dataset takes for it, besides name and data."""
    shape, dtype = tuple(operation["shape"]), np.dtype(operation["dtype"])
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made: dict[str, Any] = {"shape": shape, "dtype": dtype, "dcpl": properties}
    layout = operation["layout"]
    if layout == "external":
        raw = folder / f"{operation['name']}.raw"
        nbytes = math.prod(shape) * dtype.itemsize
        raw.write_bytes(bytes(nbytes))
        made["external"] = [(str(raw), 0, nbytes)]
        return made
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
        if name == "gzip":
            made |= {"compression": "gzip", "compression_opts": 1}
        elif name == "lzf":
            made["compression"] = "lzf"
        elif name == "szip":
            # Of single bytes HDF5 cannot read back all that it has written. And it leaves the
            # filter mask as it is where an encoded chunk, as long as its elements, takes the place
            # of one that could not be encoded: the fewer elements, the likelier.
            able = h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP) and dtype.itemsize > 1
            if able and math.prod(chunks) >= 2048:
                made["compression"] = "szip"
        else:
            made[name] = True
    return made


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
