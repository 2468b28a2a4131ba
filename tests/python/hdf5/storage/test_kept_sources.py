"""Sources of virtual datasets that are read again, without HDF5."""

import os
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock as ps

SOURCES, ROWS, COLUMNS = 3, 8, 64
SHAPE = (SOURCES * ROWS, COLUMNS)

pytestmark = pytest.mark.usefixtures("nothing_is_small")


@pytest.fixture(params=[{}, {"chunks": (4, 16)}, {"chunks": (4, 16), "compression": "gzip"}])
def virtual(request, tmp_path):
    """A virtual dataset that has been read, and its values."""
    values = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)
    layout = h5py.VirtualLayout(SHAPE, "f4")
    for number in range(SOURCES):
        rows = slice(number * ROWS, (number + 1) * ROWS)
        make(source(tmp_path, number), values[rows], **request.param)
        layout[rows] = h5py.VirtualSource(source(tmp_path, number), "x", (ROWS, COLUMNS))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-1)
    time.sleep(0.03)  # a file that has just changed may change again unseen
    with ps.File(tmp_path / "v.h5") as file:
        for _ in range(2):
            assert (file["v"][...] == values).all()
        yield file["v"], values


def source(folder: Path, number: int) -> Path:
    return folder / f"source{number}.h5"


def make(path: Path, values: np.ndarray, **keys) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, **keys)


def test_a_source_that_another_program_changes_is_read_as_it_is_now(virtual, tmp_path):
    dataset, values = virtual
    change = "import h5py, sys; h5py.File(sys.argv[1], 'r+', locking=False)['x'][2, 3] = -7"
    subprocess.run([sys.executable, "-c", change, source(tmp_path, 1)], check=True)
    values[ROWS + 2, 3] = -7
    assert (dataset[...] == values).all()


def test_a_source_that_is_replaced_is_read_as_it_is_now(virtual, tmp_path):
    dataset, values = virtual
    values[:ROWS] *= 2
    make(tmp_path / "new.h5", values[:ROWS])
    os.replace(tmp_path / "new.h5", source(tmp_path, 0))
    assert (dataset[...] == values).all()


def test_a_source_that_is_gone_has_the_fill_value(virtual, tmp_path):
    dataset, values = virtual
    source(tmp_path, 2).unlink()
    values[2 * ROWS :] = -1
    assert (dataset[...] == values).all()


def test_changes_that_hdf5_buffers_in_this_process_are_read(virtual, tmp_path):
    dataset, values = virtual
    with h5py.File(source(tmp_path, 1), "r+") as file:
        file["x"][5] = values[ROWS + 5] = 9
        assert (dataset[...] == values).all()


def test_another_dataset_of_the_same_name_is_found_by_a_link(virtual, tmp_path):
    dataset, values = virtual
    make(tmp_path / "other.h5", values[:ROWS] + 1)
    with h5py.File(source(tmp_path, 0), "w") as file:
        file["x"] = h5py.ExternalLink(tmp_path / "other.h5", "x")
    time.sleep(0.03)
    for step in (1, 5):
        with h5py.File(tmp_path / "other.h5", "r+") as file:
            file["x"][...] = values[:ROWS] + step
        time.sleep(0.03)
        assert (dataset[:ROWS] == values[:ROWS] + step).all()


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_link_to_another_file_does_not_stand_for_a_dataset_of_its_name_there(tmp_path, first):
    values = np.arange(4, dtype="f4")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(2,))
        file.create_dataset("y", data=values + 10, chunks=(2,))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = h5py.ExternalLink(tmp_path / "b.h5", "y")
    for name in "ab":
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(tmp_path / f"{name}.h5", "x", (4,))
        with h5py.File(tmp_path / f"of_{name}.h5", "w") as file:
            file.create_virtual_dataset("v", layout)
    time.sleep(0.03)
    for name in [first, "a", "b", "a", "b"]:
        with ps.File(tmp_path / f"of_{name}.h5") as file:
            assert (file["v"][...] == values + (10 if name == "a" else 0)).all()


def test_the_files_of_sources_are_closed_soon_after_a_read(virtual, tmp_path):
    dataset, values = virtual
    assert (dataset[...] == values).all()
    ours = {str(source(tmp_path, number)) for number in range(SOURCES)}
    end = time.monotonic() + 10
    while ours & set(open_files()):
        assert time.monotonic() < end
        time.sleep(0.02)


def open_files() -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # it was closed meanwhile
            continue
    return found
