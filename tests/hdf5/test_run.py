"""Programs that know nothing of Penstock, under `penstock run`, on both lines of HDF5."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "gpu_write.c"
MIB = 1 << 20


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a program under penstock and returns its output and report."""

    def under_penstock(*command: str | Path, options: tuple[str, ...] = ()):
        report = tmp_path / "report.json"
        penstock_run = [sys.executable, "-m", "penstock_command", "run", *options]
        done = subprocess.run(
            [*penstock_run, "--report", "--report-to", report, "--", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | where_the_driver_of_the_gpu_is(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr, json.loads(report.read_text())

    return under_penstock


def where_the_driver_of_the_gpu_is() -> dict[str, str]:
    """A program that opens libcuda.so.1 by itself finds the stand-in by the loader's path."""
    stand_in = os.environ.get("PENSTOCK_CUDA_LIBRARY")
    return {"LD_LIBRARY_PATH": str(Path(stand_in).parent)} if stand_in else {}


def raw_bytes(report, operation: str) -> dict[str, int]:
    flows = (flow for flow in report["flows"] if flow["operation"] == operation)
    return {flow["path"]: flow["bytes"] for flow in flows if flow["path"] != "metadata"}


def test_the_example_writes_and_reads_device_memory(hdf5, run):
    program = hdf5.compile(EXAMPLE)
    shown, table, report = run(program, "file.h5", "8")
    where = "GPU" if penstock.devices() else "host"
    assert shown == f"{8 * MIB} bytes of {where} memory written and read, equal\n"
    for operation in ("write", "read"):
        counted = raw_bytes(report, operation)
        assert sum(counted.values()) == 8 * MIB
        for path in counted:
            assert path.startswith("host_") != bool(penstock.devices())
            assert path in table


@pytest.mark.parametrize("under", [[], [sys.executable, "-m", "penstock_command", "run", "--"]])
def test_the_example_leaves_an_existing_file(hdf5, tmp_path, under):
    path = tmp_path / "file.h5"
    path.write_bytes(b"mine")
    command = [*under, hdf5.compile(EXAMPLE), path, "1"]
    environment = os.environ | where_the_driver_of_the_gpu_is()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "creation of a new file failed" in done.stderr
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("mode", ["sec2", "sec2+pinned", "posix-mt"])
def test_the_example_moves_device_memory_in_the_ways_to_compare_with(hdf5, run, mode):
    shown, _, report = run(hdf5.compile(EXAMPLE), "file.h5", "8", options=("--mode", mode))
    assert "equal" in shown
    if penstock.devices():
        assert raw_bytes(report, "read").keys() <= {"pageable", "pinned"}


@pytest.mark.skipif(not penstock.devices(), reason="without a GPU there is no such pointer")
def test_the_example_fails_with_device_memory_without_the_driver(hdf5, tmp_path):
    program = hdf5.compile(EXAMPLE)
    environment = os.environ | where_the_driver_of_the_gpu_is()
    done = subprocess.run(
        [program, tmp_path / "file.h5", "1"], capture_output=True, env=environment
    )
    assert done.returncode != 0


# Without these only a list on which the program has called Legate's driver comes to Penstock.
WITHOUT_THE_VARIABLES = ("env", "--unset=HDF5_DRIVER", "--unset=HDF5_PLUGIN_PATH")


def test_legate_s_call_of_its_driver_gives_this_one(hdf5, run):
    program = hdf5.compile(HERE / "legate.c")
    shown, _, report = run(*WITHOUT_THE_VARIABLES, program, options=("--legate",))
    assert shown == ""
    assert raw_bytes(report, "write") == {"host_buffered": 400_000}
