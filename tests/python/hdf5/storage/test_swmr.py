"""One process writes a file, others read it meanwhile (HDF5's SWMR)."""

from __future__ import annotations

import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

import penstock as ps

# Each line on the standard input is a number of rows to append, each with its own number in all
# columns. After an empty line rows are appended until the next line.
WRITER = """
import sys, threading
import h5py, numpy as np, penstock as ps
path, by, rows, columns, layout = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
def append(dataset, count):
    before = dataset.shape[0]
    values = np.arange(before, before + count, dtype="i4")[:, None].repeat(columns, 1) + 1
    dataset.resize((before + count, columns))
    if by == "penstock":
        ps.write(dataset, values, np.s_[before:])
    else:
        dataset[before:] = values
    dataset.flush()
options = {"gzip": {"compression": "gzip"}, "plain": {}}[layout]
file = h5py.File(path, "w", libver="latest")
dataset = file.create_dataset(
    "x", (0, columns), "i4", chunks=(rows, columns), maxshape=(None, columns), **options
)
file.swmr_mode = True
print("ready", flush=True)
for line in sys.stdin:
    if line.strip():
        append(dataset, int(line))
    else:
        over = threading.Thread(target=sys.stdin.readline)
        over.start()
        while over.is_alive():
            append(dataset, 1)
    print("added", flush=True)
"""

pytestmark = pytest.mark.usefixtures("penstock_arrays")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


@pytest.fixture(params=["gzip", "plain"])
def layout(request):
    return request.param


@pytest.fixture(params=["h5py", "penstock"])
def by(request):
    """What the writer writes with."""
    return request.param


class Writer:
    """Another process, which appends to a dataset."""

    def __init__(self, path, by, rows, columns, layout):
        command = [sys.executable, "-c", WRITER, path, by, str(rows), str(columns), layout]
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def say(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def append(self, count):
        self.say(count)
        assert self.process.stdout.readline() == "added\n"


@pytest.fixture
def writer(tmp_path, by, layout):
    writers = []

    def start(rows, columns):
        writers.append(Writer(tmp_path / "f.h5", by, rows, columns, layout))
        return writers[-1]

    yield start
    for writer in writers:
        with writer.process as process:
            process.stdin.close()
            assert process.wait(60) == 0


def rows(count, columns):
    return np.arange(1, count + 1, dtype="i4")[:, None].repeat(columns, 1)


def to_host(array):
    return array.numpy() if isinstance(array, ps.DeviceArray) else array


@pytest.mark.parametrize("columns", [50, 10_000], ids=["small", "large"])
def test_a_reader_sees_what_the_writer_has_added(tmp_path, writer, device, columns):
    other = writer(2, columns)
    with ps.File(tmp_path / "f.h5", swmr=True, libver="latest") as file:
        for step in range(1, 4):
            other.append(150)
            file["x"].h5py.refresh()
            expected = rows(150 * step, columns)
            np.testing.assert_array_equal(to_host(file["x"].read(device=device)), expected)
            found = file["x"].read_async(np.s_[::3], device=device).wait()
            np.testing.assert_array_equal(to_host(found), expected[::3])


@pytest.mark.usefixtures("nothing_is_small")
def test_a_reader_beside_a_busy_writer_gets_whole_rows_or_none(tmp_path, writer, device):
    other = writer(1, 3000)
    other.say("")
    seen = 0
    with ps.File(tmp_path / "f.h5", swmr=True, libver="latest") as file:
        began = time.monotonic()
        # The first row may take long to arrive on a machine that does much else.
        while (passed := time.monotonic() - began) < 1.5 or (seen < 2 and passed < 30):
            file["x"].h5py.refresh()
            found = to_host(file["x"].read(device=device))
            seen = int(np.count_nonzero(found[:, 0]))
            expected = rows(len(found), 3000)
            # The new extent can be seen before the chunks are.
            expected[found[:, 0] == 0] = 0
            np.testing.assert_array_equal(found, expected)
    assert seen > 1
    other.append("")


@pytest.mark.usefixtures("nothing_is_small")
def test_a_writer_reads_what_it_has_added(tmp_path, device, layout):
    options = {"compression": layout} if layout == "gzip" else {}
    with ps.File(tmp_path / "f.h5", "w", libver="latest") as file:
        file.h5py.create_dataset(
            "x", (0, 3000), "i4", chunks=(2, 3000), maxshape=(None, 3000), **options
        )
        file.h5py.swmr_mode = True
        for step in range(1, 4):
            file["x"].h5py.resize((51 * step, 3000))
            file["x"].write(rows(51 * step, 3000)[-51:], np.s_[-51:])
            found = file["x"].read(device=device)
            np.testing.assert_array_equal(to_host(found), rows(51 * step, 3000))
    with h5py.File(tmp_path / "f.h5") as file:
        np.testing.assert_array_equal(file["x"], rows(153, 3000))


@pytest.mark.usefixtures("nothing_is_small")
def test_a_virtual_dataset_over_a_growing_file_is_read(tmp_path, writer, device):
    other = writer(2, 3000)
    layout = h5py.VirtualLayout((300, 3000), "i4")
    layout[:] = h5py.VirtualSource("f.h5", "x", (300, 3000), maxshape=(None, 3000))
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    with ps.File(tmp_path / "v.h5", swmr=True, libver="latest") as file:
        other.append(300)
        found = file["x"].read(device=device)
        np.testing.assert_array_equal(to_host(found), rows(300, 3000))
