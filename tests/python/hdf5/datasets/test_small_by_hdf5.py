"""Small reads and writes of datasets that may change: HDF5 itself carries them out."""

from __future__ import annotations

import io
import signal
import threading

import h5py
import numpy as np
import pytest

import penstock as ps

ROWS = np.arange(4000, dtype="i4").reshape(200, 20)


@pytest.fixture
def file(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as made:
        keys = {"chunks": (16, 20), "maxshape": (None, 20), "compression": "gzip"}
        made.h5py.create_dataset("x", data=ROWS, **keys)
        yield made


def by_hdf5() -> bool:
    return ps.last_report().route == "hdf5" and "HDF5 is faster" in ps.last_report().note


@pytest.mark.parametrize("selection", [np.s_[3], np.s_[3, 4], np.s_[5:9, ::3], [1, 2, 7], ...])
@pytest.mark.parametrize("dtype", [None, "f8", ">i2", "u1"])
def test_few_elements_are_those_of_h5py(file, selection, dtype):
    theirs = file["x"].h5py[selection] if dtype is None else file["x"].h5py.astype(dtype)[selection]
    ours = file["x"].read(selection, dtype=dtype)
    assert by_hdf5()
    assert type(ours) is type(theirs)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    out = np.zeros((2, *np.shape(theirs)), theirs.dtype)
    file["x"].read(selection, out=out[1, ...])
    np.testing.assert_array_equal(out[1], theirs)
    assert not out[0].any()


@pytest.mark.parametrize(
    ("selection", "value"),
    [
        (3, 7),
        (np.s_[3, 4], np.float32(2.5)),
        (np.s_[5:9], np.arange(20)),
        (np.s_[5:9, ::7], np.arange(24, dtype="f4")[::2].reshape(4, 3)),
        (np.s_[2:4, 0], [1, 2]),
        ([1, 2, 7], np.ones((3, 20), ">i4")),
    ],
)
def test_few_elements_are_written_as_by_h5py(file, selection, value):
    file["x"][selection] = value
    assert by_hdf5()
    expected = ROWS.copy()
    expected[selection] = value
    np.testing.assert_array_equal(file["x"].h5py[...], expected)


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (np.float32(1), 2.5),
        (np.float32(1), True),
        (np.float32(1), 1j),
        (np.uint8(1), 300),
        (np.uint8(1), np.int64(7)),
        (np.bool_(False), True),
        (np.complex64(0), 3 + 4j),
        ("a", "text"),
        ("a", b"text \xff"),
        ("a", 5),
        (["a", "b"], "text"),
        (np.array([b"ab", b"cd"]), b"longer"),
        (np.arange(4), b"12"),
        (np.arange(4.0), b"7"),
        (np.arange(4.0), "7"),
    ],
)
def test_scalars_and_text_are_written_as_by_h5py(tmp_path, stored, value):
    found = []
    for kind in (ps.File, h5py.File):
        with kind(tmp_path / "f.h5", "w") as file:
            file["x"] = stored
            part = () if file["x"].shape == () else 1
            try:
                file["x"][part] = value
            except (TypeError, OverflowError, ValueError) as error:
                found.append(type(error))
        with h5py.File(tmp_path / "f.h5") as file:
            found.append(file["x"][()])
    assert len(found) % 2 == 0
    np.testing.assert_equal(found[: len(found) // 2], found[len(found) // 2 :])


@pytest.mark.parametrize("count", [3, 50_000])
@pytest.mark.parametrize(
    "act",
    [
        lambda file, given: file.create_dataset("c", data=given, dtype="c8"),
        lambda file, given: file["x"].write(given),
        lambda file, given: file["x"].write_async(given).wait(),
    ],
    ids=["create", "write", "write_async"],
)
def test_structures_without_a_common_field_are_refused_as_by_h5py(tmp_path, count, act):
    given = np.ones(count, [("a", "f4"), ("b", "f4")])
    with ps.File(tmp_path / "f.h5", "w") as file:
        kept = file.create_dataset("x", (count,), [("x", "f4"), ("y", "i4")])
        with pytest.raises(ValueError, match="must be positive"):
            act(file, given)
        kept[...] = np.ones(count, [("x", "f4"), ("b", "f4")])
        assert (kept["x"] == 1).all()


def test_arrays_without_elements_may_have_more_dimensions_as_by_h5py(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        empty, rows = file.create_dataset("e", (0,), "f8"), file.create_dataset("x", (3, 4), "f8")
        empty[...] = np.zeros((0, 0))
        rows[0:0] = np.zeros((0, 1, 4))
        with pytest.raises(TypeError, match="broadcast"):
            rows[0:1] = np.zeros((0, 1, 4))


def test_a_scalar_of_a_file_that_is_open_for_reading_is_not_written(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = 1.0
    with ps.File(tmp_path / "f.h5") as file, pytest.raises(ps.PermissionDeniedError):
        file["x"][()] = 2.0


@pytest.mark.parametrize("keys", [{}, {"chunks": (16,)}, {"chunks": (16,), "compression": "gzip"}])
@pytest.mark.parametrize("dtype", ["f4", "bool", "c8", ">i2"])
def test_the_few_numbers_of_a_new_dataset_are_those_given(tmp_path, keys, dtype):
    numbers = np.arange(100).astype(dtype)
    with ps.File(tmp_path / "f.h5", "w") as file:
        made = file.create_dataset("x", data=numbers, **keys)
        assert np.array_equal(made[:], numbers)
        made[3] = numbers[9]
    with h5py.File(tmp_path / "f.h5") as file:
        assert file["x"].dtype == dtype
        assert file["x"][3] == numbers[9]
        assert np.array_equal(file["x"][4:], numbers[4:])


def test_the_shape_is_that_of_the_moment(file):
    dataset = file["x"]
    assert dataset[-1, -1] == 3999
    dataset.resize(300, axis=0)
    dataset[-1] = 5
    assert dataset[-1].tolist() == [5] * 20
    dataset.h5py.resize(100, axis=0)
    assert dataset[-1, 0] == 1980
    with pytest.raises((IndexError, ValueError)):
        dataset[100]


def test_a_small_transfer_comes_after_the_pending_ones(file):
    dataset = file["x"]
    written = dataset.write_async(ROWS + 1)
    np.testing.assert_array_equal(dataset[3], ROWS[3] + 1)
    read = dataset.read_async()
    dataset[3] = 0
    np.testing.assert_array_equal(read.wait(), ROWS + 1)
    written.wait()
    assert not dataset[3].any()


def test_single_elements_are_for_a_transfer(file):
    mask = np.zeros(ROWS.shape, bool)
    mask[3, 4] = mask[100, 7] = True
    assert file["x"][mask].tolist() == ROWS[mask].tolist()


def test_a_durable_write_is_no_small_one(file):
    with ps.options(durable=True):
        file["x"][3] = 1
    assert "HDF5 is faster" not in ps.last_report().note
    assert file["x"][3].tolist() == [1] * 20


def test_an_array_that_is_given_keeps_what_was_never_written(file):
    keys = {"chunks": (10,), "fill_time": "never"}
    made = ps.File(file.h5py).create_dataset("holes", shape=(40,), dtype="i4", **keys)
    made[:10] = 1
    out = np.full(20, 7, "i4")
    made.read(np.s_[:20], out=out)
    assert out.tolist() == [1] * 10 + [7] * 10
    assert made[:20].tolist() == [1] * 10 + [0] * 10


def test_other_threads_run_while_a_small_read_waits(file):
    noise = np.random.default_rng(1).integers(0, 1 << 20, (4000, 2000), dtype="i4")
    keys = {"chunks": (100, 2000), "compression": "gzip", "compression_opts": 9}
    made = ps.File(file.h5py).create_dataset("large", shape=noise.shape, dtype="i4", **keys)
    steps, ends = [0], threading.Event()

    def count() -> None:
        while not ends.wait(0.001):
            steps[0] += 1

    other = threading.Thread(target=count)
    other.start()
    written = made.write_async(noise)
    before = steps[0]
    assert made[3999, 1999] == noise[3999, 1999]
    seen = steps[0] - before
    ends.set()
    other.join()
    written.wait()
    assert seen > 10


def test_a_signal_handler_that_opens_another_reader_changes_nothing(file):
    kinds = ["f8", "i1", ">u2", "i8"] * 50
    for number, kind in enumerate(kinds):
        file.h5py[f"d{number}"] = np.arange(1, 5).astype(kind)
    read, is_inside = 0, False

    def handle(*_: object) -> None:
        nonlocal read, is_inside
        if not is_inside:  # the next signal may come before the handler ends
            read, is_inside = read + 1, True
            assert file[f"d{read % 200}"][...].tolist() == [1, 2, 3, 4]
            is_inside = False

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        for _ in range(5):
            for number, kind in enumerate(kinds):
                found = file[f"d{number}"][...]
                assert (found.dtype, found.tolist()) == (np.dtype(kind), [1, 2, 3, 4])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert read


def test_a_field_is_read_from_few_structures(file):
    values = np.array([(1, 2.5, b"ab"), (3, 4.5, b"c")], [("a", "i4"), ("b", ">f8"), ("s", "S3")])
    made = ps.File(file.h5py)
    made.h5py["records"] = values
    for name in ("a", "b", "s"):
        for selection in (name, (name, 1), np.s_[0:1, name], (..., name)):
            ours, theirs = made["records"][selection], made["records"].h5py[selection]
            assert by_hdf5()
            assert type(ours) is type(theirs)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("close", [lambda file: file.close(), lambda file: file.h5py.close()])
def test_a_transfer_of_a_closed_dataset_says_so(file, close):
    dataset = file["x"]
    assert dataset[3, 4] == 64
    close(file)
    for call in (
        lambda: dataset[3],
        lambda: dataset.read(3, dtype="f8"),
        lambda: dataset.read(3, out=np.zeros(20, "f4")),
        lambda: dataset.write(np.zeros(20), 3),
        lambda: dataset.write(0, 3),
    ):
        with pytest.raises(ps.InvalidError, match="closed"):
            call()


class Failing(io.BytesIO):
    fails = False

    def readinto(self, buffer):
        if self.fails:
            raise KeyError("of the file object")
        return super().readinto(buffer)


def test_an_exception_of_a_file_object_is_raised():
    memory = Failing()
    with h5py.File(memory, "w") as made:
        made.create_dataset("x", data=np.arange(1 << 16), chunks=(1 << 14,))
    with h5py.File(memory, "r+") as opened:
        assert ps.read(opened["x"], 3) == 3
        memory.fails = True
        with pytest.raises(KeyError, match="of the file object"):
            ps.read(opened["x"], 1 << 15)
        memory.fails = False
        assert ps.read(opened["x"], 1 << 15) == 1 << 15


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
@pytest.mark.parametrize("fill_time", ["alloc", "never"])
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("dtype", ["f4", ">i2"])
def test_a_part_of_a_file_open_for_writing_is_what_the_file_has_in_gpu_memory(
    tmp_path, fill_time, is_new, dtype
):
    with ps.File(tmp_path / "f.h5", "w") as file:
        made = {"shape": (64, 32), "chunks": (16, 32), "dtype": dtype, "fill_time": fill_time}
        dataset = file.create_dataset("x", compression="gzip", fillvalue=7, **made)
        stored = np.arange(16 * 32, dtype=dtype).reshape(16, 32)
        dataset[16:32] = stored
        rows = np.s_[8:40:4]
        if is_new:
            found, unwritten = dataset.read(rows, device="cuda").numpy(), 0
        else:
            out = ps.DeviceArray.from_numpy(np.full((8, 32), 5, np.dtype(dtype).newbyteorder("=")))
            dataset.read(rows, out=out)
            found, unwritten = out.numpy(), 5
        expected = np.full((8, 32), 7 if fill_time == "alloc" else unwritten)
        expected[2:6] = stored[::4]
        np.testing.assert_array_equal(found, expected)
        # HDF5 leaves memory as it is that only the caller knows.
        assert by_hdf5() == (is_new or fill_time == "alloc")


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_a_dataset_that_has_grown_is_read_whole_into_gpu_memory(file):
    dataset = file["x"]
    for length in (200, 5000, 300, 90_000):
        dataset.resize(length, axis=0)
        dataset[length - 1] = length
        expected = dataset.h5py[...]
        np.testing.assert_array_equal(dataset.read(device="cuda").numpy(), expected)
        np.testing.assert_array_equal(dataset.read_async(device="cuda").wait().numpy(), expected)


def test_a_dataset_that_hdf5s_cache_holds_is_hdf5s_from_the_second_time_on(tmp_path):
    values = np.arange(1 << 18, dtype="f4").reshape(512, 512)
    with ps.File(tmp_path / "f.h5", "w") as file:
        keys = {"chunks": (64, 512), "compression": "gzip"}
        dataset = file.create_dataset("x", values.shape, "f4", **keys)
        for step in range(4):
            dataset[...] = values + step
            assert by_hdf5() == (step > 0)
            np.testing.assert_array_equal(dataset[...], values + step)
            assert by_hdf5() == (step > 0)
            np.testing.assert_array_equal(dataset.h5py[::3], values[::3] + step)
        large = file.create_dataset("large", (1 << 13, 512), "f4", **keys)
        for step in range(3):
            large[:4096] = step
            assert not by_hdf5()
    with h5py.File(tmp_path / "f.h5") as file:
        np.testing.assert_array_equal(file["x"][...], values + 3)


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_a_dataset_that_another_thread_resizes_is_read_into_gpu_memory(file):
    dataset, stopped = file["x"], threading.Event()

    def resize():
        while not stopped.is_set():
            for length in (200, 300, 250):
                dataset.resize(length, axis=0)

    thread = threading.Thread(target=resize)
    thread.start()
    try:
        for _ in range(60):
            found = dataset.read(device="cuda").numpy()
            np.testing.assert_array_equal(found[:200], ROWS)
    finally:
        stopped.set()
        thread.join()


@pytest.mark.parametrize(
    "read",
    [
        lambda dataset: dataset[3],
        lambda dataset: dataset.read(3, threads=2),
        pytest.param(lambda dataset: dataset.read(3, device="cuda"), marks=pytest.mark.gpu),
    ],
)
def test_a_dataset_that_is_closed_after_a_read_is_refused(file, read):
    dataset = file["x"]
    read(dataset)
    file.close()
    with pytest.raises(ps.InvalidError, match="the dataset is closed"):
        read(dataset)


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_gpu_memory_gets_the_elements_of_a_source_that_was_resized(tmp_path):
    with ps.File(tmp_path / "f.h5", "w", libver="latest") as file:
        keys = {"chunks": (1, 5, 8), "maxshape": (None,) * 3}
        source = file.create_dataset("d", data=np.arange(40).reshape(1, 5, 8), **keys)
        layout = h5py.VirtualLayout((1, 5, 8), "i8")
        layout[...] = h5py.VirtualSource(source)
        file.create_virtual_dataset("v", layout)
        file["v"].read(np.s_[0, 0], device="cuda")
        source.resize((1, 4, 10))  # as many elements as before
        found = file["v"].read(device="cuda").numpy()
    with h5py.File(tmp_path / "f.h5") as file:
        np.testing.assert_array_equal(found, file["v"][...])


@pytest.mark.parametrize(("chunks", "route"), [(None, "hdf5"), ((100, 256), "host")])
def test_hdf5_copies_many_rows_unless_they_are_in_chunks(tmp_path, chunks, route):
    numbers = np.arange(2000 * 256, dtype="f4").reshape(2000, 256)
    with ps.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", data=numbers, chunks=chunks)
    with ps.File(tmp_path / "f.h5", "r+") as file:
        assert np.array_equal(file["x"][::7], numbers[::7])
    report = ps.last_report()
    assert report is not None
    assert report.route == route
