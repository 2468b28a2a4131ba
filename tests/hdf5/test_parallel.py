"""Each program shows one behaviour of MPI ranks that share a file. With PENSTOCK_TEST_ALONE=1, HDF5
runs them without the connector, which shows that the programs themselves are right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hdf5.conftest import STRICT
from tests.parallel_hdf5 import CONNECTOR

import penstock

RANKS = 3
SOURCES = sorted((Path(__file__).parent / "parallel").glob("*.c"))
IS_ALONE = os.environ.get("PENSTOCK_TEST_ALONE") == "1"


def cases() -> Iterator[tuple[Path, str]]:
    for source in SOURCES:
        yield source, "host"
        # Only on the host if it asks for no other memory.
        if "new_memory" in source.read_text() and not IS_ALONE:
            yield source, "device"


CASES = list(cases())


@pytest.mark.parametrize(
    ("source", "memory"), CASES, ids=[f"{source.stem}-{memory}" for source, memory in CASES]
)
def test_behaviour(source, memory, parallel_hdf5, installed, tmp_path):
    if memory == "device" and not penstock.devices():
        pytest.skip("no CUDA device")
    program = installed.compile_once(source, *STRICT, *parallel_hdf5.flags)
    variables = {"PENSTOCK_TEST_MEMORY": memory, "HDF5_PLUGIN_PATH": str(installed.plugin_dir)}
    if not IS_ALONE:
        variables["HDF5_VOL_CONNECTOR"] = CONNECTOR
    status, output = parallel_hdf5.run(
        RANKS, program, folder=tmp_path, **installed.environment, **variables
    )
    assert status == 0, output
    assert output == ""
