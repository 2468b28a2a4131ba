"""What all tests of torch need."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

# More threads spin while they wait for one another, also in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    """Has the CPU compute torch's kernels on the stand-in GPU, which does not run them."""
    if "torch" not in sys.modules:
        yield
        return
    from tests.torch_kernels import kernels_on_cpu

    with kernels_on_cpu():
        yield
