"""HDF5 datasets, with h5py as the oracle."""

from __future__ import annotations

import gc
import os
import time

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import penstock as ps
from penstock._native import NULL, lib, pointer
from penstock.errors import check
from penstock.hdf5 import small
from penstock.hdf5.library import lock

FUNCTION_FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
LIMIT = small.LIMIT
BIG = np.arange(60_000, dtype="f4").reshape(200, 300)  # more than HDF5's sieve buffer holds


pytestmark = pytest.mark.usefixtures("nothing_is_small")


@pytest.fixture
def h5(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        yield file


@st.composite
def shapes_and_selections(draw):
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6))
    parts = []
    for length in shape:
        start = draw(st.integers(0, length))
        stop = draw(st.integers(start, length))
        step = draw(st.integers(1, 3))
        index = draw(st.integers(-length, length - 1))
        parts.append(draw(st.sampled_from([index, slice(start, stop, step), slice(None)])))
    parts = parts[: draw(st.integers(0, len(parts)))]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(parts)))
        # What follows an ellipsis selects from the last dimensions: whole ones always fit.
        parts = [*parts[:at], Ellipsis, *[slice(None)] * (len(parts) - at)]
    return shape, tuple(parts)


@settings(max_examples=50, deadline=None, suppress_health_check=FUNCTION_FIXTURES)
@given(
    case=shapes_and_selections(),
    dtype=st.sampled_from(["u1", "f4", "f8", "i2", "c16", "?", ">i4", "S3"]),
    layout=st.sampled_from(["contiguous", "chunked", "compact"]),
    user_block=st.sampled_from([0, 512, 4096]),
    reopened=st.booleans(),
)
def test_a_selection_reads_as_by_h5py(tmp_path, case, dtype, layout, user_block, reopened):
    shape, chosen = case
    contents = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    path = tmp_path / "f.h5"
    file = h5py.File(path, "w", userblock_size=user_block)
    try:
        make_dataset(file, "x", contents, layout)
        if reopened:
            file.close()
            file = h5py.File(path)
        expected = file["x"][chosen]
        found = ps.read(file["x"], chosen)
        assert type(found) is type(expected)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    finally:
        file.close()


@settings(max_examples=30, deadline=None, suppress_health_check=FUNCTION_FIXTURES)
@given(
    rows=st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(1, 3)),
    columns=st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(1, 3)),
    layout=st.sampled_from(["contiguous", "chunked"]),
    before=st.booleans(),
)
def test_reads_and_writes_of_both_see_each_other(tmp_path, memory, rows, columns, layout, before):
    """Whatever HDF5 holds in its buffers: small h5py reads and writes surround ours."""
    chosen = (
        slice(*sorted(rows[:2]), rows[2]),
        slice(*sorted(columns[:2]), columns[2]),
    )
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = make_dataset(file, "x", BIG, layout)
        expected = BIG.copy()
        if before:
            dataset[0, :3] = expected[0, :3] = -1  # stays in the sieve buffer
            _ = dataset[199, 5]
        part = np.full(expected[chosen].shape, 7, "f4")
        expected[chosen] = part
        ps.write(dataset, memory.array(part), chosen)
        np.testing.assert_array_equal(dataset[0:2, :5], expected[0:2, :5])
        np.testing.assert_array_equal(dataset[...], expected)
        dataset[100, 100] = expected[100, 100] = 9
        out = memory.empty(expected.shape, "f4")
        ps.read(dataset, out=out)
        np.testing.assert_array_equal(memory.numpy(out), expected)
    with h5py.File(tmp_path / "f.h5") as file:
        np.testing.assert_array_equal(file["x"][...], expected)


def make_dataset(file, name, contents, layout):
    if layout == "chunked":
        chunks = tuple(max(1, n // 2) for n in contents.shape)
        return file.create_dataset(name, data=contents, chunks=chunks)
    if layout == "compact":
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(contents.shape)
        kind = h5py.h5t.py_create(contents.dtype, logical=True)
        dataset = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, properties))
        dataset[...] = contents
        return dataset
    return file.create_dataset(name, data=contents)


