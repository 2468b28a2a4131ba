"""Each program shows one behaviour of the driver, given by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Those that move data do the same with host and with device memory.
PROGRAMS = sorted((HERE / "programs").glob("*.c"))
TRANSFERS = sorted((HERE / "transfers").glob("*.c"))
DEVICE = sorted((HERE / "device").glob("*.c"))


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda source: source.stem)
def test_behaviour(source, run_driven):
    run_driven(source)


@pytest.mark.parametrize("memory", ["host", "device"])
@pytest.mark.parametrize("source", TRANSFERS, ids=lambda source: source.stem)
def test_transfer(source, memory, run_driven):
    run_driven(source, PENSTOCK_TEST_MEMORY=memory)


@pytest.mark.parametrize("source", DEVICE, ids=lambda source: source.stem)
def test_device(source, run_driven):
    run_driven(source)
