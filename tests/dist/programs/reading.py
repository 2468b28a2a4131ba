"""Ranks read what h5py has written: all layouts, and those that only HDF5 can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from places import on_host

from penstock.dist import mpi, partition
from penstock.dist.mpi.ranks import Ranks


def run(comm: Any, folder: Path, device: str) -> None:
    """Read into arrays on a device."""
    path = folder / "made.h5"
    whole = np.arange(60 * 21, dtype="f4").reshape(60, 21)
    if comm.rank == 0:
        with h5py.File(path, "w", userblock_size=1024) as file:
            file["contiguous"] = whole
            file.create_dataset("chunked", data=whole, chunks=(16, 8))
            file.create_dataset(
                "gzip", data=whole, chunks=(16, 8), compression="gzip", shuffle=True
            )
            some = file.create_dataset("some", whole.shape, "f4", chunks=(16, 8), fillvalue=3)
            some[20:30] = whole[20:30]
            file.create_dataset("big", data=whole.astype(">f8"))
            file.create_dataset("never", whole.shape, "f4", fillvalue=5)
            kind = h5py.enum_dtype({"a": 0, "b": 1}, basetype="i1")
            file.create_dataset("enumeration", data=(whole % 2).astype("i1"), dtype=kind)
            layout = h5py.VirtualLayout(whole.shape, "f4")
            layout[:] = h5py.VirtualSource(".", "contiguous", whole.shape)
            file.create_virtual_dataset("virtual", layout)
            file["linked"] = h5py.ExternalLink(str(path.with_name("other.h5")), "x")
        with h5py.File(path.with_name("other.h5"), "w") as other:
            other["x"] = whole + 1
    comm.Barrier()
    # Where the launcher does not tell the rank among those of the host, they count.
    ranks = Ranks(comm, timeout=60)
    assert ranks.local_rank() == comm.rank
    ranks.free()
    opened: list[Any] = []

    def only_on_root(*arguments: Any, **keys: Any) -> Any:
        opened.append(arguments)
        return made(*arguments, **keys)

    made = h5py.h5f.open
    with mpi.File(path, comm, timeout=60) as file:
        h5py.h5f.open = only_on_root
        part = partition(whole.shape, (16, 8), comm.size)[comm.rank]
        expected = {
            "some": np.where((np.arange(60) // 10 == 2)[:, None], whole, np.float32(3)),
            "never": np.full_like(whole, 5),
            "enumeration": whole % 2,
            "linked": whole + 1,
        }
        names = ("contiguous", "chunked", "gzip", "some", "big", "never", "enumeration", "virtual")
        for name in (*names, "linked"):
            data = file[name]
            assert data.needs_hdf5 == (name in ("virtual", "linked")), name
            # No rank has opened a file by HDF5, until the read of the virtual dataset needs it.
            assert bool(opened) == (name == "linked"), (name, opened)
            found = data.read(part, device=device)
            assert (on_host(found) == expected.get(name, whole)[part]).all(), name
        h5py.h5f.open = made
        # A rank reads into memory of its own, and another one nothing.
        into = np.zeros((10, 42), "f4")[:, ::2]
        file["gzip"].read(np.s_[5:15] if comm.rank else None, out=into if comm.rank else None)
        assert (into == (whole[5:15] if comm.rank else 0)).all()
        assert file.on_root(lambda h5: sorted(h5)) == sorted((*names, "linked"))