def test_a_raw_write_is_seen_through_the_sieve_buffer(h5):
    dataset = h5.create_dataset("x", data=BIG)
    h5.flush()
    np.testing.assert_array_equal(dataset[0, :10], BIG[0, :10])  # fills the sieve buffer
    ps.write(dataset, np.zeros(300, "f4"), np.s_[0])
    assert not dataset[0, :10].any()
    dataset[0, 0] = 5  # a small write must not bring back what the buffer held
    h5.flush()
    np.testing.assert_array_equal(ps.read(dataset, np.s_[0, :3]), [5, 0, 0])


def test_a_dataset_that_fits_into_the_sieve_buffer_is_written(h5):
    dataset = h5.create_dataset("x", data=np.arange(10))
    assert dataset[3] == 3
    ps.write(dataset, np.zeros(10, int))
    assert not dataset[...].any()


def test_what_is_small_goes_through_hdf5(h5, monkeypatch):
    monkeypatch.setattr(small, "LIMIT", LIMIT)
    keys = {"chunks": (40_000,), "compression": "gzip"}
    dataset = h5.create_dataset("x", data=np.arange(40_000), **keys)
    found = ps.read(dataset, np.s_[:10])
    np.testing.assert_array_equal(found, np.arange(10))
    assert (ps.last_report().route, ps.last_report().paths) == ("hdf5", {"hdf5": 80})
    assert "small read" in ps.last_report().note
    out = np.empty(10)
    ps.read(dataset, np.s_[:10], out=out)
    np.testing.assert_array_equal(out, np.arange(10))
    ps.write(dataset, out + 1, np.s_[:10])
    assert ps.last_report().route == "hdf5"
    # HDF5's cache serves up to half a chunk.
    found = ps.read(dataset, np.s_[:30_000])
    np.testing.assert_array_equal(found, [*range(1, 11), *range(10, 30_000)])
    assert ps.last_report().route != "hdf5"


def test_few_elements_of_more_chunks_than_hdf5_keeps_are_not_small(h5, monkeypatch):
    monkeypatch.setattr(small, "LIMIT", LIMIT)
    whole = np.arange(1_000_000).reshape(1000, 1000)
    keys = {"data": whole, "chunks": (10, 1000)}  # 80 kB each
    kept = h5.create_dataset("kept", compression="gzip", rdcc_nbytes=16_000_000, **keys)
    few = h5.create_dataset("few", compression="gzip", rdcc_nbytes=1_600_000, **keys)
    plain = h5.create_dataset("plain", rdcc_nbytes=800, **keys)
    for dataset, chosen, is_small in (
        (kept, np.s_[:, 5], True),
        (few, np.s_[:200, 5], True),
        (few, np.s_[:, 5], False),
        (plain, np.s_[:, 5], True),  # HDF5 reads no more than the elements
    ):
        h5.flush()
        out = np.empty(whole[chosen].shape, whole.dtype)
        for read in (
            lambda d=dataset, c=chosen: ps.read(d, c),
            lambda d=dataset, c=chosen: ps.read(d, c, dtype=whole.dtype),
            lambda d=dataset, c=chosen, o=out: ps.read(d, c, out=o),
        ):
            np.testing.assert_array_equal(read(), whole[chosen])
            assert ("small" in ps.last_report().note) == is_small, (dataset.name, chosen)
        ps.write(dataset, out + 1, chosen)
        assert ("small" in ps.last_report().note) == is_small, (dataset.name, chosen)
        np.testing.assert_array_equal(dataset[chosen], out + 1)
        ps.write(dataset, out, chosen)


def test_what_needs_no_work_is_small_for_longer(h5, monkeypatch):
    monkeypatch.setattr(small, "LIMIT", LIMIT)
    dataset = h5.create_dataset("x", data=np.arange(2_000_000).reshape(20_000, 100))
    ps.read(dataset, np.s_[5:5000])
    assert ps.last_report().route == "hdf5"
    for chosen, dtype in ((np.s_[:12_000], None), (np.s_[5:5000], "f4"), (np.s_[:, :5], None)):
        ps.read(dataset, chosen, dtype=dtype)
        assert ps.last_report().route != "hdf5", chosen


