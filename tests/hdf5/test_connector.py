"""Each program shows that something is as without the connector, or what that is besides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "connector").glob("*.c"))
# Of the driver. Its tests have the same list: each program is compiled with the same copy of HDF5.
DRIVEN = sorted((HERE / "programs").glob("*.c"))
WITHOUT_PLUGINS = "a_program_can_ask_for_the_driver_itself"
TRANSFERS = sorted((HERE / "transfers").glob("*.c"))

# It looks at what is left to HDF5, while the connector hands it the chunks of GPU memory at once.
LOOKS_AT_THE_CHUNK_CACHE = "files_left_open_are_complete_when_the_process_exits"

# What lies below: the native connector, or another of this kind above that.
TWICE = "penstock_async under_vol=27022;under_info={under_vol=0;under_info={}};threads=2"
BELOW = {"native": "penstock_async under_vol=0;under_info={}", "another": TWICE}


@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("source", PROGRAMS, ids=lambda source: source.stem)
def test_behaviour(source, below, run_connected):
    run_connected(source, HDF5_VOL_CONNECTOR=BELOW[below])


def test_copies_of_hdf5_in_a_process_have_their_own_connectors(hdf5, installed, tmp_path):
    source = HERE / "connector" / "a_file_is_open_with_and_without_the_connector.c"
    library = hdf5.compile(source, "-shared", "-fPIC", "-Dmain=run_program")
    program = (
        "import ctypes, sys, h5py\n"
        "with h5py.File('by_another_copy.h5', 'w'):\n"
        "    assert ctypes.CDLL(sys.argv[1]).run_program() == 0\n"
    )
    variables = {
        "HDF5_VOL_CONNECTOR": BELOW["native"],
        "HDF5_PLUGIN_PATH": str(installed.plugin_dir),
    }
    subprocess.run(
        [sys.executable, "-c", program, library],
        cwd=tmp_path,
        env=os.environ | installed.environment | variables,
        timeout=120,
        check=True,
    )


@pytest.mark.parametrize("source", DRIVEN, ids=lambda source: source.stem)
def test_behaviour_of_the_driver(source, run_connected):
    if source.stem == WITHOUT_PLUGINS:
        pytest.skip("it takes the plugins away before HDF5 has found the connector")
    run_connected(source, HDF5_DRIVER="penstock")


@pytest.mark.parametrize("memory", ["host", "device"])
@pytest.mark.parametrize("source", TRANSFERS, ids=lambda source: source.stem)
def test_transfer_by_the_driver(source, memory, run_connected):
    if memory == "device" and source.stem == LOOKS_AT_THE_CHUNK_CACHE:
        pytest.skip("no chunks of GPU memory are left in the cache")
    run_connected(source, HDF5_DRIVER="penstock", PENSTOCK_TEST_MEMORY=memory)
