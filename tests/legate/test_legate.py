"""Legate's own wheel on Penstock's driver: `make test-legate` installs it and runs this.

Legate starts only where libcuda.so.1 is, and with a GPU only on the real one; on the stand-in, and
wherever there is none, its CPU tasks run, which make the same calls with pointers to host memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("round_trip.py")

pytestmark = pytest.mark.skipif(
    "PENSTOCK_TEST_LEGATE" not in os.environ, reason="make test-legate installs Legate and sets it"
)


@pytest.fixture
def legate_python() -> Path:
    return Path(os.environ["PENSTOCK_TEST_LEGATE"]).absolute()


@pytest.fixture
def environment(legate_python):
    """Legate finds the libraries of NVIDIA's wheels only by the loader's path."""
    wheels = legate_python.parent.parent.glob("lib/python*/site-packages/nvidia/*/lib")
    folders = [*map(str, wheels), os.environ.get("LD_LIBRARY_PATH", "")]
    gpus = os.environ.get("PENSTOCK_TEST_LEGATE_GPUS", "0")
    memory = "--fbmem 1000 --zcmem 100" if gpus != "0" else ""
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join(filter(None, folders)),
        "LEGATE_AUTO_CONFIG": "0",
        "LEGATE_CONFIG": f"--cpus 1 --omps 0 --sysmem 200 --gpus {gpus} {memory}",
    }


@pytest.fixture
def run(legate_python, environment, tmp_path):
    """Return a function that runs the round trip under penstock and returns the report's flows."""

    def under_penstock(*options: str, prefix: tuple[str, ...] = ()):
        report = tmp_path / "report.json"
        penstock = [
            sys.executable,
            "-m",
            "penstock_command",
            "run",
            "--report-to",
            report,
            *options,
        ]
        program = [legate_python, PROGRAM, tmp_path / "from.h5", tmp_path / "to.h5"]
        done = subprocess.run(
            [*penstock, "--", *prefix, *program],
            capture_output=True,
            text=True,
            timeout=240,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("equal\n")
        return json.loads(report.read_text())

    return under_penstock


# Without these only a list on which Legate has called its own driver comes to Penstock.
WITHOUT_THE_VARIABLES = ("env", "--unset=HDF5_DRIVER", "--unset=HDF5_PLUGIN_PATH")


def flows(result, name):
    return {(f["operation"], f["path"]): f for f in result["flows"] if f["file"].endswith(name)}


def test_the_call_of_legate_s_driver_is_answered_by_penstock(run):
    result = run("--legate", prefix=WITHOUT_THE_VARIABLES)
    read = flows(result, "from.h5")
    assert {operation for operation, _ in read} == {"read"}  # h5py wrote it, by its own driver
    raw = sum(f["bytes"] for (_, path), f in read.items() if path != "metadata")
    assert raw == 8 * 200_000  # the batches are read by h5py
    written = [flow for flow in result["flows"] if flow["operation"] == "write"]
    raw = sum(flow["bytes"] for flow in written if flow["path"] != "metadata")
    assert raw >= 8 * 200_000
    assert result["notes"] == []


def test_without_the_switch_legate_does_not_call_its_driver(run):
    assert run("--legate", "--no-io-use-vfd-gds", prefix=WITHOUT_THE_VARIABLES)["flows"] == []


def test_two_copies_of_hdf5_in_one_process_have_the_driver(run):
    result = run("--legate")
    operations = {operation for operation, _ in flows(result, "from.h5")}
    assert operations == {"read", "write"}


def test_options_reach_legate_s_files(run):
    result = run("--legate", "--mode", "sec2", prefix=WITHOUT_THE_VARIABLES)
    modes = {account["mode"] for process in result["processes"] for account in process["closed"]}
    assert modes == {"sec2"}
