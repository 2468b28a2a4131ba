"""Requests of one file have the effect of the order in which they were submitted."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from contextlib import suppress

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock._native import NULL, ffi, lib, new_options
from penstock.errors import check
from penstock.hdf5 import library
from penstock.hdf5.library import lock

pytestmark = pytest.mark.usefixtures("nothing_is_small", "penstock_arrays")

SHAPE = (1200, 900)
BANDS = [np.s_[:, first : first + 130] for first in range(0, SHAPE[1], 150)]

LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (100, 300)},
    "gzip": {"chunks": (100, 300), "compression": "gzip", "compression_opts": 1},
}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def on(request):
    return ps.DeviceArray.from_numpy if request.param == "cuda" else np.asarray


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


def numbers(seed, shape=SHAPE):
    return np.random.default_rng(seed).random(shape, "f4")


def to_host(array):
    return array.numpy() if isinstance(array, ps.DeviceArray) else array


def expect(path, name, expected):
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[name][...], expected)


@pytest.mark.parametrize(("stored", "given"), [("f4", "f4"), (">f4", "f4"), ("f4", "f8")])
def test_writes_of_other_columns_keep_each_others_elements(tmp_path, layout, on, stored, given):
    path = tmp_path / "f.h5"
    truth = np.zeros(SHAPE, stored)
    with ps.File(path, "w") as file:
        dataset = file.create("x", data=truth, **layout)
        requests = []
        for seed, band in enumerate(BANDS):
            truth[band] = values = numbers(seed, truth[band].shape).astype(given)
            requests.append(dataset.write_async(on(values), band))
        for request in requests:
            request.wait()
    expect(path, "x", truth)


def test_a_write_beside_one_under_way_keeps_its_elements(tmp_path, on):
    path = tmp_path / "f.h5"
    truth = np.zeros(SHAPE, "f4")
    with ps.File(path, "w") as file:
        dataset = file.create("x", data=truth)
        for seed, (one, other) in enumerate(zip(BANDS[::2], BANDS[1::2], strict=True)):
            truth[one] = numbers(seed, truth[one].shape)
            truth[other] = numbers(seed + 9, truth[other].shape)
            request = dataset.write_async(on(np.ascontiguousarray(truth[one])), one)
            dataset.write(on(np.ascontiguousarray(truth[other])), other)
            request.wait()
    expect(path, "x", truth)


def test_writes_submitted_in_c_keep_each_others_elements(tmp_path):
    path = tmp_path / "f.h5"
    truth = np.zeros(SHAPE, "f4")
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data=truth)
        file.flush()
        requests, kept = [], []
        for seed, band in enumerate(BANDS):
            truth[band] = values = numbers(seed, truth[band].shape)
            space = dataset.id.get_space()
            space.select_hyperslab((0, band[1].start), values.shape)
            shape = ffi.new("uint64_t[]", values.shape)
            array = ffi.new("penstock_array *")
            array.struct_size = ffi.sizeof("penstock_array")
            array.data = ffi.cast("void *", values.ctypes.data)
            array.type, array.rank, array.shape = h5py.h5t.NATIVE_FLOAT.id, 2, shape
            made = ffi.new("penstock_request **")
            submit = lib.penstock_dataset_write_submit
            with lock():
                check(submit(dataset.id.id, space.id, array, new_options(), NULL, 0, made))
            requests.append(made)
            kept.append((values, shape, space))
        for made in requests:
            with lock():
                while (status := lib.penstock_request_wait(made[0], -1)) == lib.PENSTOCK_TURN:
                    check(lib.penstock_request_turn(made[0]))
                check(status)
                lib.penstock_request_free(made[0])
    expect(path, "x", truth)


@pytest.mark.parametrize("waits", [True, False])
def test_a_read_under_way_is_over_before_its_elements_are_written(tmp_path, layout, on, waits):
    old, new = numbers(1), numbers(2)
    with ps.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create("x", data=old, **layout)
        for _ in range(5):
            request = dataset.read_async(out=on(np.zeros_like(old)))
            if waits:
                dataset.write(on(new))
            else:
                dataset.write_async(on(new)).wait()
            np.testing.assert_array_equal(to_host(request.wait()), old)
            old, new = new, old


def test_a_write_under_way_is_seen_through_another_handle_of_the_file(tmp_path, layout, on):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros(SHAPE, "f4"), **layout)
    with h5py.File(path, "r+") as one, h5py.File(path, "r+") as other:
        for seed in range(5):
            values = numbers(seed)
            request = ps.write_async(one["x"], on(values))
            np.testing.assert_array_equal(ps.read(other["x"]), values)
            request.wait()


@pytest.fixture
def composed(tmp_path):
    """A dataset, and another file that leads to it in two ways."""
    source, path = tmp_path / "source.h5", tmp_path / "composed.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("x", data=np.zeros(SHAPE, "f4"), chunks=(100, 300), compression="gzip")
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(SHAPE, "f4")
        layout[:] = h5py.VirtualSource("source.h5", "x", SHAPE)
        file.create_virtual_dataset("virtual", layout)
        file["external"] = h5py.ExternalLink("source.h5", "/x")
    return source, path


@pytest.mark.parametrize("name", ["virtual", "external"])
def test_a_write_under_way_is_seen_through_what_leads_to_the_dataset(composed, name, on):
    source, path = composed
    with h5py.File(source, "r+") as one, h5py.File(path, "r+") as other:
        for seed in range(5):
            values = numbers(seed)
            request = ps.write_async(one["x"], on(values))
            np.testing.assert_array_equal(ps.read(other[name]), values)
            request.wait()


def test_a_virtual_read_under_way_is_over_before_its_source_is_written(composed, on):
    source, path = composed
    old = np.zeros(SHAPE, "f4")
    with h5py.File(source, "r+") as one, h5py.File(path, "r+") as other:
        for seed in range(5):
            request = ps.read_async(other["virtual"])
            new = numbers(seed)
            ps.write_async(one["x"], on(new)).wait()
            np.testing.assert_array_equal(request.wait(), old)
            old = new


@pytest.mark.parametrize("name", ["x", "virtual"])
def test_a_file_may_be_open_through_the_connector_and_without_it(composed, name):
    source, path = composed
    values = numbers(1)
    with ps.File(source, "r+", connector="penstock_async") as one:
        one["x"].write_async(values).wait()
        with ps.File(source if name == "x" else path, "r+") as other:
            assert other[name].h5py.file
            np.testing.assert_array_equal(other[name].read_async().wait(), values)


@pytest.mark.parametrize("connectors", [("penstock_async", None), (None, "penstock_async")])
def test_strings_and_references_pass_through_the_connector_and_without_it(tmp_path, connectors):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("strings", data=["", ""], dtype=h5py.string_dtype())
        file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
        file.create_dataset("references", (1,), h5py.ref_dtype)
        file.create_dataset("regions", (1,), h5py.regionref_dtype)
    with (
        ps.File(path, "r+", connector=connectors[0]) as one,
        ps.File(path, "r+", connector=connectors[1]) as other,
    ):
        for writer, reader in [(one, other), (other, one)]:
            strings = [f"{reader.id} reads", "ünï"]
            writer["strings"][:] = strings
            writer["lists"][1] = [1, 2, reader.id.id % 1000]
            writer["strings"].attrs["name"] = strings
            writer["references"][0] = writer["lists"].ref
            writer["regions"][0] = writer["strings"].regionref[1:]
            assert list(reader["strings"].asstr()[:]) == strings
            assert list(reader["lists"][1]) == [1, 2, reader.id.id % 1000]
            assert list(reader["strings"].attrs["name"]) == strings
            assert reader[reader["references"][0]].name == "/lists"
            assert reader["strings"].h5py[reader["regions"][0]].tolist() == [strings[1].encode()]


def test_a_virtual_read_under_way_is_over_before_its_source_is_deleted_by_the_connector(tmp_path):
    source, path, shape = tmp_path / "source.h5", tmp_path / "virtual.h5", (3000, 4000)
    values = np.random.default_rng(1).integers(0, 9, shape, "i4")
    with h5py.File(source, "w") as file:
        file.create_dataset("x", data=values, chunks=(100, 4000), compression="gzip")
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(shape, "i4")
        layout[:] = h5py.VirtualSource("source.h5", "x", shape)
        file.create_virtual_dataset("virtual", layout)
    one = ps.File(source, "r+", connector="penstock_async")
    with ps.File(path, "r+", connector="penstock_async") as other:
        request = other["virtual"].read_async()
        del one.h5py["x"]
        one.h5py.close()
        np.testing.assert_array_equal(request.wait(), values)


@pytest.fixture
def read_by_another(tmp_path):
    """A chunked dataset, the virtual dataset that reads it, and a file with a link to it."""
    source, path, shape = tmp_path / "source.h5", tmp_path / "virtual.h5", (3000, 4000)
    values = np.random.default_rng(1).integers(0, 9, shape, "i4")
    with h5py.File(source, "w") as file:
        file.create_dataset(
            "x", data=values, chunks=(100, 4000), maxshape=(None, 4000), compression="gzip"
        )
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(shape, "i4")
        layout[:] = h5py.VirtualSource("source.h5", "x", shape)
        file.create_virtual_dataset("virtual", layout)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["x"] = h5py.ExternalLink("source.h5", "/x")
    return source, path, values


@pytest.mark.parametrize("name", ["source.h5", "link.h5"])
def test_a_virtual_read_under_way_is_over_before_the_connector_cuts_its_source_off(
    read_by_another, name
):
    source, path, values = read_by_another
    with (
        ps.File(source.with_name(name), "r+", connector="penstock_async") as one,
        h5py.File(path) as other,
    ):
        dataset = one["x"].h5py
        request = ps.read_async(other["virtual"], threads=1)
        dataset.resize((100, 4000))
        dataset.file.flush()
        np.testing.assert_array_equal(request.wait(), values)


@pytest.mark.parametrize("connector", [None, "penstock_async"])
def test_a_virtual_read_under_way_is_over_before_its_source_is_made_anew(
    read_by_another, connector
):
    source, path, values = read_by_another
    with h5py.File(path) as other:
        request = ps.read_async(other["virtual"], threads=1)
        with ps.File(source, "w", connector=connector) as one:
            one.create("x", data=np.zeros_like(values))
        np.testing.assert_array_equal(request.wait(), values)


def test_a_write_under_way_is_seen_through_a_virtual_dataset_of_compact_ones(tmp_path):
    source, path, shape = tmp_path / "source.h5", tmp_path / "virtual.h5", (1000,)
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    compact.set_layout(h5py.h5d.COMPACT)
    with h5py.File(source, "w") as file:
        space = h5py.h5s.create_simple(shape)
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, compact)
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(shape, "i4")
        layout[:] = h5py.VirtualSource("source.h5", "x", shape)
        file.create_virtual_dataset("virtual", layout)
    values = np.arange(2 * shape[0], dtype="i4")[::2]
    with h5py.File(source, "r+") as one, h5py.File(path) as other:
        request = ps.write_async(one["x"], values)
        np.testing.assert_array_equal(ps.read_async(other["virtual"]).wait(), values)
        request.wait()


def test_a_read_that_outlives_its_file_is_over_before_the_file_is_written_anew(tmp_path, on):
    path = tmp_path / "f.h5"
    old = numbers(0, (4000, 900))
    with h5py.File(path, "w") as file:
        file["x"] = old
    for seed in range(5):
        with ps.File(path) as file:
            request = file["x"].read_async()
            dataset = file["x"].h5py
        assert not dataset
        new = numbers(seed + 1, old.shape)
        with ps.File(path, "r+") as file:
            file["x"].write_async(on(new)).wait()
        np.testing.assert_array_equal(request.wait(), old)
        old = new


def test_extents_and_names_change_after_the_requests_before(tmp_path, on):
    values = numbers(0)
    with ps.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create("x", data=values, chunks=(100, 300), maxshape=(None, None))
        request = dataset.read_async()
        dataset.resize((300, 900))
        file.create("y", data=numbers(1)[:700], chunks=(100, 300))
        np.testing.assert_array_equal(request.wait(), values)
        request = dataset.read_async()
        del file["x"]
        del dataset
        file.create("z", data=numbers(2)[:300], chunks=(100, 300))
        np.testing.assert_array_equal(request.wait(), values[:300])


@pytest.fixture
def room(tmp_path):
    """Limits the length of files, as a full disk does the room for them."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(length):
        resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_what_does_not_fit(file, room, on, layout, name="x"):
    dataset = file.create(name, shape=SHAPE, dtype="f4", **layout)
    file.h5py.flush()
    room(1 << 20)
    return dataset.write_async(on(numbers(0)))


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("end", ["close", "leave", "flush"])
def test_a_failed_write_that_is_not_waited_for_is_reported(tmp_path, room, on, end, keeps):
    file = ps.File(tmp_path / "f.h5", "w")
    request = write_what_does_not_fit(file, room, on, {"chunks": (300, 900)})
    if not keeps:
        del request
        gc.collect()
    ends = {
        "close": file.close,
        "leave": lambda: file.__exit__(None, None, None),
        "flush": file.flush,
    }
    with pytest.raises(ps.Error, match="File too large"):
        ends[end]()
    room(resource.RLIM_INFINITY)
    file.close()


