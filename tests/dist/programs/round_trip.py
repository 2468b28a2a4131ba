"""Ranks write datasets together and read them back; rank 0 compares with h5py's serial read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from places import on_device, on_host

from penstock.dist import mpi, partition

try:
    import hdf5plugin
except ModuleNotFoundError:  # HDF5_PLUGIN_PATH has the filters
    LZ4: dict[str, Any] = {"compression": 32004}
    ZSTD: dict[str, Any] = {"compression": 32015}
else:
    LZ4, ZSTD = dict(hdf5plugin.LZ4()), dict(hdf5plugin.Zstd())

CHUNKED: dict[str, Any] = {"chunks": (16, 10)}
ROWS: dict[str, Any] = {"chunks": (1, 20)}
CASES: dict[str, list[tuple[tuple[int, ...], str, dict[str, Any]]]] = {
    "shapes": [
        ((101, 37), "f4", {}),
        ((101, 37), "f4", CHUNKED),
        ((3, 50), "i8", {}),  # fewer rows than ranks
        ((3, 50), "i8", ROWS),
        ((1, 1), "u1", {}),
        ((0, 7), "f4", {}),
        ((0, 7), "f4", {"chunks": (2, 3), "maxshape": (None, 7)}),
        ((), "f8", {}),
        ((5,), "i2", {"chunks": (2,)}),
        ((9, 8, 7), "f4", {"chunks": (4, 3, 7)}),
        ((40, 10), "f4", {"chunks": (16, 10), "maxshape": (None, 10)}),
        ((40, 10), "f4", {"chunks": True}),
        ((40, 10), "f4", {"chunks": (16, 10), "fillvalue": 7}),
    ],
    "types": [
        ((101, 37), ">f4", {}),
        ((101, 37), ">i2", CHUNKED),
        ((50, 10), "c8", {}),
        ((50, 10), "?", CHUNKED),
        ((50,), "S5", {}),
        ((50,), "f2", {"chunks": (8,)}),
    ],
    "filters": [
        ((101, 37), "f4", {**CHUNKED, "compression": "gzip"}),
        ((101, 37), "f4", {**CHUNKED, "compression": "gzip", "shuffle": True}),
        ((101, 37), "i4", {**CHUNKED, "compression": "lzf", "fletcher32": True}),
        ((101, 37), ">f8", {**CHUNKED, "compression": "gzip", "compression_opts": 1}),
        ((101, 37), "f4", {**CHUNKED, **ZSTD}),
        ((101, 37), "f4", {**CHUNKED, **LZ4}),
        ((3, 50), "i8", {**ROWS, "compression": "gzip"}),
        ((0, 7), "f4", {"chunks": (2, 3), "maxshape": (None, 7), "compression": "gzip"}),
        ((101, 37), "i4", {**CHUNKED, "scaleoffset": 0}),
        ((101, 37), "f4", {"compression": "gzip"}),
    ],
}


def contents(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 211
    if dtype.kind == "c":
        return (numbers + 1j * numbers[::-1]).astype(dtype)
    if dtype.kind == "b":
        return numbers % 3 == 0
    return numbers.astype(dtype)


def run(comm: Any, folder: Path, device: str, group: str) -> None:
    """Carry out the cases of a group with arrays on a device."""

    for number, (shape, name, keys) in enumerate(CASES[group]):
        dtype = np.dtype(name)
        if device != "cpu" and dtype.kind in "Sb":
            continue
        path = folder / f"{group}{number}.h5"
        whole = contents(shape, dtype)
        native = dtype if dtype.kind in "Sb" else dtype.newbyteorder("=")
        with mpi.File(path, comm, mode="w", timeout=60) as file:
            data = file.create("group/data", shape, dtype, attrs={"unit": "m"}, **keys)
            part = partition(shape, data.chunks, comm.size)[comm.rank]
            mine = None if part is None else on_device(whole[part].astype(native), device)
            data.write(mine, part)
        if comm.rank == 0:
            with h5py.File(path) as file:
                found = file["group/data"]
                assert found.dtype == dtype, found.dtype
                assert (found[()] == whole).all(), (shape, name, keys)
                assert found.attrs["unit"] == "m"
        with mpi.File(path, comm, timeout=60) as file:
            data = file["group/data"]
            assert not data.needs_hdf5
            assert data.shape == shape
            # In other parts than it was written.
            part = partition(shape, data.chunks, comm.size)[comm.size - 1 - comm.rank]
            mine = data.read(part, device=device)
            assert (mine is None) == (part is None)
            if part is not None:
                assert (on_host(mine) == whole[part]).all(), (shape, name, keys)
            if dtype.kind in "iuf":
                wider = data.read(device=device, dtype="f8")
                assert (on_host(wider) == whole).all(), (shape, name, keys)
    if group == "shapes" and comm.rank == 0:
        left = [entry.name for entry in folder.iterdir() if not entry.name.endswith(".h5")]
        assert not left, left