def test_storage_that_is_not_allocated_reads_as_the_fill_value(tmp_path):
    for user_block in (0, 512):
        with h5py.File(tmp_path / "f.h5", "w", userblock_size=user_block) as file:
            dataset = file.create_dataset("x", (300, 300), "f4", fillvalue=3)
            assert (ps.read(dataset) == 3).all()
            ps.write(dataset, np.ones((300, 300), "f4"))
            ps.write(dataset, np.zeros(300, "f4"), np.s_[1])
            assert dataset[0, 0] == 1
            assert dataset[1, 0] == 0


def test_every_layout_and_type_reads_as_by_h5py(tmp_path, h5):
    external = [(str(tmp_path / "e.bin"), 0, h5py.h5f.UNLIMITED)]
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource(h5.filename, "chunked", (4,))
    four = np.arange(4, dtype="f4")
    compound = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
    datasets = {
        "chunked": h5.create_dataset("chunked", data=four, chunks=(2,)),
        "zipped": h5.create_dataset("zipped", data=four, compression="gzip"),
        "virtual": h5.create_virtual_dataset("virtual", layout),
        "external": h5.create_dataset("external", data=four, external=external),
        "big-endian": h5.create_dataset("be", data=four.astype(">f4")),
        "compound": h5.create_dataset("compound", data=compound),
        "strings": h5.create_dataset("strings", data=["a", "bcd"]),
    }
    for name, dataset in datasets.items():
        np.testing.assert_array_equal(ps.read(dataset), dataset[()], err_msg=name)
        report = ps.last_report()
        assert (report.route == "hdf5") <= bool(report.note), name
        assert (report.decoder == "CPU") == (name == "zipped")


@pytest.mark.parametrize(
    "keys",
    [
        {"compression": "gzip"},
        {"compression": "lzf"},
        {"compression": "szip", "compression_opts": ("nn", 2)},
        {"shuffle": True, "fletcher32": True},
    ],
)
@pytest.mark.parametrize("chunks", [(100, 40), (30, 40), (25, 7)])
def test_chunks_that_no_filter_shrinks_are_read_at_once_by_h5py(tmp_path, keys, chunks):
    """HDF5 remembers of a chunk that it was filtered, or was not, when that has changed."""
    random = np.random.default_rng(1)
    noise = random.integers(0, 256, (100, 40), np.uint8)
    smooth = np.zeros((100, 40), np.uint8)
    with h5py.File(tmp_path / "f.h5", "w", libver="latest") as file:
        ours = file.create_dataset("x", (100, 40), "u1", chunks=chunks, **keys)
        for whole in (noise, smooth, noise, noise + np.uint8(1)):
            ps.write(ours, whole)
            np.testing.assert_array_equal(ours[...], whole)
            np.testing.assert_array_equal(ps.read(ours), whole)
        expected = noise + np.uint8(1)
        for i in range(30):
            row = random.integers(0, 100)
            expected[row] = i
            ps.write(ours, expected[row], row)
            np.testing.assert_array_equal(ours[...], expected)
    with h5py.File(tmp_path / "f.h5") as file:
        np.testing.assert_array_equal(file["x"][...], expected)


def test_what_only_hdf5_can_read_says_so(h5):
    h5["strings"] = ["a", "bcd"]
    h5["lists"] = np.array([np.arange(3), np.arange(2)], dtype=h5py.vlen_dtype("i4"))
    h5["references"] = np.array([h5.ref], dtype=h5py.ref_dtype)
    for dataset in h5.values():
        ps.read(dataset)
        report = ps.last_report()
        assert (report.route, set(report.paths)) == ("hdf5", {"hdf5"})
        assert "stored elsewhere" in report.note


