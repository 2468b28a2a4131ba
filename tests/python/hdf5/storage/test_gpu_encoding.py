"""Chunks that the GPU encodes are those of any writer: h5py reads them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("nothing_is_small", "penstock_arrays"),
]

GZIP = {"compression": "gzip", "shuffle": True}


def field(*shape: int, dtype: str = "f4") -> np.ndarray:
    """Return smooth numbers with some noise."""
    count = int(np.prod(shape))
    noise = np.random.default_rng(count).integers(0, 64, count)
    return (np.sin(np.arange(count) * 1e-3) * 1e4 + noise).astype(dtype).reshape(shape)


def written(path, values, by="gpu", **keys):
    """Write an array of GPU memory to a new dataset; return the report of the request."""
    with ps.File(path, "w") as file, ps.options(decode=by):
        dataset = file.create("x", shape=values.shape, dtype=values.dtype, **keys)
        request = dataset.write_async(ps.DeviceArray.from_numpy(values))
        request.wait()
        return request.report


def assert_read(path, values, name="x"):
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[name][...], values)


@pytest.mark.parametrize(
    "keys",
    [
        {"compression": "gzip"},
        GZIP,
        GZIP | {"compression_opts": 1},
        GZIP | {"compression_opts": 9},
        GZIP | {"fletcher32": True},
        {"compression": "gzip", "fletcher32": True},
    ],
)
@pytest.mark.parametrize("dtype", ["u1", "<f4", ">f8", "i2"])
def test_h5py_reads_what_the_gpu_has_encoded(tmp_path, keys, dtype):
    values = field(300, 200, dtype=dtype)
    report = written(tmp_path / "f.h5", values, chunks=(64, 64), **keys)
    assert report.decoded_gpu == 5 * 4 * 64 * 64 * values.itemsize
    assert report.decoded_cpu == 0
    assert_read(tmp_path / "f.h5", values)


READERS = {
    "tables": "import tables; found = tables.open_file(path).root.x[:]",
    "netCDF4": "import netCDF4; found = numpy.asarray(netCDF4.Dataset(path)['x'][:])",
}
"""Programs of libraries that bring an HDF5 of their own, each for a process of its own."""


@pytest.mark.parametrize("library", READERS)
def test_other_libraries_read_what_the_gpu_has_encoded(tmp_path, library):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    values = field(300, 200)
    written(tmp_path / "f.h5", values, chunks=(64, 64), **GZIP, fletcher32=True)
    np.save(tmp_path / "x.npy", values)
    program = (
        "import sys, numpy\n"
        "path, expected = sys.argv[1:]\n"
        f"{READERS[library]}\n"
        "numpy.testing.assert_array_equal(found, numpy.load(expected))\n"
    )
    command = [sys.executable, "-c", program, tmp_path / "f.h5", tmp_path / "x.npy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="h5dump is not installed")
def test_h5dump_reads_what_the_gpu_has_encoded(tmp_path):
    values = field(300, 200, dtype="i4")
    written(tmp_path / "f.h5", values, chunks=(64, 64), **GZIP)
    command = ["h5dump", "-y", "-w", "0", "-d", "/x", tmp_path / "f.h5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    data = done.stdout.partition("DATA {")[2].partition("}")[0]
    found = np.array([int(word) for word in data.replace(",", " ").split()])
    np.testing.assert_array_equal(found.reshape(values.shape), values)


@pytest.mark.parametrize("fillvalue", [None, 7])
def test_elements_outside_the_array_hold_the_fill_value(tmp_path, fillvalue):
    values = field(70, 50)
    keys = {"chunks": (32, 32), "fillvalue": fillvalue, "maxshape": (None, None)}
    report = written(tmp_path / "f.h5", values, **GZIP, **keys)
    assert report.decoded_cpu == 0
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        file["x"].resize((96, 64))
        expected = np.full((96, 64), fillvalue or 0, "f4")
        expected[:70, :50] = values
        np.testing.assert_array_equal(file["x"][...], expected)


def test_the_rest_of_chunks_that_are_written_in_part_stays(tmp_path):
    values = field(100, 100)
    new = -field(60, 70)
    written(tmp_path / "f.h5", values, chunks=(16, 16), **GZIP)
    with ps.File(tmp_path / "f.h5", "r+") as file, ps.options(decode="gpu"):
        request = file["x"].write_async(ps.DeviceArray.from_numpy(new), np.s_[5:65, 20:90])
        request.wait()
        report = request.report
    assert report.decoded_gpu > 0
    assert report.decoded_cpu > 0
    values[5:65, 20:90] = new
    assert_read(tmp_path / "f.h5", values)


def test_memory_that_is_not_contiguous_is_gathered(tmp_path, cuda_interface):
    all_rows = ps.DeviceArray.from_numpy(field(200, 300))
    every_second = cuda_interface(all_rows, shape=(100, 300), strides=(2400, 4))
    with ps.File(tmp_path / "f.h5", "w") as file, ps.options(decode="gpu"):
        dataset = file.create("x", shape=(100, 300), dtype="f4", chunks=(32, 100), **GZIP)
        dataset.write(every_second)
    assert_read(tmp_path / "f.h5", field(200, 300)[::2])


def test_numbers_are_converted_before_they_are_encoded(tmp_path):
    values = field(128, 128)
    with ps.File(tmp_path / "f.h5", "w") as file, ps.options(decode="gpu"):
        dataset = file.create("x", shape=values.shape, dtype=">f8", chunks=(50, 50), **GZIP)
        dataset.write(ps.DeviceArray.from_numpy(values))
    assert_read(tmp_path / "f.h5", values.astype("f8"))


def test_large_writes_are_encoded_by_the_gpu(tmp_path):
    values = field(2 << 20)
    report = written(tmp_path / "f.h5", values, by="auto", chunks=(1 << 18,), **GZIP)
    assert report.decoded_gpu == values.nbytes
    assert_read(tmp_path / "f.h5", values)


def test_small_writes_are_left_to_the_cpu(tmp_path):
    values = field(256, 256)
    report = written(tmp_path / "f.h5", values, by="auto", chunks=(64, 64), **GZIP)
    assert report.decoded_gpu == 0


def test_high_levels_are_left_to_the_cpu(tmp_path):
    values = field(2 << 20)
    keys = GZIP | {"compression_opts": 9, "chunks": (1 << 18,)}
    assert written(tmp_path / "f.h5", values, by="auto", **keys).decoded_gpu == 0


def test_decode_cpu_leaves_all_to_the_cpu(tmp_path):
    values = field(2 << 20)
    report = written(tmp_path / "f.h5", values, by="cpu", chunks=(1 << 18,), **GZIP)
    assert report.decoded_gpu == 0


def test_a_file_is_the_same_size_within_5_percent_of_zlib_level_1(tmp_path):
    values = field(1 << 20)
    written(tmp_path / "gpu.h5", values, chunks=(1 << 18,), **GZIP)
    with h5py.File(tmp_path / "h5py.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(1 << 18,), **GZIP, compression_opts=1)
        theirs = file["x"].id.get_storage_size()
    with h5py.File(tmp_path / "gpu.h5") as file:
        assert file["x"].id.get_storage_size() <= 1.05 * theirs


def test_workers_continue_after_encoded_chunks_had_to_wait(tmp_path):
    # More than the limit of what may wait, which is the scratch, while no thread takes a step.
    values = np.random.default_rng(1).integers(0, 1 << 62, 1 << 20, "i8")
    with ps.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create("x", shape=values.shape, dtype="i8", chunks=(1 << 13,), **GZIP)
        with ps.options(decode="gpu", scratch="2MiB", threads=12):
            request = dataset.write_async(ps.DeviceArray.from_numpy(values))
        time.sleep(3)
        request.wait(60)
    assert_read(tmp_path / "f.h5", values)


def test_elements_as_large_as_a_chunk_are_left_to_the_cpu(tmp_path):
    dtype = np.dtype(("f4", (1024, 2048)))
    values = field(2, 1024, 2048)
    with ps.File(tmp_path / "f.h5", "w") as file, ps.options(decode="gpu"):
        dataset = file.create("x", shape=(2,), dtype=dtype, chunks=(1,), compression="gzip")
        dataset.write(ps.DeviceArray.from_numpy(values))
    assert_read(tmp_path / "f.h5", values)


def test_little_scratch_makes_smaller_batches(tmp_path):
    values = field(4 << 20)
    with ps.options(scratch="2MiB"):
        report = written(tmp_path / "f.h5", values, chunks=(1 << 14,), **GZIP)
    assert report.decoded_gpu == values.nbytes
    assert_read(tmp_path / "f.h5", values)


ONLY_STANDIN = pytest.mark.skipif(
    "standin" not in os.environ.get("PENSTOCK_CUDA_LIBRARY", ""),
    reason="only the stand-in GPU can be given less memory",
)


def run_with_memory(size, program, path):
    """Run a program on a GPU that has so much memory."""
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        env=os.environ | {"CUDASIM_MEMORY": size},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@ONLY_STANDIN
def test_a_gpu_without_memory_leaves_chunks_to_the_cpu(tmp_path):
    program = (
        "import sys, numpy as np, penstock as ps\n"
        "values = ps.DeviceArray.from_numpy(np.arange(4 << 20, dtype='f4'))\n"
        "with ps.File(sys.argv[1], 'w') as file, ps.options(decode='gpu'):\n"
        "    made = file.create('x', (4 << 20,), 'f4', chunks=(1 << 18,), compression='gzip')\n"
        "    request = made.write_async(values)\n"
        "    request.wait()\n"
        "    assert request.report.decoded_cpu == 16 << 20, request.report\n"
    )
    path = tmp_path / "f.h5"
    run_with_memory("64M", program, path)
    assert_read(path, np.arange(4 << 20, dtype="f4"))


@ONLY_STANDIN
def test_chunks_for_the_cpu_wait_for_memory_that_the_gpu_uses(tmp_path):
    # The last chunk of each row of chunks has stored elements, so that the CPU encodes it.
    program = (
        "import sys, numpy as np, penstock as ps\n"
        "values = np.arange(128 * 102336, dtype='f4').reshape(128, 102336)\n"
        "values = ps.DeviceArray.from_numpy(values)\n"
        "with ps.File(sys.argv[1], 'w') as file, ps.options(decode='gpu'):\n"
        "    made = file.create('x', (128, 102400), 'f4', chunks=(16, 256), compression='gzip')\n"
        "    made.write(np.ones((128, 1), 'f4'), np.s_[:, 102399:])\n"
        "    made.write(values, np.s_[:, :102336])\n"
    )
    path = tmp_path / "f.h5"
    run_with_memory("102M", program, path)
    with h5py.File(path) as file:
        found = file["x"][...]
    assert np.array_equal(found[:, :102336].ravel(), np.arange(128 * 102336, dtype="f4"))
    assert (found[:, 102399] == 1).all()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_block_of_any_chunks_is_encoded_as_h5py_reads_it(tmp_path_factory, data):
    shape = data.draw(st.tuples(st.integers(1, 90), st.integers(1, 70)))
    chunks = data.draw(st.tuples(st.integers(1, shape[0]), st.integers(1, shape[1])))
    dtype = data.draw(st.sampled_from(["u1", "i2", "<f4", ">i4", "f8"]))
    keys = data.draw(st.sampled_from([GZIP, {"compression": "gzip"}, GZIP | {"fletcher32": True}]))
    rows = sorted(data.draw(st.tuples(*[st.integers(0, shape[0])] * 2)))
    values = field(*shape, dtype=dtype)
    new = field(rows[1] - rows[0], shape[1], dtype=dtype)[::-1].copy()
    path = tmp_path_factory.mktemp("any") / "f.h5"
    written(path, values, chunks=chunks, **keys)
    with ps.File(path, "r+") as file, ps.options(decode="gpu"):
        file["x"].write(ps.DeviceArray.from_numpy(new), np.s_[rows[0] : rows[1]])
    values[rows[0] : rows[1]] = new
    assert_read(path, values)
