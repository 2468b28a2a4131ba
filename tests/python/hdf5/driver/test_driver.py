"""`h5py.File(name, driver="penstock")` does what the default driver does, with options."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock._native import ffi, lib
from penstock.errors import check

DRIVERS = pytest.mark.parametrize("driver", ["penstock", None])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.h5"


def open_file(path, mode="r", **options):
    return h5py.File(path, mode, driver="penstock", **options)


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "imports",
    [
        "import penstock, h5py",
        "import h5py, penstock",
        "import penstock; import h5py._hl",
        "import penstock; from importlib.util import find_spec; find_spec('h5py')",
    ],
)
def test_the_driver_is_known_in_whichever_order_things_are_imported(imports):
    code = f"{imports}; import h5py; print('penstock' in h5py.registered_drivers())"
    assert run_python(code) == "True\n"


def test_h5py_stays_what_it_is_to_the_import_system():
    code = (
        "import penstock, h5py, sys, inspect, importlib.metadata as m;"
        "assert not [f for f in sys.meta_path if getattr(f, 'name', None) == 'h5py'];"
        "assert inspect.getsource(h5py); print(h5py.__version__ == m.version('h5py'))"
    )
    assert run_python(code) == "True\n"


def test_penstock_is_imported_where_hdf5_cannot_load_its_driver(tmp_path):
    settings = {"HDF5_DRIVER": "penstock", "HDF5_PLUGIN_PATH": str(tmp_path)}
    assert run_python("import penstock; print(penstock.__version__)", **settings)


@pytest.mark.parametrize("layout", [{}, {"chunks": (7, 5)}, {"chunks": (7, 5), "compression": 1}])
def test_what_is_written_is_read_by_either_driver(path, layout):
    data = np.random.default_rng(1).random((31, 17))
    with open_file(path, "w") as file:
        file.create_dataset("x", data=data, **layout)
        file["x"].attrs["unit"] = "m"
    for driver in ("penstock", None):
        with h5py.File(path, driver=driver) as file:
            assert np.array_equal(file["x"], data)
            assert file["x"].attrs["unit"] == "m"


def test_a_file_of_the_default_driver_is_changed_and_grown(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(10), maxshape=(None,), chunks=(4,))
    with open_file(path, "r+") as file:
        file["x"].resize((20,))
        file["x"][10:] = 7
    with h5py.File(path) as file:
        assert list(file["x"]) == [*range(10), *[7] * 10]


def test_options_are_keyword_arguments(path):
    options = {"threads": 2, "block": "1MiB", "route": "staged", "direct": False, "io": "threads"}
    with open_file(path, "w", **options, stripe_count=2, driver_mode="posix-mt") as file:
        file["x"] = np.arange(5)
        assert report_of(file)["mode"] == "posix-mt"


@pytest.mark.parametrize(
    ("key", "value"),
    [("threads", 0), ("block", "much"), ("driver_mode", "fast"), ("thread", 8), ("io", "a;b=c")],
)
def test_a_bad_option_is_an_error_that_names_it(path, key, value):
    with pytest.raises(ps.InvalidError, match=key.removeprefix("driver_")):
        open_file(path, "w", **{key: value})
    assert not path.exists()


def test_options_of_an_open_file_can_be_changed(path):
    with open_file(path, "w") as file:
        file["x"] = np.arange(1000)
        check(lib.penstock_hdf5_set_options(file.id.id, b"mode=sec2;threads=1"))
        assert report_of(file)["mode"] == "sec2"
        assert np.array_equal(file["x"], np.arange(1000))


def test_calls_and_bytes_are_counted(path):
    data = np.zeros(100_000)
    with open_file(path, "w") as file:
        file["x"] = data
        counted = report_of(file)
    assert counted["write"]["host_buffered"]["bytes"] == data.nbytes
    assert counted["path"] == str(path)


def test_the_report_of_an_open_file_says_that_it_is_open(path):
    with open_file(path, "w") as file:
        assert report_of(file)["event"] == "open"


def report_of(file):
    text = ffi.new("char **")
    check(lib.penstock_hdf5_file_report(file.id.id, text))
    try:
        return json.loads(ffi.string(text[0]))
    finally:
        lib.penstock_string_free(text[0])


def test_two_files_are_open_at_once(tmp_path):
    with open_file(tmp_path / "a", "w", threads=1) as one, open_file(tmp_path / "b", "w") as two:
        one["x"], two["x"] = np.arange(9), np.arange(9, 18)
        one["link"] = h5py.ExternalLink(str(tmp_path / "b"), "x")
        two.flush()
        assert list(one["link"]) == list(two["x"])
        assert list(one["x"]) == list(range(9))


def test_a_file_opened_twice_is_one_file(path):
    with open_file(path, "w") as file:
        file["x"] = 1
        with open_file(path, "r+") as again:
            again["y"] = 2
        assert file["y"][()] == 2


def test_driver_of_the_access_list_is_that_of_the_class(path):
    with open_file(path, "w") as file, h5py.File(path.with_name("other"), "w") as other:
        driver = file.id.get_access_plist().get_driver()
        assert driver != other.id.get_access_plist().get_driver()
        assert (
            file.driver == "unknown"
        )  # h5py's word for a driver that it has no name of its own for
        assert isinstance(file.id.get_vfd_handle(), int)


@DRIVERS
def test_exceptions_are_those_of_the_default_driver(tmp_path, driver):
    def failure(name, mode):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its type is what is asked for
            h5py.File(tmp_path / name, mode, driver=driver)
        return type(caught.value)

    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no HDF5 file, though long enough for a signature" * 100)
    h5py.File(tmp_path / "there", "w").close()
    assert failure("missing", "r") is FileNotFoundError
    assert failure("missing", "r+") is FileNotFoundError
    assert failure("missing/deeper", "w") is FileNotFoundError
    assert failure("there", "x") is FileExistsError
    assert failure("folder", "r") is IsADirectoryError
    assert failure("folder", "w") is IsADirectoryError
    assert failure("text", "r") is OSError
    assert failure("text/deeper", "r") is NotADirectoryError
    assert failure("n" * 300, "r") is OSError


@pytest.fixture
def forbidden(path):
    """A file that may not be opened. Root may open everything, so root becomes another user."""
    path.touch(mode=0o000)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield path
    os.seteuid(user)


@DRIVERS
@pytest.mark.parametrize("mode", ["r", "r+", "w"])
def test_a_file_without_permission_is_refused(forbidden, driver, mode):
    with pytest.raises(PermissionError):
        h5py.File(forbidden, mode, driver=driver)


@DRIVERS
def test_a_truncated_file_is_an_error_of_reading(path, driver):
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(100_000)
    os.truncate(path, 50_000)
    with pytest.raises(OSError, match="truncated"):
        h5py.File(path, driver=driver)


WRITER_AND_READER = [("penstock", "penstock"), ("penstock", None), (None, "penstock")]


@pytest.mark.parametrize(("writer", "reader"), WRITER_AND_READER)
def test_a_reader_follows_a_writer_by_swmr(path, writer, reader):
    reading = (
        "import sys, h5py, penstock\n"
        "file = h5py.File(sys.argv[1], 'r', swmr=True, driver=sys.argv[2] or None)\n"
        "for line in sys.stdin:\n"
        "    file['x'].refresh()\n"
        "    print(*file['x'], flush=True)\n"
    )
    with h5py.File(path, "w", libver="latest", driver=writer) as file:
        dataset = file.create_dataset("x", data=[0], maxshape=(None,), chunks=(4,))
        file.swmr_mode = True
        with subprocess.Popen(
            [sys.executable, "-c", reading, path, reader or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            for length in (1, 3, 9):
                dataset.resize((length,))
                dataset[:] = range(length)
                dataset.flush()
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline().split() == [str(i) for i in range(length)]
            process.stdin.close()
            assert process.wait(60) == 0


OPEN_AGAIN = """
import sys, h5py, penstock
name, mode, driver, locking = sys.argv[1:]
try:
    h5py.File(name, mode, driver=driver or None, locking=eval(locking)).close()
    print("opened")
