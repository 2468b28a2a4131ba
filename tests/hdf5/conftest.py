"""Compiles C programs against real copies of HDF5 and runs them on the installed driver."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.hdf5.h5py_suite.outcomes import MOST, outcomes
from tests.parallel_hdf5 import PAIRS, ParallelHdf5, path_printed_by

STRICT = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
SKIPPED = 77

# Both lines, one of them thread-safe.
COPIES = {"1.14.4": [], "2.2.0-threadsafe": ["--threadsafe"]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs HDF5 waits until it is built."""
    for item in items:
        if {"hdf5", "parallel_hdf5"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(900))


@dataclass(frozen=True)
class Hdf5:
    """A copy of HDF5, and the programs that were linked with it."""

    prefix: Path
    installed: object
    made: dict[tuple[Path | str, ...], Path] = field(default_factory=dict)

    def compile(self, source: Path, *more: str) -> Path:
        """Link with HDF5, and with Penstock if the program calls it by itself."""
        key = (source, *more)
        if key not in self.made:
            lib = self.prefix / "lib"
            link = [f"-L{lib}", f"-Wl,-rpath,{lib},--as-needed", "-lhdf5", "-ldl", "-rdynamic"]
            include = ["-isystem", self.prefix / "include"]
            self.made[key] = self.installed.compile_once(source, *STRICT, *more, *include, *link)
        return self.made[key]


@pytest.fixture(scope="session", params=COPIES)
def hdf5(request, installed) -> Hdf5:
    version = request.param.partition("-")[0]
    return Hdf5(path_printed_by("scripts/build-hdf5", version, *COPIES[request.param]), installed)


@pytest.fixture(scope="session")
def passes_with_h5py(tmp_path_factory) -> set[str]:
    """The names of h5py's own tests that pass without Penstock."""
    passed, _ = outcomes(tmp_path_factory.mktemp("suite") / "h5py")
    assert len(passed) > MOST
    return passed


@pytest.fixture(scope="session", params=PAIRS)
def parallel_hdf5(request, installed) -> ParallelHdf5:
    return ParallelHdf5(request.param)


@pytest.fixture
def run_program(hdf5, tmp_path) -> Callable[..., None]:
    """Return a function that runs a program as a user would, and checks that it prints nothing."""

    def run(source: Path, **variables: str) -> None:
        program = hdf5.compile(source)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HDF5_")}
        done = subprocess.run(
            [program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env=inherited | hdf5.installed.environment | variables,
        )
        if done.returncode == SKIPPED:
            pytest.skip(done.stdout.strip())
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout == ""
        assert done.stderr == ""

    return run


@pytest.fixture
def run_driven(run_program, installed) -> Callable[..., None]:
    """Return a function that runs a program on the driver."""
    driver = {"HDF5_DRIVER": "penstock", "HDF5_PLUGIN_PATH": str(installed.plugin_dir)}
    return lambda source, **variables: run_program(source, **driver | variables)


@pytest.fixture
def run_connected(run_program, installed) -> Callable[..., None]:
    """Return a function that runs a program on the connector."""
    connector = {
        "HDF5_VOL_CONNECTOR": "penstock_async under_vol=0;under_info={}",
        "HDF5_PLUGIN_PATH": str(installed.plugin_dir),
    }
    return lambda source, **variables: run_program(source, **connector | variables)
