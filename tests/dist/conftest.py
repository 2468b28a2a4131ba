"""Fixtures: each MPI library that is installed."""

from __future__ import annotations

import pytest
from tests.mpi_launch import LAUNCHERS, Mpi, missing


@pytest.fixture(params=LAUNCHERS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    if reason := missing(request.param):
        pytest.skip(reason)
    return Mpi(request.param)
