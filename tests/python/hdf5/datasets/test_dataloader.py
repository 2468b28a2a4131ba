"""A dataset in the workers of torch's DataLoader, in each way in which it starts them."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps

IMAGES = np.arange(64 * 24 * 24, dtype="f4").reshape(64, 24, 24)

pytestmark = [
    pytest.mark.usefixtures("nothing_is_small"),
    pytest.mark.filterwarnings("ignore"),  # of torch and of fork
]


class Images:
    """What a program gives to a DataLoader: one image an index."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset.read(index, like="torch")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "images.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("plain", data=IMAGES, chunks=(1, 24, 24))
        file.create_dataset("zipped", data=IMAGES, chunks=(4, 24, 24), compression="gzip")
    return path


@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("name", ["plain", "zipped"])
def test_workers_read_the_images_of_a_file_that_the_parent_has_read(path, name, start, torch):
    with ps.File(path) as file:
        images = Images(file[name])
        assert torch.equal(images[0], torch.from_numpy(IMAGES[0]))
        loader = torch.utils.data.DataLoader(
            images, batch_size=16, num_workers=2, multiprocessing_context=start
        )
        for _ in range(2):
            found = torch.cat(list(loader))
            np.testing.assert_array_equal(found.numpy(), IMAGES)
        assert torch.equal(images[63], torch.from_numpy(IMAGES[63]))


def test_a_file_that_is_open_for_writing_is_refused_where_it_must_be_pickled(path, torch):
    with ps.File(path, "r+") as file:
        loader = torch.utils.data.DataLoader(
            Images(file["plain"]), num_workers=1, multiprocessing_context="spawn"
        )
        with pytest.raises(ps.IncompatibleError, match="open for writing"):
            next(iter(loader))
