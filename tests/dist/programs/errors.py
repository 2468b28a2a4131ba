"""One rank fails, or does something else than the others: all get an error that names it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.dist import mpi
from penstock.dist.mpi import ranks, shared


def run(comm: Any, folder: Path) -> None:
    """Make every kind of error, on the third rank or on the first."""
    path = folder / "data.h5"
    odd = comm.rank == 2
    whole = np.arange(40 * 10, dtype="f4").reshape(40, 10)
    mine = np.s_[10 * comm.rank : 10 * (comm.rank + 1)]

    def fails(call: Callable[[], Any], *words: str, rank: int = 2) -> None:
        began = time.monotonic()
        with pytest.raises(mpi.RankError) as caught:
            call()
        missing = [word for word in words if word not in str(caught.value)]
        assert not missing, f"{missing} not in: {caught.value}"
        assert caught.value.rank == rank, caught.value
        assert time.monotonic() - began < 20
        if comm.rank == 0:
            left = [entry.name for entry in folder.iterdir() if "unfinished" in entry.name]
            assert not left, left

    def write(create: dict[str, Any], slab: Any, array: Any, **keys: Any) -> None:
        with mpi.File(path, comm, **{"mode": "w", "timeout": 60, **keys}) as file:
            file.create("x", **create).write(array, slab)

    plain: dict[str, Any] = {"shape": (40, 10)}
    gzip: dict[str, Any] = {**plain, "chunks": (10, 10), "compression": "gzip"}
    write(plain, mine, whole[mine])
    before = path.read_bytes()
    comm.Barrier()

    # Arguments on which ranks disagree.
    other = {**plain, "shape": (41, 10)} if odd else plain
    fails(lambda: write(other, mine, whole[mine]), "disagree", "(41, 10)", "(40, 10)")
    other = {**plain, "dtype": "f8"} if odd else plain
    fails(lambda: write(other, mine, whole[mine]), "disagree", "float64")
    somewhere = folder / "other.h5" if odd else path
    fails(lambda: mpi.File(somewhere, comm, timeout=60), "disagree", "other.h5")
    fails(lambda: mpi.File(path, comm, mode="w" if odd else "r", timeout=60), "disagree")
    fails(lambda: mpi.File(path, comm, timeout=0 if odd else 60), "must be positive")
    # Slabs and arrays that do not fit.
    wrong = np.s_[0:41] if odd else mine
    fails(lambda: write(plain, wrong, whole[mine]), "InvalidError", "outside", "rank 2")
    fails(lambda: write(plain, mine, whole if odd else whole[mine]), "has shape (40, 10)")
    fails(
        lambda: write(gzip, np.s_[25:30] if odd else mine, whole[mine][: 5 if odd else 10]), "cuts"
    )
    fails(lambda: write(gzip, np.s_[0:10] if odd else mine, whole[mine]), "ranks 0 and 2", rank=0)
    fails(lambda: write(plain, np.s_[5:15] if odd else mine, whole[mine]), "ranks 0 and 2", rank=0)
    fails(lambda: write({"shape": ()}, (), 1.0), "ranks 0 and 1", "slab=None", rank=0)
    write({"shape": ()}, () if odd else None, 1.0)
    write(plain, mine, whole[mine])
    array = np.array(["a"] * 100).reshape(10, 10) if odd else whole[mine]
    fails(lambda: write(plain, mine, array), "rank 2")
    text = {**plain, "dtype": "S3"}
    array = whole[mine] if odd else np.zeros((10, 10), "S3")
    fails(lambda: write(text, mine, array), "no conversion")
    # What HDF5 refuses, on rank 0.
    fails(lambda: write({**plain, "chunks": (0, 1)}, mine, whole[mine]), "rank 0", rank=0)
    fails(lambda: mpi.File(folder / "none.h5", comm, timeout=60), "none.h5", rank=0)
    fails(lambda: mpi.File(folder / "no" / "x.h5", comm, "w", timeout=60), "does not exist", rank=0)
    fails(lambda: mpi.File(path, comm, "a", timeout=60), "not one of", rank=0)
    fails(lambda: mpi.File(path, comm, "x", timeout=60), "exists", rank=0)
    fails(lambda: mpi.File(folder, comm, "w", timeout=60), "is a folder", rank=0)
    scalar = {"shape": (), "compression": "gzip"}
    fails(lambda: write(scalar, (), 1.0), "create(", "x is a scalar", rank=0)
    # A path that one rank cannot make sense of.
    fails(lambda: mpi.File(7.5 if odd else path, comm, timeout=60), "TypeError")

    def reads(**keys: Any) -> None:
        with mpi.File(path, comm, timeout=60) as file:
            file["x"].read(mine, **keys)

    if not ps.devices():
        fails(lambda: reads(device="cuda" if odd else "cpu"), "no GPU")
    fails(lambda: reads(dtype="S3" if odd else None), "no conversion")
    with mpi.File(path, comm, timeout=60) as file:
        fails(lambda: file["missing"], "missing", rank=0)
        # What rank 0 cannot send.
        fails(lambda: file.on_root(lambda root: root["x"]), "pickled", rank=0)
        assert (file["x"].read(mine) == whole[mine]).all()  # the file is still of use

    # Datasets of a file that is closed.
    with mpi.File(folder / "closed.h5", comm, mode="w", timeout=60) as file:
        closed = [file.create(name, **keys) for name, keys in (("x", plain), ("y", gzip))]
        for data in closed:
            data.write(whole[mine], mine)
    for data in closed:
        with pytest.raises(ps.InvalidError, match="is closed"):
            data.write(whole[mine], mine)
    with mpi.File(folder / "closed.h5", comm, timeout=60) as file:
        data = file["x"]
    with pytest.raises(ps.InvalidError, match="is closed"):
        data.read(mine)

    # An exception of the program itself on one rank, while the others are in a call.
    def leaves(error: BaseException) -> None:
        with mpi.File(path, comm, mode="w", timeout=60) as file:
            data = file.create("x", **plain)
            if odd:
                raise error
            data.write(whole[mine], mine)

    class NoTextError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    errors = (KeyError("mine"), KeyboardInterrupt("mine"), ValueError("y" * 100_000), NoTextError())
    for error in errors:
        if odd:
            with pytest.raises(type(error)) as own:
                leaves(error)
            assert own.value is error
        else:
            text = "cannot be made" if isinstance(error, NoTextError) else str(error)
            fails(lambda: leaves(KeyError()), "rank 2", type(error).__name__, text)

    # Long arguments on which ranks disagree.
    other = {"shape": 3 if odd else 2, "attrs": {f"{at:080}": at for at in range(1000)}}
    fails(lambda: write(other, None, None), "disagree", "shape=(2,)", "shape=(3,)")

    # A file that another one has replaced since it was opened, for a dataset that HDF5 reads.
    for number, name in enumerate(("old.h5", "new.h5")):
        if comm.rank == 0:
            with ps.File(folder / name, "w") as made:
                made["s"] = [str(number)]
    comm.Barrier()
    with mpi.File(folder / "old.h5", comm, timeout=60) as file:
        data = file["s"]
        comm.Barrier()
        if comm.rank == 0:
            (folder / "new.h5").rename(folder / "old.h5")
        comm.Barrier()
        fails(data.read, "changed since", rank=0)

    # Files beside one that only its owner may read.
    private = folder / "private.h5"
    if comm.rank == 0:
        private.touch(0o600)
    comm.Barrier()
    with mpi.File(private, comm, mode="w", layout="file-per-rank", timeout=60) as file:
        file.create("x", **plain).write(whole[mine], mine)
    if comm.rank == 0:
        (parts,) = folder.glob("private.h5.*.parts")
        assert parts.stat().st_mode & 0o777 == 0o700

    # Names of one dataset, and one that is a group in the path of another.
    for other in ("/x", "x/y", "./x/.", "x//./y"):
        with (  # noqa: PT012 - leaving the file's block raises
            pytest.raises(mpi.RankError, match="exists already"),
            mpi.File(path, comm, mode="w", layout="file-per-rank", timeout=60) as file,
        ):
            file.create("x", **plain)
            file.create(other, **plain)

    for name, other in (("x", "x/y"), ("x", "./x"), ("x", "."), ("x/y", "x")):
        with (  # noqa: PT012 - leaving the file's block raises
            pytest.raises(mpi.RankError, match=r"create\(.*(exists already|cannot be created)"),
            mpi.File(path, comm, mode="w", layout="file-per-rank", timeout=60) as file,
        ):
            file.on_root(lambda root, name=name: root.create_dataset(name, (4,)) and None)
            file.create(other, **plain)

    # A file system that is not shared: one rank does not find the file, or finds another.
    found = shared.NativeFile

    def not_found(name: Any, flags: int) -> Any:
        raise ps.NotFoundError("no such file")

    def another(name: Any, flags: int) -> Any:
        copy = folder / "copy.h5"
        copy.write_bytes(Path(name).read_bytes())
        return found(copy, flags)

    for replacement, word in ((not_found, "no such file here"), (another, "another file")):
        if odd:
            shared.NativeFile = replacement
        fails(lambda: write(plain, mine, whole[mine]), word, "all hosts share")
        fails(reads, word)
        shared.NativeFile = found

    # A rank has no memory for what rank 0 sends.
    room = ranks._room

    def no_memory(size: int) -> Any:
        if size > 1 << 20:
            raise MemoryError("no room")
        return room(size)

    with mpi.File(path, comm, timeout=60) as file:
        if odd:
            ranks._room = no_memory
        fails(lambda: file.on_root(lambda _: np.zeros(1 << 20)), "rank 2", "MemoryError", "no room")
        ranks._room = room
        assert file.on_root(lambda _: np.arange(1 << 20)).sum() == (1 << 19) * ((1 << 20) - 1)

    comm.Barrier()
    assert path.read_bytes() == before
