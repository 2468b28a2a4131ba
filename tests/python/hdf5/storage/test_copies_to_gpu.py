"""Copies of chunks that processors decode for the GPU."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import penstock as ps

IMAGE = (64, 64, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("first", [0, 3])
def test_chunks_that_follow_one_another_are_copied_together(tmp_path, first):
    images = np.random.default_rng(0).integers(0, 50, (64, *IMAGE), dtype="u1")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", data=images, chunks=(1, *IMAGE), compression="gzip")
    with ps.File(tmp_path / "f.h5") as file:
        keys = {"device": "cuda", "like": "device", "decode": "cpu", "threads": 1}
        found = file["x"].read(np.s_[first:], **keys)
        assert ps.last_report().copies < 16
        np.testing.assert_array_equal(found.numpy(), images[first:])
        # Every second one has no neighbour.
        found = file["x"].read(np.s_[first::2], **keys)
        np.testing.assert_array_equal(found.numpy(), images[first::2])