def test_a_failed_write_is_not_reported_by_a_file_that_is_made_anew(tmp_path, room, on):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", shape=SHAPE, dtype="f4", chunks=(300, 900))
        file.flush()
        room(1 << 20)
        request = ps.write_async(dataset, on(numbers(0)))
        while not request.done():
            pass
        room(resource.RLIM_INFINITY)
    with ps.File(path, "w") as file:
        file.create("y", data=numbers(1))
    expect(path, "y", numbers(1))


@pytest.mark.timeout(60, method="thread")
def test_a_virtual_dataset_is_read_despite_an_unreported_failed_write(composed, room, on):
    source, path = composed
    with ps.File(source, "r+") as one, ps.File(path) as other:
        request = write_what_does_not_fit(one, room, on, {"chunks": (300, 900)}, name="y")
        while not request.done():
            pass
        room(resource.RLIM_INFINITY)
        values = other["virtual"].read_async().wait()
        np.testing.assert_array_equal(values, np.zeros(SHAPE, "f4"))
        with pytest.raises(ps.Error):
            one.flush()


def test_a_reported_failure_is_not_reported_again(tmp_path, room, on):
    with ps.File(tmp_path / "f.h5", "w") as file:
        request = write_what_does_not_fit(file, room, on, {"chunks": (300, 900)})
        with pytest.raises(ps.Error):
            request.wait()
        room(resource.RLIM_INFINITY)