except BlockingIOError:
    print("locked")
"""


def opened_elsewhere(path, mode, driver, locking="None", **environment):
    done = subprocess.run(
        [sys.executable, "-c", OPEN_AGAIN, path, mode, driver or "", locking],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("first", "second"), WRITER_AND_READER)
def test_a_file_being_written_is_locked_to_other_processes(path, first, second):
    with h5py.File(path, "w", driver=first):
        assert opened_elsewhere(path, "r", second) == "locked"
        assert opened_elsewhere(path, "r+", second) == "locked"
    assert opened_elsewhere(path, "r+", second) == "opened"


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), WRITER_AND_READER)
def test_readers_share_a_file_that_writers_may_not_open(path, first, second):
    h5py.File(path, "w").close()
    with h5py.File(path, driver=first):
        assert opened_elsewhere(path, "r", second) == "opened"
        assert opened_elsewhere(path, "r+", second) == "locked"


@DRIVERS
def test_locking_is_switched_off_by_access_list_or_environment(path, driver):
    h5py.File(path, "w").close()
    with h5py.File(path, "r+", driver=driver):
        assert opened_elsewhere(path, "r+", driver, "False") == "opened"
        off = {"HDF5_USE_FILE_LOCKING": "FALSE"}
        assert opened_elsewhere(path, "r+", driver, **off) == "opened"
    with h5py.File(path, "r+", driver=driver, locking=False):
        assert opened_elsewhere(path, "r+", driver) == "opened"


def test_children_of_a_process_that_used_the_driver_use_it_for_host_memory(path):
    with open_file(path, "w") as file:
        file["x"] = np.arange(50_000)
        file["x"].attrs["unit"] = "m"

    def child(outcomes):
        with open_file(path, "r") as file:
            outcomes.put((int(file["x"][::7].sum()), file["x"].attrs["unit"]))
        with open_file(path.with_name("own.h5"), "w") as file:
            file.create_dataset("y", data=np.arange(9), chunks=(2,), compression=1)
            outcomes.put(list(map(int, file["y"])))

    fork = multiprocessing.get_context("fork")
    outcomes = fork.Queue()
    process = fork.Process(target=child, args=[outcomes])
    process.start()
    assert outcomes.get(timeout=60) == (sum(range(0, 50_000, 7)), "m")
    assert outcomes.get(timeout=60) == list(range(9))
    process.join(60)
    assert process.exitcode == 0
    with open_file(path) as file:
        assert file["x"][-1] == 49_999


def test_threads_read_files_of_their_own(tmp_path):
    def write_and_read(number):
        data = np.full((50, 50), number)
        with open_file(tmp_path / f"{number}.h5", "w") as file:
            for part in range(8):
                file[f"g{part}/x"] = data + part
        with open_file(tmp_path / f"{number}.h5") as file:
            return all((file[f"g{part}/x"][()] == data + part).all() for part in range(8))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write_and_read, range(16)))


def test_a_penstock_file_reads_what_the_driver_has_open(path):
    data = np.arange(100_000).reshape(100, 1000)
    with open_file(path, "w") as file:
        file.create_dataset("x", data=data, chunks=(10, 100), compression=1)
        assert np.array_equal(ps.read(file["x"]), data)


SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple)


@st.composite
def cases(draw):
    """A shape, a layout, and selections of NumPy's kind that h5py knows."""
    shape = draw(SHAPES)
    layout = draw(st.sampled_from(["contiguous", "chunked", "filtered"]))
    chunks = tuple(draw(st.integers(1, length)) for length in shape)

    def along(length):
        start = draw(st.integers(0, length - 1))
        stop = draw(st.integers(start + 1, length))
        kind = draw(st.sampled_from(["all", "index", "slice", "strided"]))
        ways = {"all": slice(None), "index": start, "slice": slice(start, stop)}
        return ways.get(kind, slice(start, stop, draw(st.integers(1, 4))))

    selections = [tuple(map(along, shape)) for _ in range(draw(st.integers(1, 4)))]
    return shape, layout, chunks, selections


