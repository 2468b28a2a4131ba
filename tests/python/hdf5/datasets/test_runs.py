"""Runs of elements, each of which goes to a place of its own in an array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.hdf5 import reading, writing
from penstock.hdf5.dataset_reader import DatasetReader
from penstock.hdf5.many import start_into
from penstock.hdf5.selection import Runs

COUNT = 1000
KINDS = [
    "chunked",
    "contiguous",
    "two dimensions",
    "virtual",
    "virtual by HDF5",
    "writable",
    "unknown type",
]
BOOLEANS = np.random.default_rng(0).integers(0, 2, (20, 50)).astype(bool)


@pytest.fixture(params=KINDS)
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = tmp_path / "runs.h5"
    numbers = np.arange(COUNT, dtype="i4")
    with h5py.File(path, "w") as file:
        file.create_dataset("chunked", data=numbers, chunks=(37,), compression="gzip")
        file.create_dataset("contiguous", data=numbers)
        file.create_dataset("two dimensions", data=numbers.reshape(50, 20), chunks=(7, 9))
        file.create_dataset("writable", data=numbers, chunks=(64,))
        file.create_dataset("unknown type", data=numbers.astype(">i8"), chunks=(64,))
        layout = h5py.VirtualLayout((COUNT,), "i4")
        layout[:] = h5py.VirtualSource(file["chunked"])
        file.create_virtual_dataset("virtual", layout)
        # Penstock leaves mappings that overlap to HDF5.
        layout[400:] = h5py.VirtualSource(file["chunked"])[400:]
        file.create_virtual_dataset("virtual by HDF5", layout)
    with h5py.File(path, "r+" if request.param == "writable" else "r") as file:
        yield file[request.param]


@st.composite
def runs(draw: Any) -> tuple[list[int], list[int]]:
    starts = draw(st.lists(st.integers(0, COUNT), max_size=30))
    return starts, [draw(st.integers(0, min(COUNT - start, 120))) for start in starts]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(runs())
def test_runs_follow_one_another_in_the_array(
    dataset: Any, case: tuple[list[int], list[int]]
) -> None:
    starts, lengths = (np.array(part, np.int64) for part in case)
    given_runs = Runs(starts, lengths)
    wanted = [at for a, n in zip(starts, lengths, strict=True) for at in range(a, a + n)]
    assert given_runs.points.tolist() == wanted
    found = np.full(given_runs.count, -1, "i8")
    start_into([dataset], [(given_runs,)], [found], {}).wait()
    assert found.tolist() == wanted
    found[:] = -1
    by = DatasetReader.once(dataset)  # which takes no runs itself
    reading.start(dataset, by, given_runs, found, None, None, None, {}).wait()
    assert found.tolist() == wanted


def test_runs_have_places_of_their_own(dataset: Any) -> None:
    starts, lengths, positions = (np.array(part) for part in ([5, 900, 5], [4, 3, 2], [10, 0, 5]))
    found = np.full(14, -1, "i4")
    start_into([dataset], [(Runs(starts, lengths, positions),)], [found], {}).wait()
    assert found[10:14].tolist() == [5, 6, 7, 8]
    assert found[0:3].tolist() == [900, 901, 902]
    assert found[5:7].tolist() == [5, 6]


@pytest.fixture(params=[(COUNT,), (20, 50)], ids=str)
def booleans(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A dataset that is left to h5py: HDF5 has no conversion of booleans to numbers."""
    with h5py.File(tmp_path / "booleans.h5", "w") as file:
        file["x"] = BOOLEANS.reshape(request.param)
    with h5py.File(tmp_path / "booleans.h5") as file:
        yield file["x"]


RUNS = np.array([(990, 30, 10), (5, 3, 4), (40, 9, 15), (3, 0, 2)])
"""The first element, the position and the length of each run."""


def _booleans_with_gaps() -> np.ndarray[Any, Any]:
    wanted = np.full(40, 7, "f4")
    for begin, position, length in RUNS:
        wanted[position : position + length] = BOOLEANS.reshape(-1)[begin : begin + length]
    return wanted


def test_runs_that_h5py_reads_leave_the_gaps_between_them(booleans: Any) -> None:
    starts, positions, lengths = RUNS.T
    found = np.full(40, 7, "f4")
    start_into([booleans], [(Runs(starts, lengths, positions),)], [found], {}).wait()
    assert np.array_equal(found, _booleans_with_gaps())


@pytest.mark.gpu
def test_runs_that_h5py_reads_leave_the_gaps_in_gpu_memory(booleans: Any) -> None:
    starts, positions, lengths = RUNS.T
    found = ps.DeviceArray.from_numpy(np.full(40, 7, "f4"))
    start_into([booleans], [(Runs(starts, lengths, positions),)], [found], {}).wait()
    assert np.array_equal(found.numpy(), _booleans_with_gaps())


def test_a_run_outside_booleans_is_an_error(booleans: Any) -> None:
    runs = Runs(np.array([COUNT - 2]), np.array([3]))
    with pytest.raises((ps.InvalidError, IndexError)):
        start_into([booleans], [(runs,)], [np.zeros(3, "f4")], {}).wait()


def test_a_run_outside_the_dataset_is_an_error(dataset: Any) -> None:
    found = np.zeros(3, "i4")
    with pytest.raises((ps.InvalidError, IndexError)):
        start_into([dataset], [(Runs(np.array([COUNT - 2]), np.array([3])),)], [found], {}).wait()


@pytest.mark.parametrize("positions", [[0, 10], [0, 1]])
def test_a_write_refuses_runs_that_overlap_in_the_array(
    tmp_path: Path, positions: list[int]
) -> None:
    wanted = Runs(np.array([0, 50]), np.array([100, 3]), np.array(positions))
    with h5py.File(tmp_path / "written.h5", "w") as file:
        file["x"] = np.zeros(100, "i4")
        with pytest.raises(ps.InvalidError, match=r"x: .* overlap in the array"):
            writing.write(file["x"], np.arange(100, dtype="i4"), (wanted,))
        assert not file["x"][()].any()


@pytest.mark.parametrize("dtype", ["i4", ">i8"], ids=["directly", "by HDF5"])
def test_an_element_of_two_runs_gets_the_value_at_its_highest_position(
    tmp_path: Path, dtype: str
) -> None:
    starts, lengths, positions = (np.array(part) for part in ([2, 5, 0], [6, 3, 4], [4, 10, 0]))
    wanted = Runs(starts, lengths, positions)
    with h5py.File(tmp_path / "written.h5", "w") as file:
        file.create_dataset("x", data=np.full(10, -1, dtype), chunks=(4,))
        writing.write(file["x"], np.arange(13, dtype="i4"), (wanted,))
        assert file["x"][()].tolist() == [0, 1, 4, 5, 6, 10, 11, 12, -1, -1]


@pytest.mark.gpu
def test_runs_go_to_gpu_memory(dataset: Any) -> None:
    starts, lengths = np.array([700, 3, 3, 410]), np.array([250, 90, 1, 0])
    found = ps.DeviceArray((341,), "i4")
    start_into([dataset], [(Runs(starts, lengths),)], [found], {}).wait()
    wanted = [*range(700, 950), *range(3, 93), 3]
    assert found.numpy().tolist() == wanted