def test_unreported_failures_are_visible_without_a_call(tmp_path, room, on):
    with ps.File(tmp_path / "f.h5", "w") as file:
        library.any_pending()  # forgets what is over
        before = library.unsettled[0]
        request = write_what_does_not_fit(file, room, on, {"chunks": (300, 900)})
        assert library.unsettled[0] == before + 1
        with pytest.raises(ps.Error):
            request.wait()
        room(resource.RLIM_INFINITY)
        library.any_pending()
        assert library.unsettled[0] == before


@pytest.mark.parametrize("drops", ["before the close", "after the close"])
def test_a_failure_that_a_file_raises_is_not_printed(tmp_path, room, on, capsys, drops):
    file = ps.File(tmp_path / "f.h5", "w")
    request = write_what_does_not_fit(file, room, on, {"chunks": (300, 900)})
    if drops == "before the close":
        del request
        gc.collect()
    with pytest.raises(ps.Error):
        file.close()
    room(resource.RLIM_INFINITY)
    file.close()
    request = None
    gc.collect()
    assert not capsys.readouterr().err


@pytest.mark.parametrize("made_by", ["penstock", "h5py"])
@pytest.mark.parametrize("drops", ["before the close", "after the close"])
def test_a_failure_that_no_file_raises_is_printed(tmp_path, room, on, capsys, drops, made_by):
    file = ps.File(tmp_path / "f.h5", "w")
    file.create_dataset("x", SHAPE, "f4", chunks=(300, 900))
    file.flush()
    room(1 << 20)
    dataset = (file if made_by == "penstock" else file.h5py)["x"]
    request = ps.write_async(dataset, on(numbers(0)))
    while drops == "before the close" and not request.done():
        pass
    if drops == "before the close":
        request = None
        gc.collect()
    room(resource.RLIM_INFINITY)
    del dataset
    file.h5py.close()
    request = None
    gc.collect()
    file.close()
    printed = capsys.readouterr().err
    assert printed.startswith("penstock: ")
    assert printed.count("HDF5 cannot write the chunk") == 1