@given(cases(), st.sampled_from(["<i2", ">f4", "<f8"]))
@settings(max_examples=150, deadline=None)
def test_selections_are_written_and_read_as_by_the_default_driver(tmp_path_factory, case, dtype):
    shape, layout, chunks, selections = case
    options = {} if layout == "contiguous" else {"chunks": chunks}
    if layout == "filtered":
        options |= {"compression": 1, "shuffle": True}
    folder = tmp_path_factory.getbasetemp()
    contents = {}
    for driver in ("penstock", None):
        name = folder / f"selections-{driver}.h5"
        with h5py.File(name, "w", driver=driver) as file:
            dataset = file.create_dataset("x", shape, dtype, fillvalue=5, **options)
            for number, selection in enumerate(selections):
                dataset[selection] = number
        with h5py.File(name, "r", driver=driver) as file:
            read = [file["x"][selection] for selection in selections]
            points = np.random.default_rng(len(selections)).random(shape) < 0.3
            contents[driver] = [*read, file["x"][points], file["x"][()]]
    for found, expected in zip(contents["penstock"], contents[None], strict=True):
        assert np.array_equal(found, expected)


def test_rows_and_penstocks_own_transfers_see_each_other(path):
    rows = np.arange(8_000, dtype="i4").reshape(-1, 2)
    with open_file(path, "w") as file:
        dataset = file.create_dataset("x", rows.shape, "i4")
        ours = file.create_dataset("chunked", rows.shape, "i4", chunks=(16, 2))
        for target in (dataset, ours):
            for turn in range(1, 4):
                for row in range(100):
                    target[row] = rows[row] * turn
                assert np.array_equal(ps.read(target)[:100], rows[:100] * turn)
                ps.write(target, rows * (turn + 10))
                for row in range(100):
                    assert np.array_equal(target[row], rows[row] * (turn + 10))