@pytest.mark.parametrize("key", [[0, 2], np.array([True, False, True, False]), ([1], slice(2))])
def test_fancy_selections_are_those_of_h5py(h5, key):
    dataset = h5.create_dataset("x", data=BIG[:4])
    np.testing.assert_array_equal(ps.read(dataset, key), dataset[key])


@pytest.mark.parametrize("key", [np.s_[::-1], 1000, np.s_[0, 0, 0], None, "name", np.s_[..., ...]])
def test_what_h5py_refuses_is_refused(h5, key):
    dataset = h5.create_dataset("x", data=BIG)
    with pytest.raises((ValueError, TypeError, IndexError)):
        ps.read(dataset, key)


def test_scalars_and_empty_datasets_are_those_of_h5py(h5):
    h5["scalar"] = 3.5
    h5["null"] = h5py.Empty("f4")
    h5["none"] = np.zeros((3, 0))
    h5["text"] = "hello"
    for name in h5:
        expected = h5[name][()]
        found = ps.read(h5[name])
        assert type(found) is type(expected), name
        np.testing.assert_equal(found, expected)
    zero_dimensional = ps.read(h5["scalar"], ...)
    assert isinstance(zero_dimensional, np.ndarray)
    assert zero_dimensional.shape == ()
    ps.write(h5["scalar"], 4.5)
    ps.write(h5["none"], np.zeros((3, 0)))
    assert ps.read(h5["scalar"]) == 4.5


def test_a_type_is_converted_on_the_way(h5):
    dataset = h5.create_dataset("x", data=BIG)
    found = ps.read(dataset, np.s_[:2], dtype="f8")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, BIG[:2])
    out = np.empty((2, 300), "i4")
    ps.read(dataset, np.s_[:2], out=out)
    np.testing.assert_array_equal(out, BIG[:2])
    ps.write(dataset, np.ones((200, 300), "i4"))
    assert (dataset[...] == 1).all()


def test_an_out_of_another_shape_is_refused_and_both_are_named(h5):
    dataset = h5.create_dataset("x", data=BIG)
    with pytest.raises(ValueError, match=r"\(3, 300\).*\(2, 300\)"):
        ps.read(dataset, np.s_[:2], out=np.empty((3, 300), "f4"))
    chunked = h5.create_dataset("c", data=BIG, chunks=True)
    with pytest.raises(ValueError, match=r"\(3, 300\).*\(2, 300\)"):
        ps.read(chunked, np.s_[:2], out=np.empty((3, 300), "f4"))


def test_an_out_that_is_not_contiguous_is_filled(h5):
    dataset = h5.create_dataset("x", data=BIG)
    out = np.zeros((300, 200), "f4")
    ps.read(dataset, out=out.T)
    np.testing.assert_array_equal(out.T, BIG)


def test_a_value_that_h5py_broadcasts_is_broadcast(h5):
    dataset = h5.create_dataset("x", data=BIG)
    ps.write(dataset, np.full(300, 2, "f4"))
    assert (dataset[...] == 2).all()
    ps.write(dataset, 3.0, np.s_[0])
    assert (dataset[0] == 3).all()