AT_THE_END = """
import sys
import numpy as np
import penstock as ps

file = ps.File(sys.argv[1], "w")
values = np.ones(400_000, "i4")
request = file.create("x", values.shape, "i4", chunks=(5000,)).write_async(values)
file.h5py.close()
"""


def test_a_failure_is_printed_at_the_end_of_the_program(tmp_path):
    command = [sys.executable, "-c", AT_THE_END, tmp_path / "f.h5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr.startswith("penstock: ")
    assert done.stderr.count("HDF5 cannot write the chunk") == done.stderr.count("\n") == 1


def test_a_dropped_read_that_failed_warns(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset("x", (1000,), "f4", chunks=(1000,), compression="gzip")
        dataset.id.write_direct_chunk((0,), b"damaged")
    with ps.File(tmp_path / "f.h5") as file:
        request = file["x"].read_async()
        with pytest.warns(ResourceWarning, match="never waited"):
            del request


def test_a_first_write_that_is_cancelled_leaves_fill_values_or_its_own(tmp_path, on):
    path = tmp_path / "f.h5"
    values = numbers(0, (200_000,))
    for _ in range(10):
        with ps.File(path, "w") as file:
            dataset = file.create("x", shape=values.shape, dtype="f4", fillvalue=7)
            request = dataset.write_async(on(values), threads=1, block="4KiB")
            request.cancel()
            with suppress(ps.CancelledError):
                request.wait()
        with h5py.File(path) as file:
            found = file["x"][...]
        assert ((found == values) | (found == 7)).all()
