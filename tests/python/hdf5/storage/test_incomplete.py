"""Files that are not there, end early, or are still being written: what h5py says is right."""

from __future__ import annotations

import errno
import os

import h5py
import numpy as np
import pytest

import penstock as ps

# Below what h5py serves in host memory, below what it serves of contiguous data, and above.
SIZES = (16 << 10, 1 << 20, 12 << 20)

pytestmark = pytest.mark.usefixtures("penstock_arrays")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


@pytest.fixture(
    params=[{}, {"connector": "penstock_async"}],
    ids=["hdf5", "connector"],
)
def opening(request):
    """Keywords with which the file is opened: by HDF5 alone, or by the connector."""
    return request.param


@pytest.fixture(params=SIZES, ids=["16KiB", "1MiB", "12MiB"])
def rows(request):
    """How many rows of 1 KiB a dataset has."""
    return request.param >> 10


def numbers(rows):
    return np.arange(rows * 256, dtype="i4").reshape(rows, 256)


def to_host(array):
    return array.numpy() if isinstance(array, ps.DeviceArray) else array


def on(device, array):
    return ps.DeviceArray.from_numpy(array) if device == "cuda" else array


def external(path, rows, parts=2):
    """A file with a dataset in external files of equal size beside it."""
    each = rows // parts * 1024
    files = [(f"part{at}.bin", 0, each) for at in range(parts)]
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=numbers(rows), external=files)
    return [path.with_name(name) for name, _, _ in files]


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """The folder, from which HDF5 finds external files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_missing_external_file_is_an_error(inside, rows, device, opening):
    external(inside / "f.h5", rows)[1].unlink()
    with ps.File("f.h5", **opening) as file:
        with pytest.raises(OSError, match="external raw data file"):
            file["x"].read(device=device)
        with pytest.raises(OSError, match="external raw data file"):
            file["x"].read_async(device=device).wait()
        with pytest.raises(OSError, match="external raw data file"):
            file["x"].read(np.s_[::2, ::2], device=device)


@pytest.mark.usefixtures("nothing_is_small")
def test_the_error_names_the_missing_external_file_and_the_range(inside, device):
    missing = external(inside / "f.h5", 64)[1]
    missing.unlink()
    with ps.File("f.h5") as file, pytest.raises(ps.NotFoundError) as caught:
        file["x"].read(np.s_[40:50], device=device)
    assert caught.value.path == str(missing)
    assert caught.value.errno == errno.ENOENT
    assert (caught.value.offset, caught.value.length) == (8 << 10, 10 << 10)
    assert "HDF5_EXTFILE_PREFIX" in caught.value.remedy


def test_external_files_that_are_not_read_may_be_missing(inside, rows, device):
    external(inside / "f.h5", rows)[1].unlink()
    with ps.File("f.h5") as file:
        found = file["x"].read(np.s_[: rows // 2], device=device)
    np.testing.assert_array_equal(to_host(found), numbers(rows)[: rows // 2])


def test_an_external_file_that_ends_early_reads_as_zeros_behind_its_end(inside, rows, device):
    os.truncate(external(inside / "f.h5", rows)[1], 5000)
    with ps.File("f.h5") as file:
        expected = file.h5py["x"][()]
        found = file["x"].read(device=device)
    assert not expected[-1].any()
    np.testing.assert_array_equal(to_host(found), expected)


def test_a_virtual_dataset_over_a_missing_external_file_is_an_error(inside, rows, device):
    external(inside / "f.h5", rows)[1].unlink()
    layout = h5py.VirtualLayout((rows, 256), "i4")
    layout[:] = h5py.VirtualSource("f.h5", "x", (rows, 256))
    with h5py.File("v.h5", "w") as file:
        file.create_virtual_dataset("x", layout, fillvalue=7)
    with ps.File("v.h5") as file, pytest.raises(OSError, match="external raw data file"):
        file["x"].read(device=device)


def gone(source):
    source.unlink()


def looped(source):
    source.unlink()
    source.symlink_to(source)


def behind_a_file(source):
    """The path leads through what is not a folder."""
    folder = source.parent
    source.unlink()
    folder.rmdir()
    folder.write_text("")


def no_hdf5(source):
    source.write_bytes(b"text" * 1000)


def no_folder(source):
    source.unlink()
    source.mkdir()


def without_dataset(source):
    with h5py.File(source, "w") as file:
        file["y"] = 1


def a_dangling_link(source):
    with h5py.File(source, "w") as file:
        file["x"] = h5py.ExternalLink("gone.h5", "/x")


def a_dangling_soft_link(source):
    with h5py.File(source, "w") as file:
        file["x"] = h5py.SoftLink("/gone/x")


def a_group(source):
    with h5py.File(source, "w") as file:
        file.create_group("x")


@pytest.mark.parametrize(
    "harm",
    [
        gone,
        looped,
        behind_a_file,
        no_hdf5,
        no_folder,
        without_dataset,
        a_dangling_link,
        a_dangling_soft_link,
        a_group,
    ],
)
def test_a_virtual_source_that_is_not_there_reads_as_with_h5py(tmp_path, rows, device, harm):
    folder = tmp_path / "sources"
    folder.mkdir()
    layout = h5py.VirtualLayout((2 * rows, 256), "i4")
    for at in range(2):
        with h5py.File(folder / f"s{at}.h5", "w") as file:
            file["x"] = numbers(rows)
        layout[at * rows : (at + 1) * rows] = h5py.VirtualSource(
            str(folder / f"s{at}.h5"), "x", (rows, 256)
        )
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout, fillvalue=7)
    if harm is behind_a_file:
        (folder / "s0.h5").unlink()
    harm(folder / "s1.h5")
    with ps.File(tmp_path / "v.h5") as file:
        try:
            expected = file.h5py["x"][()]
        except OSError:
            with pytest.raises(OSError, match=r"HDF5|h5py|open|read"):
                file["x"].read(device=device)
        else:
            assert (expected[rows:] == 7).all()
            np.testing.assert_array_equal(to_host(file["x"].read(device=device)), expected)


LAYOUTS = {
    "contiguous": {},
    "filled": {"fillvalue": 9},
    "early": {"chunks": (16, 256), "alloc": h5py.h5d.ALLOC_TIME_EARLY},
    "incremental": {"chunks": (16, 256), "alloc": h5py.h5d.ALLOC_TIME_INCR},
}


def create(group, rows, layout):
    """A dataset of which nothing is filled before it is written."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    if "chunks" in layout:
        properties.set_chunk(layout["chunks"])
        properties.set_alloc_time(layout["alloc"])
    if "fillvalue" in layout:
        properties.set_fill_value(np.array(layout["fillvalue"], "i4"))
    space = h5py.h5s.create_simple((rows, 256))
    h5py.h5d.create(group.id, b"x", h5py.h5t.NATIVE_INT32, space, properties)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_was_not_written_yet_of_an_open_file_reads_as_with_h5py(
    tmp_path, rows, device, layout, opening
):
    with ps.File(tmp_path / "f.h5", "w", **opening) as file:
        create(file.h5py, rows, layout)
        file["x"].write(numbers(rows)[:10], np.s_[:10])
        before = np.zeros((rows, 256), "i4")
        file.h5py["x"].read_direct(before)
        assert (before[:10] == numbers(rows)[:10]).all()
        for selection in np.s_[:], np.s_[: rows // 2], np.s_[::2, :200], np.s_[5:]:
            expected = before[selection].copy()
            out = on(device, np.zeros(expected.shape, "i4"))
            file["x"].read(selection, out=out)
            np.testing.assert_array_equal(to_host(out), expected)
            found = file["x"].read_async(selection, device=device).wait()
            np.testing.assert_array_equal(to_host(found)[:5], expected[:5])
            found = file["x"].read(selection, device=device, dtype="f8")
            np.testing.assert_array_equal(to_host(found)[:5], expected[:5])


@pytest.mark.usefixtures("nothing_is_small")
def test_what_was_written_of_an_open_file_is_read_without_hdf5(tmp_path, device):
    with ps.File(tmp_path / "f.h5", "w") as file:
        create(file.h5py, 4096, {})
        file.h5py["x"][:100] = numbers(100)
        file.h5py.flush()
        os.truncate(tmp_path / "f.h5", 2048 + (100 << 10))
        found = file["x"].read(np.s_[:100], device=device)
        np.testing.assert_array_equal(to_host(found), numbers(100))
        assert ps.last_report().route != "hdf5"


def test_a_virtual_dataset_over_an_open_file_reads_what_was_not_written_as_h5py_does(
    tmp_path, rows, device
):
    with ps.File(tmp_path / "f.h5", "w") as file:
        create(file.h5py, rows, {})
        file["x"].write(numbers(rows)[:10], np.s_[:10])
        layout = h5py.VirtualLayout((rows, 256), "i4")
        layout[:] = h5py.VirtualSource(file.h5py["x"])
        file.h5py.create_virtual_dataset("v", layout)
        expected = file.h5py["v"][()]
        np.testing.assert_array_equal(to_host(file["v"].read(device=device)), expected)


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("chunks", [None, (16, 256)])
def test_a_file_that_was_cut_off_while_it_is_read_is_an_error(tmp_path, device, chunks):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", data=numbers(2048), chunks=chunks)
    with ps.File(tmp_path / "f.h5") as file:
        os.truncate(tmp_path / "f.h5", 1 << 20)
        with pytest.raises((ps.EndOfFileError, ps.IOFailure)):
            file["x"].read(device=device)