def test_a_file_that_is_open_for_reading_is_not_written(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = BIG
    with (
        h5py.File(tmp_path / "f.h5") as file,
        pytest.raises(OSError, match="is not open for writing"),
    ):
        ps.write(file["x"], BIG)


@pytest.mark.parametrize("arguments", [{"driver": "core"}, {"driver": "stdio"}])
def test_files_of_other_drivers_are_read_and_written_by_hdf5(tmp_path, arguments):
    with h5py.File(tmp_path / "f.h5", "w", **arguments) as file:
        dataset = file.create_dataset("x", data=BIG)
        np.testing.assert_array_equal(ps.read(dataset), BIG)
        assert ps.last_report().route == "hdf5"
        assert ps.last_report().note
        ps.write(dataset, BIG + 1)
        np.testing.assert_array_equal(dataset[...], BIG + 1)


def test_what_a_page_buffer_holds_is_seen_and_renewed(tmp_path):
    options = {"fs_strategy": "page", "fs_page_size": 4096, "page_buf_size": 1 << 20}
    with h5py.File(tmp_path / "f.h5", "w", **options) as file:
        for name, chunks in (("contiguous", None), ("chunked", (10, 300))):
            dataset = file.create_dataset(name, data=BIG, chunks=chunks)
            for i in (1, 2):
                dataset[3, 5] = i
                assert ps.read(dataset)[3, 5] == i
                np.testing.assert_array_equal(dataset[:20, 4:9], ps.read(dataset)[:20, 4:9])
                ps.write(dataset, BIG + i)
                np.testing.assert_array_equal(dataset[:20, 4:9], BIG[:20, 4:9] + i)
                np.testing.assert_array_equal(dataset[...], BIG + i)


def test_a_file_that_was_renamed_or_removed_is_still_the_one_that_is_open(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with h5py.File("f.h5", "w") as file:
        file["x"] = BIG
    for change in (lambda: os.rename("f.h5", "g.h5"), lambda: os.remove("g.h5")):
        name = "f.h5" if os.path.exists("f.h5") else "g.h5"
        with h5py.File(name) as file:
            change()
            (tmp_path / name).write_bytes(bytes(1 << 20))
            np.testing.assert_array_equal(ps.read(file["x"]), BIG)
            assert ps.last_report().route == "host"
        if name == "f.h5":
            os.remove("f.h5")


def test_two_files_of_one_name_in_turn_are_not_confused(tmp_path):
    for value in (1, 2, 3):
        with h5py.File(tmp_path / "f.h5", "w") as file:
            file["x"] = np.full(1000, value)
            file.flush()
            assert (ps.read(file["x"]) == value).all()


def test_a_deleted_dataset_is_not_confused_with_its_successor(h5):
    for value in range(5):
        h5["x"] = np.full((100, 100), value)
        assert (ps.read(h5["x"]) == value).all()
        del h5["x"]


def test_raw_files_close_with_their_datasets(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = BIG
        ps.read(file["x"])  # the first read of a process may open what stays open
    before = len(os.listdir("/proc/self/fd"))
    file = h5py.File(tmp_path / "f.h5")
    ps.read(file["x"])
    file.close()
    gc.collect()
    # After a read, the file stays open for a moment for the next one.
    end = time.monotonic() + 5
    while len(os.listdir("/proc/self/fd")) > before:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_closed_dataset_is_refused(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset("x", data=BIG)
        ps.read(dataset)
    with pytest.raises(ValueError, match="closed"):
        ps.read(dataset)
    with pytest.raises(TypeError, match=r"h5py\.Dataset"):
        ps.read(BIG)


def test_a_penstock_file_wraps_h5py(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        file.h5py["group/rho"] = BIG
        file.h5py.attrs["time"] = 1.5
        file["group/rho"].write(BIG * 2)
    with ps.File(tmp_path / "f.h5") as file:
        rho = file["group/rho"]
        assert isinstance(rho, ps.Dataset)
        assert (rho.shape, rho.dtype, rho.name) == ((200, 300), np.float32, "/group/rho")
        np.testing.assert_array_equal(rho.read(), BIG * 2)
        group = file["group"]
        assert isinstance(group, ps.Group)
        assert (list(group), "rho" in group, len(group)) == (["rho"], True, 1)
        np.testing.assert_array_equal(group["rho"].read(np.s_[3]), BIG[3] * 2)
        with pytest.raises(KeyError):
            file["nothing"]
    assert not file.h5py
    file.close()


def test_objects_made_of_others_keep_their_file(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        made = file.create_dataset("x", (3,), "f4")
        required = file.require_dataset("x", (3,), "f4")
        assert isinstance(required, ps.Dataset)
        for found in (made, required, ps.Dataset(made), ps.Group(file["/"])["x"]):
            assert found.file is file
        assert made.h5py._file is file  # which reports what could not be written


def test_the_default_of_get_is_returned_as_it_is(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        for default in (None, [], {}, h5py.Dataset):
            assert file.get("absent", default, getclass=True) is default


def test_the_file_closes_when_the_block_raises(tmp_path):
    with pytest.raises(KeyError), ps.File(tmp_path / "f.h5", "w") as file:
        raise KeyError
    assert not file.h5py


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
@pytest.mark.parametrize("layout", ["contiguous", "chunked"])
@pytest.mark.parametrize("dtype", ["f4", ">f4"])
def test_a_dataset_is_read_into_gpu_memory(h5, layout, dtype):
    dataset = make_dataset(h5, "x", BIG.astype(dtype), layout)
    found = ps.read(dataset, np.s_[5:150, 3:], device="cuda")
    assert isinstance(found, ps.DeviceArray)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.numpy(), BIG[5:150, 3:])
    report = ps.last_report()
    assert report.device == 0
    assert report.route != "hdf5"


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_gpu_memory_is_converted_on_the_way(h5):
    dataset = h5.create_dataset("x", data=BIG)
    found = ps.read(dataset, dtype="f8", device="cuda")
    np.testing.assert_array_equal(found.numpy(), BIG.astype("f8"))
    out = ps.DeviceArray(BIG.shape, "i4")
    ps.read(dataset, out=out, stream=0)
    np.testing.assert_array_equal(out.numpy(), BIG)
    ps.write(dataset, ps.DeviceArray.from_numpy(np.ones((300,), "i8")), np.s_[7], stream=0)
    assert (dataset[7] == 1).all()


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_strings_and_empty_datasets_cannot_go_to_the_gpu(h5):
    h5["text"] = ["a", "bcd"]
    h5["null"] = h5py.Empty("f4")
    for name in h5:
        with pytest.raises(TypeError):
            ps.read(h5[name], device="cuda")


def test_torch_tensors_are_read_and_written(h5, torch_kernels):
    torch = torch_kernels
    dataset = h5.create_dataset("x", data=BIG)
    chunked = h5.create_dataset("c", data=BIG, chunks=(50, 300))
    for source in (dataset, chunked):
        t = ps.read(source, device="cuda")
        assert isinstance(t, torch.Tensor)
        for _ in range(20):
            t = t * 1
        ps.write(source, t + 1)
        np.testing.assert_array_equal(source[...], BIG + 1)


def test_fields_that_the_dataset_lacks_are_kept_or_the_read_is_refused(tmp_path, nothing_is_small):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset("x", data=np.ones(100, [("a", "i4")]))
        for step in (1, 2):
            whole = np.full(100 * step, 7, [("a", "i4"), ("b", "i4")])
            out = whole[::step]
            if step == 1:
                ps.read(dataset, out=out)
                assert (out["a"] == 1).all()
            else:
                with pytest.raises(ps.InvalidError, match="fields that the dataset lacks"):
                    ps.read(dataset, out=out)
            assert (out["b"] == 7).all()


@pytest.mark.gpu
@pytest.mark.parametrize("move", ["penstock_dataset_read", "penstock_dataset_write"])
def test_pointers_to_host_memory_do_not_go_to_or_from_a_gpu(tmp_path, move):
    memory = ps.DeviceArray.from_numpy(np.zeros(100, "u8"))
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset("x", data=["text"] * 100, dtype=h5py.string_dtype())
        kind = dataset.id.get_type()
        with lock():
            status = getattr(lib, move)(
                dataset.id.id, kind.id, 0, 0, 0, pointer(memory.data_ptr), NULL, NULL, NULL
            )
            with pytest.raises(ps.InvalidError, match="variable-length"):
                check(status)
    assert (memory.numpy() == 0).all()


def test_objects_are_read_into_an_array_of_objects_as_by_h5py(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset("x", data=["a", "bc", "def"])
        ours, theirs = np.zeros(4, object), np.zeros(4, object)
        dataset.read_direct(ours, np.s_[1:3], np.s_[2:4])
        dataset.h5py.read_direct(theirs, np.s_[1:3], np.s_[2:4])
        assert ours.tolist() == theirs.tolist() == [0, 0, b"bc", b"def"]
