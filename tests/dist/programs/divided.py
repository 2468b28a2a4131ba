"""Ranks write files of their own, which a virtual dataset joins; rank 0 compares with h5py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from places import on_device, on_host

import penstock as ps
from penstock.dist import mpi, partition

CASES: list[tuple[tuple[int, ...], str, dict[str, Any]]] = [
    ((101, 37), "f4", {}),
    ((101, 37), "f4", {"chunks": (16, 10), "compression": "gzip", "shuffle": True}),
    ((101, 37), ">i2", {"chunks": (16, 10)}),
    ((3, 50), "i8", {"chunks": (1, 20), "compression": "lzf"}),  # fewer rows than ranks
    ((0, 7), "f4", {}),
]


def run(comm: Any, folder: Path, device: str) -> None:
    """Write from arrays on a device, and read into them."""

    def opened(path: Path, **keys: Any) -> mpi.File:
        return mpi.File(path, comm, mode="w", timeout=60, layout="file-per-rank", **keys)

    for number, (shape, name, keys) in enumerate(CASES):
        # HDF5 takes % in the name of a source for the number of a block.
        path = folder / f"%b{number}.h5"
        whole = (np.arange(int(np.prod(shape))).reshape(shape) % 211).astype(name)
        native = whole.astype(whole.dtype.newbyteorder("="))
        with opened(path, durable=number == 0) as file:
            data = file.create("group/50%", shape, name, attrs={"unit": "m"}, **keys)
            part = partition(shape, data.chunks, comm.size)[comm.rank]
            data.write(None if part is None else on_device(native[part], device), part)
            file.on_root(lambda h5: h5.attrs.update(step=7))
        if comm.rank == 0:
            with h5py.File(path) as h5:
                found = h5["group/50%"]
                assert (found[()] == whole).all(), (shape, name, keys)
                assert (found.dtype, found.attrs["unit"]) == (whole.dtype, "m")
                assert h5.attrs["step"] == 7
                assert found.is_virtual == (whole.size > 0)
        comm.Barrier()
        with mpi.File(path, comm, timeout=60) as file:
            part = partition(shape, None, comm.size)[comm.size - 1 - comm.rank]
            mine = file["group/50%"].read(part, device=device)
            assert part is None or (on_host(mine) == whole[part]).all(), (shape, name, keys)

    # Several writes, of slabs that leave a part out.
    path = folder / "some.h5"
    expected = np.full((40, 10), 7, "f4")
    with opened(path) as file:
        data = file.create("x", (40, 10), "f4", fillvalue=7)
        for turn in range(2):
            row = 10 * comm.rank + 2 * turn
            data.write(on_device(np.full((2, 10), row, "f4"), device), np.s_[row : row + 2])
    for row in range(0, 40, 10):
        expected[row : row + 2], expected[row + 2 : row + 4] = row, row + 2

    def folders() -> list[str]:
        return sorted(entry.name for entry in folder.iterdir() if entry.name.startswith("some"))

    if comm.rank == 0:
        main, parts = folders()
        assert main == "some.h5"
        assert sorted(os.listdir(folder / parts)) == [f"{rank}.h5" for rank in range(comm.size)]
        # Both together can be anywhere.
        moved = folder / "moved"
        moved.mkdir()
        for name in (main, parts):
            os.rename(folder / name, moved / name)
        with h5py.File(moved / main) as h5:
            assert (h5["x"][()] == expected).all()
        for name in (main, parts):
            os.rename(moved / name, folder / name)
    comm.Barrier()

    # Names can be bytes, as for h5py.
    for layout in ("shared", "file-per-rank"):
        with mpi.File(folder / "bytes.h5", comm, mode="w", timeout=60, layout=layout) as file:
            data = file.create(b"group/x", (comm.size,), "f4")
            data.write(np.ones(1, "f4"), np.s_[comm.rank : comm.rank + 1])
            with pytest.raises(ps.IncompatibleError, match="not the name of a dataset"):
                file.create(None, (comm.size,))
            with pytest.raises(ps.InvalidError, match="zero byte"):
                file.create("group/y\0z", (comm.size,))
        with mpi.File(folder / "bytes.h5", comm, timeout=60) as file:
            assert file[b"group/x"].read().tolist() == [1] * comm.size

    # A name as long as the file system allows.
    with opened(folder / ("n" * 255)) as file:
        data = file.create("x", (comm.size,), "f4")
        data.write(np.ones(1, "f4"), np.s_[comm.rank : comm.rank + 1])
    with mpi.File(folder / ("n" * 255), comm, timeout=60) as file:
        assert file["x"].read().tolist() == [1] * comm.size

    # HDF5 ignores dots and slashes that name nothing.
    with opened(folder / "dots.h5") as file:
        data = file.create("./a//./b", (comm.size,), "f4")
        data.write(np.ones(1, "f4"), np.s_[comm.rank : comm.rank + 1])
    with mpi.File(folder / "dots.h5", comm, timeout=60) as file:
        assert file["a/b"].read().tolist() == [1] * comm.size

    # What fails leaves the file of before, and nothing else.
    odd = comm.rank == 2
    mine = np.s_[10 * comm.rank : 10 * comm.rank + 10]
    ten = np.ones((10, 10), "f4")

    def fails(word: str, slab: Any = mine, array: Any = ten, **keys: Any) -> None:
        before = None if comm.rank else (path.read_bytes(), folders())
        comm.Barrier()
        with pytest.raises(mpi.RankError, match=word), opened(path) as file:
            file.create("x", **{"shape": (40, 10), **keys}).write(array, slab)
        comm.Barrier()
        if comm.rank == 0:
            assert (path.read_bytes(), folders()) == before
            assert not [name for name in os.listdir(folder) if "unfinished" in name]
            with h5py.File(path) as h5:
                assert (h5["x"][()] == expected).all()
        comm.Barrier()

    fails("ranks 0 and 2", slab=np.s_[0:10] if odd else mine)
    fails("rank 2.*has shape", array=ten[:5] if odd else ten)
    fails("rank 2.*outside", slab=np.s_[35:45] if odd else mine)
    fails("no conversion", array=[[1000] * 10] * 10, dtype="S3")
    fails("no maxshape", maxshape=(None, 10))
    fails("scalar", shape=())
    fails("rank 0", chunks=(0, 1))
    with pytest.raises(mpi.RankError, match="not one of shared, file-per-rank"):
        mpi.File(path, comm, mode="w", timeout=60, layout="parts")

    # A new file, of either layout, takes the folder of the one that it replaces away.
    for layout, count in (("file-per-rank", 2), ("shared", 1)):
        with mpi.File(path, comm, mode="w", timeout=60, layout=layout) as file:
            file.create("x", (40, 10), "f4").write(on_device(ten, device), mine)
        if comm.rank == 0:
            assert len(folders()) == count
            with h5py.File(path) as h5:
                assert (h5["x"][()] == 1).all()
