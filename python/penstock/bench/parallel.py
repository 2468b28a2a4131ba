"""HDF5 that is built with MPI, and the ranks whose processes share its files.

The calls of MPI are mpi4py's. Its wheel works with every MPI library: with the one of that HDF5.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import ranks
from .libhdf5 import is_parallel, library
from .session import RefusedError

_FILL_NEVER = 1
_COLLECTIVE = 1
_ALIGNMENT = 16 << 20
_VARIABLE = "PENSTOCK_BENCH_HDF5"
YIELDS = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "OMPI_MCA_mpi_yield_when_idle": "1"} | {
    # MPICH's collectives by shared memory do not yield.
    f"MPIR_CVAR_{collective}_POSIX_INTRA_ALGORITHM": "mpir"
    for collective in ("ALLREDUCE", "BARRIER", "BCAST", "REDUCE")
}
"""With these, waiting ranks yield the processor to threads that write. The user's own prevail."""


def start(count: int, hdf5: Path | None, mpiexec: str) -> int:
    """Run this command as ranks of the MPI that HDF5 is built with, and return the exit status."""
    choose(hdf5)
    mpi = _mpi_library()
    sibling = mpi.parents[1] / "bin" / "mpiexec"
    launcher = shlex.split(mpiexec) or [str(sibling) if sibling.exists() else "mpiexec"]
    if not shutil.which(launcher[0]):
        raise RefusedError(f"there is no {launcher[0]}: name the launcher by --mpiexec")
    variables = {_VARIABLE: os.environ[_VARIABLE], "MPI4PY_LIBMPI": str(mpi)}
    own = {name: os.environ[name] for name in YIELDS if name in os.environ}
    return ranks.launch([*launcher, "-n", str(count)], YIELDS | own | variables)


def choose(hdf5: Path | None) -> None:
    """Use a parallel HDF5: a library or its prefix, by default what PENSTOCK_BENCH_HDF5 names."""
    path = hdf5 or Path(os.environ.get(_VARIABLE, ""))
    if path.is_dir():
        path = path / "lib" / "libhdf5.so"
    if not path.is_file():
        raise RefusedError("there is no parallel HDF5: name its prefix by --hdf5")
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise RefusedError(str(error)) from None
    if not is_parallel(found):
        raise RefusedError(f"{path} is built without MPI: name a parallel HDF5 by --hdf5")
    os.environ[_VARIABLE] = str(path.absolute())


def check_mpi() -> None:
    """Refuse an HDF5 and an mpi4py of different MPI libraries."""
    library()
    if len(loaded := _loaded_mpi()) > 1:
        names = " and ".join(map(str, loaded))
        raise RefusedError(f"HDF5 and mpi4py use {names}: set MPI4PY_LIBMPI to that of HDF5")


def _mpi_library() -> Path:
    """Return the library that HDF5 has loaded."""
    loaded = _loaded_mpi()
    if len(loaded) != 1:
        raise RefusedError(f"{os.environ[_VARIABLE]} is not linked with a libmpi.so")
    return loaded[0]


def _loaded_mpi() -> list[Path]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {Path(f"/{line.partition('/')[2]}") for line in lines if "/" in line}
    return sorted(path for path in paths if path.name.startswith("libmpi.so"))


def share(access: int) -> None:
    """Set, as AMReX does, that all ranks open the files of a file access list together."""
    from mpi4py import MPI

    hdf5 = library()
    handles = MPI._handleof(MPI.COMM_WORLD), MPI._handleof(MPI.INFO_NULL)
    hdf5.H5Pset_fapl_mpio(access, *map(ctypes.c_void_p, handles))
    hdf5.H5Pset_alignment(access, _ALIGNMENT, _ALIGNMENT)
    hdf5.H5Pset_all_coll_metadata_ops(access, True)
    hdf5.H5Pset_coll_metadata_write(access, True)


@contextmanager
def lists(*, is_collective: bool) -> Iterator[tuple[int, int]]:
    """Make the lists to create a dataset without fill values, and to transfer its elements."""
    hdf5 = library()
    creation, transfer = hdf5.H5Pcreate(hdf5.dataset_create), hdf5.H5Pcreate(hdf5.transfer)
    try:
        hdf5.H5Pset_fill_time(creation, _FILL_NEVER)
        hdf5.H5Pset_dxpl_mpio(transfer, _COLLECTIVE if is_collective else 0)
        yield creation, transfer
    finally:
        hdf5.H5Pclose(transfer)
        hdf5.H5Pclose(creation)
