"""Copies of HDF5 for programs whose MPI ranks share a file, each built with one MPI."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAIRS = os.environ.get("PENSTOCK_TEST_PARALLEL", "1.14.4-mpich").split()
CONNECTOR = "penstock_async under_vol=0;under_info={}"


def path_printed_by(*command: str) -> Path:
    """Return the path that a script of this repository prints."""
    words = [ROOT / command[0], *command[1:]]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


@dataclass(frozen=True)
class ParallelHdf5:
    name: str
    """Version and MPI, such as ``1.14.4-mpich``; a copy is built on first use."""

    @property
    def mpi(self) -> str:
        return self.name.partition("-")[2]

    @cached_property
    def prefix(self) -> Path:
        version = self.name.partition("-")[0]
        return path_printed_by("scripts/build-hdf5", version, f"--{self.mpi}")

    @cached_property
    def flags(self) -> list[str]:
        """The flags with which programs are compiled and linked."""
        flags = ["-Wl,--as-needed"]
        for prefix in (self.prefix, path_printed_by("scripts/mpi", self.mpi, "--print-prefix")):
            lib = prefix / "lib"
            flags += ["-isystem", str(prefix / "include"), f"-L{lib}", f"-Wl,-rpath,{lib}"]
        return [*flags, "-lhdf5", "-lmpi", "-ldl", "-rdynamic"]

    def run(
        self, ranks: int, *command: object, folder: Path, seconds: float = 120, **variables: str
    ) -> tuple[int, str]:
        """Return the status of a program, and the output of its ranks."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HDF5_")}
        words = [ROOT / "scripts/mpi", self.mpi, "mpiexec", "-n", ranks, *command]
        with subprocess.Popen(
            list(map(str, words)),
            cwd=folder,
            env=inherited | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as started:
            try:
                output, _ = started.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                started.terminate()  # and the launcher ends its ranks
                output, _ = started.communicate(timeout=20)
                return 124, f"{output}it hangs"
        return started.returncode, output
