"""Storage that HDF5 cannot finish allocating: it would lose what is written there later."""

from __future__ import annotations

import gc
import resource

import h5py
import numpy as np
import pytest

import penstock as ps

LENGTH = 1 << 20
FILL = 5


@pytest.fixture
def full():
    """Return a function that limits the length of files to a number of bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_would_be_lost_after_a_failed_allocation_is_refused(tmp_path, full):
    values = np.arange(LENGTH // 2, dtype="i4")
    with h5py.File(tmp_path / "file.h5", "w") as file:
        dataset = file.create_dataset("x", (LENGTH,), "i4", fillvalue=FILL)
        full(100_000)
        with pytest.raises(ps.Error, match="File too large"):
            ps.write_async(dataset, values, np.s_[: LENGTH // 2]).wait()
        full(resource.RLIM_INFINITY)
        with pytest.raises(ps.Error, match="open it again"):
            ps.write_async(dataset, values, np.s_[: LENGTH // 2]).wait()
        with pytest.raises(ps.Error, match="open it again"):
            ps.read_async(dataset).wait()
        del dataset
        gc.collect()
        ps.write_async(file["x"], values, np.s_[: LENGTH // 2]).wait()
    with h5py.File(tmp_path / "file.h5") as file:
        assert np.array_equal(file["x"][: LENGTH // 2], values)
        assert (file["x"][LENGTH // 2 :] == FILL).all()
