"""Each rank gets the same array, of which it has read a share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.dist import load_replicated, mpi
from penstock.dist.mpi import ranks
from penstock.dist.replicated import exchange, peers
from penstock.dtypes import element_type

sys.path.insert(0, str(Path(__file__).parent))

import ipc
from places import on_host

PIECE = 4096


def bits(array: ps.DeviceArray) -> np.ndarray[Any, Any]:
    """The bits of elements of two bytes."""
    return array.part(0, array.shape, element_type("u2")).numpy()


def make(path: Path, raw: Path) -> None:
    """Make a file of datasets, and one of plain bytes."""
    whole = np.arange(1003 * 30, dtype="f4").reshape(1003, 30)
    whole.tofile(raw)
    with h5py.File(path, "w") as file:
        file["contiguous"] = whole
        file.create_dataset("chunked", data=whole, chunks=(16, 8))
        file.create_dataset("gzip", data=whole, chunks=(16, 8), compression="gzip", shuffle=True)
        file.create_dataset("rows", data=whole[:3], chunks=(1, 30))
        file.create_dataset("one row of chunks", data=whole, chunks=(1003, 8))
        file["big"] = whole.astype(">f8")
        file["scalar"] = 7.5
        file["empty"] = np.empty((0, 4), "i4")
        file["pairs"] = np.zeros(50, "(2,)i4") + np.arange(50)[:, None]
        file["structures"] = np.array([(i, i / 2) for i in range(50)], [("a", ">i4"), ("b", ">f8")])
        layout = h5py.VirtualLayout(whole.shape, "f4")
        layout[:] = h5py.VirtualSource(".", "contiguous", whole.shape)
        file.create_virtual_dataset("virtual", layout)
        file["words"] = ["a", "b"]


def read_by_this_rank() -> ps.Report:
    """What this rank has read in the last call."""
    found = ps.last_report()
    assert found is not None
    return found


def run(comm: Any, folder: Path, device: str) -> None:
    """Load datasets and plain bytes, in many rounds, and see who has read what."""
    path, raw = folder / "made.h5", folder / "made.bin"
    if comm.rank == 0:
        make(path, raw)
    comm.Barrier()
    keys: dict[str, Any] = {"device": device, "piece": PIECE, "timeout": 60}
    if device != "cpu":
        keys["like"] = "device"  # torch lacks some of these types
    with h5py.File(path) as file:
        expected = {name: file[name][()] for name in file if name != "words"}
    for name, values in expected.items():
        found = load_replicated(f"{path}:{name}", comm, **keys)
        assert (on_host(found) == values).all(), name
        assert on_host(found).shape == np.shape(values), name
        read = comm.allgather(read_by_this_rank().bytes)
        assert sum(read) == np.asarray(values).nbytes, (name, read)
        if name in ("contiguous", "gzip"):
            # Shares differ by a page or a row of chunks in the last round.
            assert max(read) - min(read) <= 4096, (name, read)
            assert f"{comm.size} rank(s)" in read_by_this_rank().note

    whole = expected["contiguous"]
    # Plain bytes: of a type and shape, from an offset, one round or many.
    found = load_replicated(raw, comm, dtype="f4", shape=(-1, 30), **keys)
    assert (on_host(found) == whole).all()
    found = load_replicated(raw, comm, dtype="f4", offset=120, **{**keys, "piece": 1 << 30})
    assert (on_host(found) == whole.reshape(-1)[30:]).all()
    # Into an array, converted, and one with strides.
    if device == "cpu":
        out = np.zeros((1003, 60), "f8")[:, ::2]
        assert load_replicated(f"{path}:gzip", comm, out=out, piece=PIECE) is out
        assert (out == whole).all()
        out = np.zeros((1003, 30), "f4")
        load_replicated(str(raw), comm, out=out, piece=1)
        assert (out == whole).all()
    else:
        given = ps.DeviceArray((1003, 30), "f8", comm.rank % len(ps.devices()))
        load_replicated(f"{path}:gzip", comm, out=given, piece=PIECE)
        assert (given.numpy() == whole).all()
        # Without NCCL, and without memory that another process can open, shares take the other way.
        note = read_by_this_rank().note
        assert "between the GPUs" in note or "through host memory: rank 0" in note, note
        if comm.rank == 0:
            print(note, flush=True)
    found = load_replicated(f"{path}:chunked", comm, dtype="f8", **keys)
    assert on_host(found).dtype == "f8"
    if device != "cpu":
        # Read by HDF5, and of a type that NumPy alone has not.
        narrow: dict[str, Any] = {"dtype": "bfloat16", "like": "device"}
        found = load_replicated(f"{path}:virtual", comm, **{**keys, **narrow})
        read = ps.read(f"{path}:virtual", device="cuda", **narrow)
        assert (bits(found) == bits(read)).all()
    # A dataset of an open file, and one rank alone.
    with ps.File(path) as file:
        assert (on_host(load_replicated(file["chunked"], comm, **keys)) == whole).all()
    alone = comm.Split(comm.rank)
    assert (on_host(load_replicated(f"{path}:gzip", alone, **keys)) == whole).all()
    assert "nothing to exchange" in read_by_this_rank().note
    alone.Free()
    in_pieces(comm, f"{path}:gzip", whole, device)
    if device != "cpu" and ipc.is_missing():
        by_peers(comm, f"{path}:gzip", whole, device)


def by_peers(comm: Any, source: str, whole: np.ndarray[Any, Any], device: str) -> None:
    """Exchange shares by copies from the memory of other processes, on the stand-in."""
    keys: dict[str, Any] = {"device": device, "piece": PIECE, "exchange": "peer", "timeout": 60}
    with pytest.raises(mpi.RankError, match="has no cuIpcGetMemHandle"):
        load_replicated(source, comm, **keys)
    with ipc.provided():
        # Within an allocation, too, as arrays of a pool are.
        for shift in (0, 1):
            memory = ps.DeviceArray((1003 + shift, 30), "f4", comm.rank % len(ps.devices()))
            out = memory.part(shift * 120, (1003, 30), element_type("f4"))
            load_replicated(source, comm, **{**keys, "device": None}, out=out)
            wrong = np.flatnonzero((out.numpy() != whole).any(axis=1))
            assert not wrong.size, (shift, comm.rank, wrong)
            if comm.size > 1:
                assert "by copies between the GPUs" in read_by_this_rank().note
    several_rounds(comm, Path(source.rpartition(":")[0]).with_name("large.bin"))
    last = comm.size - 1
    keep = peers.Peers.open
    if comm.rank == last:
        peers.Peers.open = without_memory  # type: ignore[method-assign]
    with ipc.provided(), pytest.raises(mpi.RankError, match=rf"rank {last}.*MemoryError"):
        load_replicated(source, comm, **keys)
    peers.Peers.open = keep  # type: ignore[method-assign]
    names = (
        "cuIpcOpenMemHandle_v2",
        "cuMemAlloc_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuStreamSynchronize",
    )
    for name in names:
        error = pytest.raises(mpi.RankError, match=rf"rank {last}.*{name}")
        with error, ipc.provided(fails=name if comm.rank == last else ""):
            load_replicated(source, comm, **keys)


def several_rounds(comm: Any, path: Path) -> None:
    """Exchange shares while later ones arrive: those of two ranks are large enough for it."""
    two = comm.Split(0 if comm.rank < 2 else 1)
    whole = np.arange((110 << 20) // 4 + 1003, dtype="u4")
    if comm.rank == 0:
        whole.tofile(path)
    comm.Barrier()
    keys: dict[str, Any] = {"dtype": "u4", "piece": 16 << 20, "like": "device", "timeout": 60}
    for way in ("peer", "host") if comm.rank < 2 and comm.size > 1 else ():
        with ipc.provided():
            found = load_replicated(path, two, device="cuda", exchange=way, route="staged", **keys)
        wrong = np.flatnonzero(found.numpy() != whole)
        assert not wrong.size, (way, comm.rank, wrong)
        assert abs(read_by_this_rank().bytes - whole.nbytes / 2) <= 8192, read_by_this_rank()
    if comm.rank < 2 and comm.size > 1:
        # Nobody reads before the end of the file is missed, and both ranks get the error.
        with ipc.provided(), pytest.raises(mpi.RankError, match=r"rank 1.*EndOfFileError"):
            load_replicated(path, two, device="cuda", shape=(whole.size + 1,), **keys)
    two.Free()
    comm.Barrier()


def without_memory(*_: Any) -> None:
    """Fail with an error that has no words of its own."""
    raise MemoryError


def in_pieces(comm: Any, source: str, whole: np.ndarray[Any, Any], device: str) -> None:
    """Exchange shares that are larger than what one message of MPI, or the staging, takes."""
    limits = ((ranks, "_LARGEST", 1000), (exchange, "_PIECE", 100), (exchange, "_STAGING", 1000))
    before = [getattr(module, name) for module, name, _ in limits]
    for module, name, less in limits:
        setattr(module, name, less)
    for way in ("auto", "host"):
        found = load_replicated(source, comm, device=device, exchange=way)
        assert (on_host(found) == whole).all(), way
    for (module, name, _), value in zip(limits, before, strict=True):
        setattr(module, name, value)


def fail(comm: Any, folder: Path) -> None:
    """Make every kind of error on the third rank, or on the first."""
    path, raw = folder / "made.h5", folder / "made.bin"
    if comm.rank == 0:
        make(path, raw)
    comm.Barrier()
    odd = comm.rank == 2

    def fails(*words: str, rank: int = 2, source: Any = f"{path}:gzip", **keys: Any) -> None:
        with pytest.raises(mpi.RankError) as caught:
            load_replicated(source, comm, **{"timeout": 60, "piece": PIECE, **keys})
        missing = [word for word in words if word not in str(caught.value)]
        assert not missing, f"{missing} not in: {caught.value}"
        assert caught.value.rank == rank, caught.value

    # Arguments on which ranks disagree.
    fails("disagree", "chunked", "gzip", source=f"{path}:{'chunked' if odd else 'gzip'}")
    fails("disagree", "float64", dtype="f8" if odd else "f4")
    fails("disagree", "shape=(3,)", source=raw, shape=(3,) if odd else (4,))
    fails("disagree", "out of shape", out=np.zeros((1003, 30), "f4") if odd else None)
    fails("disagree", piece=PIECE + odd)
    fails("disagree", ">f8", "<f8", out=np.zeros((1003, 30), ">f8" if odd else "<f8"))
    fails("rank 2", "must be positive", timeout=0 if odd else 60)
    if not ps.devices():
        fails("disagree", "device='cuda'", device="cuda" if odd else "cpu")
        fails("rank 0", "no GPU", device="cuda", rank=0)
    # What one rank cannot make sense of.
    fails("rank 2", "not a source", source=7.5 if odd else f"{path}:gzip")
    fails("rank 2", "not one of", exchange="mail" if odd else "auto")
    fails("rank 2", "negative", source=raw, offset=-1 if odd else 0)
    fails("rank 2", "at least 1", piece=0 if odd else 1)
    fails("rank 2", "read-only", out=locked(odd))
    fails("rank 2", "threads", threads=-1 if odd else 1)
    # What no rank can do, found on the first one.
    fails("none.h5", source=folder / "none.h5", rank=0)
    fails("missing", source=f"{path}:missing", rank=0)
    fails("stored elsewhere", source=f"{path}:words", rank=0)
    fails("plain bytes", shape=(3,), rank=0)
    fails("not a whole number", source=raw, dtype="f8", offset=1, rank=0)
    fails("out has shape (3,)", out=np.zeros(3, "f4"), rank=0)
    fails("no conversion", dtype="S3", rank=0)
    fails("for GPU memory", exchange="peer", rank=0)
    # A read that fails in a later round: the chunk is damaged, and only its rank reads it.
    damaged = folder / "damaged.h5"
    if comm.rank == 0:
        with h5py.File(damaged, "w") as file:
            shape, chunk = (16 * 4 * 5, 30), (16, 30)
            made = file.create_dataset("x", shape, "f4", chunks=chunk, compression="gzip")
            made[...] = np.arange(16 * 4 * 5 * 30).reshape(shape)
            place = made.id.get_chunk_info(4 * 3 + 2).byte_offset
        with open(damaged, "r+b") as file:
            file.seek(place)
            file.write(bytes(8))
    comm.Barrier()
    fails("rank 2", "damaged.h5", "chunk at", source=f"{damaged}:x", piece=1)
    # The communicator is of use afterwards.
    assert load_replicated(f"{path}:gzip", comm).shape == (1003, 30)


def locked(is_locked: bool) -> np.ndarray[Any, Any]:
    """An array to fill, which cannot be on one rank."""
    made = np.zeros((1003, 30), "f4")
    made.flags.writeable = not is_locked
    return made
