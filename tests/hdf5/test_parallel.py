"""Each program shows one behaviour of MPI ranks that share a file. With PENSTOCK_TEST_ALONE=1, HDF5
runs them without the connector, which shows that the programs themselves are right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.hdf5.conftest import STRICT
from tests.parallel_hdf5 import CONNECTOR

import penstock

RANKS = 3
EACH = 1 << 18
"""Elements of a part: see ranks.h."""
KILLED = Path(__file__).parent / "killed" / "rank.c"
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


def values(count, seed):
    """As the function of this name in check.h."""
    scattered = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    return scattered.view("<i4") ^ np.int32(seed * 1000003)


@pytest.mark.parametrize("step", range(9))
def test_a_killed_rank_ends_all_and_what_was_flushed_is_there(
    parallel_hdf5, installed, tmp_path, step
):
    program = installed.compile_once(KILLED, *STRICT, *parallel_hdf5.flags)
    variables = {"HDF5_PLUGIN_PATH": str(installed.plugin_dir)}
    if not IS_ALONE:
        variables["HDF5_VOL_CONNECTOR"] = CONNECTOR
    status, output = parallel_hdf5.run(
        RANKS, program, step, folder=tmp_path, seconds=60, **installed.environment, **variables
    )
    assert "it hangs" not in output
    assert status != 0, output
    offset = int((tmp_path / "offset").read_text())
    found = np.fromfile(tmp_path / "x.h5", "<i4", RANKS * EACH, offset=offset)
    for rank, part in enumerate(found.reshape(RANKS, EACH)):
        np.testing.assert_array_equal(part, values(EACH, 64 + rank), f"of rank {rank}")
