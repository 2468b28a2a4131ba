"""Files opened by the connector: what is written is read, whatever is still on its way."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps

NAME = "penstock_async"
LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (70, 50)},
    "filtered": {"chunks": (70, 50), "compression": 1, "shuffle": True},
}
EACH_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
# Among the two, implicit writes go on after they have returned.
EACH_WAY = pytest.mark.parametrize("implicit", [False, True], ids=["explicit", "implicit"])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.h5"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def values():
    """More than HDF5 keeps of a contiguous dataset, which it then does itself."""
    return np.random.default_rng(5).random((310, 170))


def open_file(path, mode="r", driver=None, **options):
    """By the connector, with its options."""
    return ps.File(path, mode, connector=NAME, connector_options=options, driver=driver)


def is_connected(file):
    """Whether HDF5 knows the file by another connector than its own."""
    identifier = ctypes.c_int64()
    access = file.id.get_access_plist()
    assert HDF5.H5Pget_vol_id(access.id, ctypes.byref(identifier)) >= 0
    name = ctypes.create_string_buffer(64)
    own = HDF5.H5VLget_connector_name(file.id.id, name, 64)
    return own > 0 and name.value.decode() == NAME


# HDF5 is among what h5py's module needs, so its functions are found through it.
HDF5 = ctypes.CDLL(h5py.h5.__file__)
HDF5.H5Pget_vol_id.argtypes = [ctypes.c_int64, ctypes.c_void_p]
HDF5.H5VLget_connector_name.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t]
HDF5.H5VLget_connector_name.restype = ctypes.c_ssize_t
HDF5.H5EScreate.restype = ctypes.c_int64
HDF5.H5ESclose.argtypes = [ctypes.c_int64]
HDF5.H5ESwait.argtypes = [ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
HDF5.H5ESget_count.argtypes = [ctypes.c_int64, ctypes.c_void_p]
for _function in (HDF5.H5Dread_async, HDF5.H5Dwrite_async):
    _place = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint]
    _function.argtypes = [*_place, *[ctypes.c_int64] * 5, ctypes.c_void_p, ctypes.c_int64]


class EventSet:
    """Transfers of whole datasets, in an event set of h5py's own HDF5."""

    def __init__(self):
        self.id = HDF5.H5EScreate()
        assert self.id >= 0

    def add(self, function, dataset, array):
        kind = h5py.h5t.py_create(np.dtype(array.dtype))
        address = array.data_ptr if isinstance(array, ps.DeviceArray) else array.ctypes.data
        place = (b"file", b"function", 1)
        assert function(*place, dataset.id.id, kind.id, 0, 0, 0, address, self.id) >= 0

    @property
    def count(self):
        found = ctypes.c_size_t()
        assert HDF5.H5ESget_count(self.id, ctypes.byref(found)) >= 0
        return found.value

    def wait(self):
        left, failed = ctypes.c_size_t(), ctypes.c_bool()
        forever = ctypes.c_uint64(-1).value
        assert HDF5.H5ESwait(self.id, forever, ctypes.byref(left), ctypes.byref(failed)) >= 0
        assert (left.value, failed.value) == (0, False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert HDF5.H5ESclose(self.id) >= 0


@pytest.mark.parametrize("driver", [None, "penstock", "sec2"])
def test_a_file_has_a_driver_besides(path, driver, values):
    with open_file(path, "w", driver=driver) as file:
        assert is_connected(file.h5py)
        file.create("x", data=values)
    with open_file(path, driver=driver) as file:
        assert np.array_equal(file["x"].read(), values)


def test_arguments_that_are_not_h5py_s_are_the_driver_s(path):
    with ps.File(path, "w", connector=NAME, driver="core", backing_store=False) as file:
        assert file.h5py.driver == "core"
        file.create("x", data=np.arange(5))
    assert not path.exists()
    with pytest.raises(TypeError, match="backing_store"):
        ps.File(path, "w", connector=NAME, backing_store=False)
    with pytest.raises(ValueError, match="nobody"):
        ps.File(path, "w", connector=NAME, driver="nobody")


def test_h5py_takes_it_where_it_takes_drivers(path, values):
    with h5py.File(path, "w", driver=NAME, copy="never", threads=2) as file:
        assert is_connected(file)
        file["x"] = values
    with h5py.File(path, driver=NAME) as file:
        assert np.array_equal(file["x"], values)
    with h5py.File(path) as file:
        assert not is_connected(file)


@pytest.mark.parametrize(
    ("key", "value"),
    [("copy", "maybe"), ("max_mem_mb", -1), ("threads", 0), ("mode", "sec2"), ("log", "a;b")],
)
def test_a_bad_option_is_an_error_that_names_it(path, key, value):
    with pytest.raises(ps.InvalidError, match=key):
        ps.File(path, "w", connector=NAME, connector_options={key: value})
    assert not path.exists()


def test_another_connector_or_options_of_none_are_errors(path):
    with pytest.raises(ps.InvalidError, match="penstock_async"):
        ps.File(path, "w", connector="other")
    with pytest.raises(ps.InvalidError, match="connector"):
        ps.File(path, "w", connector_options={"copy": "never"})


def test_a_log_that_cannot_be_opened_is_an_error(path, tmp_path):
    with pytest.raises(OSError, match="log"):
        open_file(path, "w", log=tmp_path / "missing" / "log")


@EACH_WAY
def test_a_dataspace_from_before_the_dataset_grew_still_selects_of_it(path, implicit, values):
    with open_file(path, "w", implicit=implicit) as file:
        dataset = file.h5py.create_dataset(
            "x", values.shape, values.dtype, maxshape=(None, None), chunks=(70, 50)
        )
        space = dataset.id.get_space()
        dataset.resize(2 * len(values), axis=0)
        space.select_hyperslab((100, 0), values[100:].shape)
        memory = h5py.h5s.create_simple(values[100:].shape)
        dataset.id.write(memory, space, np.ascontiguousarray(values[100:]))
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"][100 : len(values)], values[100:])


@EACH_WAY
def test_a_dataspace_of_other_dimensions_selects_of_a_contiguous_dataset(path, implicit, values):
    with open_file(path, "w", implicit=implicit) as file:
        dataset = file.h5py.create_dataset("x", data=np.zeros_like(values))
        space = h5py.h5s.create_simple((values.size,))
        memory = h5py.h5s.create_simple(values.shape)
        dataset.id.write(memory, space, values)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"][...], values)


@EACH_LAYOUT
@EACH_WAY
def test_what_h5py_writes_is_read_by_all(path, layout, implicit, values):
    with open_file(path, "w", implicit=implicit) as file:
        dataset = file.h5py.create_dataset("x", data=values, **layout)
        for number in range(4):
            dataset[number::4] = values[number::4] + number
            values[number::4] += number
            assert np.array_equal(file["x"].read(), values)
            assert np.array_equal(dataset[:], values)
    with h5py.File(path) as file:
        assert np.array_equal(file["x"], values)


@EACH_LAYOUT
@EACH_WAY
def test_what_is_written_by_penstock_is_read_by_all(
    path, layout, implicit, memory, values, nothing_is_small
):
    with open_file(path, "w", implicit=implicit) as file:
        file.h5py.create_dataset("x", data=np.zeros_like(values), **layout)
        file["x"].write(memory.array(values))
        file["x"].write(memory.array(-values[3:9]), np.s_[3:9])
        values[3:9] *= -1
        assert np.array_equal(file["x"].h5py, values)
        out = memory.array(np.zeros_like(values))
        file["x"].read(out=out)
        assert np.array_equal(memory.numpy(out), values)
    with h5py.File(path) as file:
        assert np.array_equal(file["x"], values)


@EACH_LAYOUT
def test_writes_under_way_are_done_when_the_file_is_closed(path, layout, memory, values):
    with open_file(path, "w") as file:
        file.h5py.create_dataset("x", values.shape, values.dtype, **layout)
        request = file["x"].write_async(memory.array(values))
    request.wait()
    with h5py.File(path) as file:
        assert np.array_equal(file["x"], values)


@EACH_LAYOUT
def test_a_read_that_was_started_before_a_write_has_what_was_there(path, layout, values):
    with open_file(path, "w", implicit=True) as file:
        dataset = file.h5py.create_dataset("x", data=values, **layout)
        request = file["x"].read_async()
        assert np.array_equal(request.wait(), values)
        dataset[:] = 1
        assert (file["x"].read() == 1).all()


@EACH_LAYOUT
def test_an_event_set_takes_writes_whose_memory_is_free_at_once(path, layout, memory, values, log):
    with open_file(path, "w", log=log) as file, EventSet() as events:
        parts = [file.h5py.create_dataset(f"{i}", data=0 * values, **layout) for i in range(8)]
        for number, part in enumerate(parts):
            array = memory.array(values + number)
            events.add(HDF5.H5Dwrite_async, part, array)
            if memory.kind != "device":
                array[...] = np.nan
            del array
        assert events.count == len(parts)
        found = [memory.array(np.zeros_like(values)) for _ in parts]
        for part, array in zip(parts, found, strict=True):
            events.add(HDF5.H5Dread_async, part, array)
        events.wait()
        for number, array in enumerate(found):
            assert np.array_equal(memory.numpy(array), values + number)
    assert log.read_text().count("H5Dwrite_async async") == len(parts)
    with h5py.File(path) as file:
        assert all(np.array_equal(file[f"{i}"], values + i) for i in range(len(parts)))


@EACH_LAYOUT
def test_penstock_reads_what_an_event_set_is_still_writing(path, layout, values, nothing_is_small):
    with open_file(path, "w") as file, EventSet() as events:
        dataset = file.h5py.create_dataset("x", data=0 * values, **layout)
        events.add(HDF5.H5Dwrite_async, dataset, values)
        assert np.array_equal(file["x"].read(), values)
        events.add(HDF5.H5Dwrite_async, dataset, values + 1)
        file["x"].write(values[:5], np.s_[:5])
        events.wait()
        assert np.array_equal(dataset[:5], values[:5])
        assert np.array_equal(dataset[5:], values[5:] + 1)


ALONE = "under_vol=0;under_info={}"
STACKS = {
    "above itself": f"{NAME} under_vol={NAME};under_info={{{ALONE}}}",
    "above another": f"{NAME} under_vol=pass_through;under_info={{{ALONE}}}",
}
WRITE_AND_READ = """
import sys
sys.path.insert(0, sys.argv[1])
from test_connector import *
values = np.arange(120_000.0).reshape(300, 400)
with h5py.File(sys.argv[2], "w") as file:
    for name, layout in LAYOUTS.items():
        dataset = file.create_dataset(name, data=0 * values, **layout)
        found = np.zeros_like(values)
        with EventSet() as events:
            events.add(HDF5.H5Dwrite_async, dataset, values)
            assert events.count == 1
            events.add(HDF5.H5Dread_async, dataset, found)
            events.wait()
        assert np.array_equal(found, values)
        assert np.array_equal(dataset, values)
"""


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_connectors_may_be_stacked(path, stack):
    environment = {"HDF5_VOL_CONNECTOR": stack, "HDF5_PLUGIN_PATH": str(ps.plugin_dir())}
    folder = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", WRITE_AND_READ, folder, path],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_what_is_pending_when_python_ends_is_in_the_file(path):
    script = (
        "import sys, numpy as np, penstock as ps\n"
        "file = ps.File(sys.argv[1], 'w', connector='penstock_async',"
        " connector_options={'implicit': True})\n"
        "for number in range(20):\n"
        "    made = file.h5py.create_dataset(f'{number}', (1000, 100), 'f8')\n"
        "    made[:] = number\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    with h5py.File(path) as file:
        assert all((file[f"{number}"][:] == number).all() for number in range(20))


def test_the_environment_chooses_it_for_files_of_penstock_s_too(path, values):
    script = (
        "import sys, numpy as np, penstock as ps\n"
        "with ps.File(sys.argv[1], 'w') as file:\n"
        "    file.create('x', data=np.arange(300_000), chunks=(4096,))\n"
        "    assert (file['x'].read() == np.arange(300_000)).all()\n"
        "    assert (file['x'].h5py[:] == np.arange(300_000)).all()\n"
        "print('equal')\n"
    )
    command = [sys.executable, "-m", "penstock_command", "run", "--async", "--async-implicit", "--"]
    command += [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.stdout == "equal\n", done.stderr


TWO_HANDLES = """
import sys
import numpy as np, penstock as ps
path, first, closed_first = sys.argv[1:]
ways = {"connector": {"connector": "penstock_async"}, "plain": {}}
second = next(way for way in ways if way != first)
handles = {way: ps.File(path, "r+", **ways[way]) for way in (first, second)}
values = np.arange(300_000, dtype="f4").reshape(300, 1000)
handles[first]["x"].write_async(values)
assert np.array_equal(handles[second]["x"].read(), values)
handles.pop(closed_first).close()
(left,) = handles.values()
assert np.array_equal(left["x"].read(), values)
left.close()
"""


@pytest.mark.parametrize("first", ["connector", "plain"])
@pytest.mark.parametrize("closed_first", ["connector", "plain"])
def test_a_file_may_be_open_by_the_connector_and_without(tmp_path, first, closed_first):
    with ps.File(tmp_path / "f.h5", "w") as file:
        file.create("x", shape=(300, 1000), dtype="f4", chunks=(10, 1000))
    command = [sys.executable, "-c", TWO_HANDLES, tmp_path / "f.h5", first, closed_first]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("options", [{"compression": "lzf"}, {"scaleoffset": 0}])
def test_an_open_dataset_with_filters_is_copied_by_group_copy(path, options):
    with open_file(path, "w") as file:
        dataset = file.create_dataset("x", data=np.zeros(1 << 16, "i4"), chunks=1 << 13, **options)
        file.flush()
        for step in range(3):
            for start in range(step, 1 << 16, 1 << 13):
                dataset.h5py[start : start + 20] = step + 1
            file.copy("x", f"copy{step}")
            assert np.array_equal(file[f"copy{step}"].h5py[...], dataset.h5py[...])


REFERENCES = """
import sys
import h5py, numpy as np, penstock as ps
connected = {"connector": "penstock_async"}
values = np.zeros((1000, 200), "i4")
with ps.File(sys.argv[1], "w") as file:
    file.create("x", data=values, chunks=(50, 200), scaleoffset=0)
    file.h5py["references"] = np.array([file.h5py["x"].ref], h5py.ref_dtype)
for number in range(20):
    file = ps.File(sys.argv[1], "r+", **connected)
    other = ps.File(sys.argv[2], "w", **connected)
    with file, other:
        x = file.h5py["x"]
        x[...]
        x[3:900:7] = values[3:900:7] = number
        file.h5py.copy("references", other.h5py, expand_refs=True)
        copied = other.h5py[other.h5py["references"][0]]
        assert (copied[...] == values).all()
"""


def test_a_copy_of_what_references_point_to_leaves_the_heap_intact(path, tmp_path):
    command = [sys.executable, "-c", REFERENCES, path, tmp_path / "other.h5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_asking_for_creation_properties_is_no_read_of_the_program(path, log):
    with open_file(path, "w", log=log, implicit=True) as file:
        text = h5py.string_dtype()
        dataset = file.create_dataset("x", (20,), text, chunks=(5,), fillvalue="none")
        assert dataset.filter_ids == ()
    assert "H5Dread" not in log.read_text()


def test_a_dataset_whose_write_is_pending_is_copied_after_it(tmp_path):
    values = np.arange(900_000)
    options = {"connector": "penstock_async", "connector_options": {"implicit": True}}
    with ps.File(tmp_path / "f", "w", **options) as file:
        file.create_dataset("x", values.shape, values.dtype)
        file["x"].h5py[...] = values
        file.copy("x", "y")
        assert np.array_equal(file["y"][()], values)


@pytest.fixture
def two_writes(tmp_path, monkeypatch, log):
    """Writes two datasets, while the memory for copies holds one until its write has ended."""
    monkeypatch.setenv("HDF5_ASYNC_EXE_FCLOSE", "1")  # it does not begin before something waits
    values = np.arange(200_000, dtype="i4")
    with open_file(tmp_path / "two.h5", "w", max_mem_mb=1, log=log) as file, EventSet() as events:
        both = [file.h5py.create_dataset(name, data=0 * values) for name in ("a", "b")]

        def write():
            for dataset in both:
                events.add(HDF5.H5Dwrite_async, dataset, values)

        yield write
        events.wait()
        assert all(np.array_equal(dataset, values) for dataset in both)


@pytest.mark.timeout(60, method="thread")
def test_no_write_waits_for_the_memory_of_a_write_that_has_failed(path, two_writes, log):
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (200, 1000), "f8", chunks=(1, 1000))
        file.flush()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            request = ps.write_async(dataset, np.ones(dataset.shape))
            while not request.done():
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        two_writes()
        with pytest.raises(ps.IOFailure, match="File too large"):
            request.wait()
    assert log.read_text().count("H5Dwrite_async deferred") == 2


@pytest.mark.timeout(60, method="thread")
def test_a_write_without_memory_for_its_copy_waits_for_nothing_that_a_visit_delays(
    path, two_writes, log
):
    with open_file(path, "w") as file:
        file.create_dataset("x", (1 << 18,), "f4", chunks=(1 << 15,))
        request = file["x"].write_async(np.ones(1 << 18, "f4"), durable=True)
        file.h5py.visititems(lambda *_: two_writes() or True)
        request.wait()
    lines = log.read_text().splitlines()
    assert [line.split()[1:3] for line in lines if "H5Dwrite_async" in line] == [
        ["H5Dwrite_async", "deferred"],
        ["H5Dwrite_async", "sync"],
    ]
