"""Files, groups and datasets are pickled by path and name, and opened again for reading."""

from __future__ import annotations

import io
import multiprocessing
import pickle

import h5py
import numpy as np
import pytest

import penstock as ps

NUMBERS = np.arange(20_000, dtype="f4").reshape(200, 100)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("group/x", data=NUMBERS, chunks=(10, 100), compression="gzip")
        file.create_dataset(None, data=1)
    return path


def again(item):
    return pickle.loads(pickle.dumps(item))


def test_a_file_a_group_and_a_dataset_are_opened_again(path):
    with ps.File(path) as file:
        for item in (file, file["group"], file["group/x"]):
            copy = again(item)
            assert type(copy) is type(item)
            assert copy == item
            assert copy.name == item.name
            assert copy.h5py.id.id != item.h5py.id.id
        dataset = again(file["group/x"])
    np.testing.assert_array_equal(dataset[...], NUMBERS)  # the file of the copy is its own
    assert dataset.file.mode == "r"


def test_objects_of_one_file_open_it_once(path):
    with ps.File(path) as file:
        first, second, whole = again([file["group/x"], file["group"], file])
    assert first.file is second.file is whole


def test_the_arguments_of_the_file_are_kept(path):
    with ps.File(path, rdcc_nbytes=12345, driver="stdio") as file:
        copy = again(file["group"]).file
        assert copy.driver == "stdio"
        assert copy.id.get_access_plist().get_cache()[2] == 12345
    with ps.File(path, connector="penstock_async", connector_options={"copy": "never"}) as file:
        np.testing.assert_array_equal(again(file["group/x"])[3], NUMBERS[3])


def test_the_path_is_found_from_another_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ps.File("f.h5") as file:
        stored = pickle.dumps(file["group/x"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(stored)[1, 1] == 101


def test_what_h5py_opened_is_opened_again_by_penstock(path):
    with h5py.File(path) as file:
        copy = again(ps.Dataset(file["group/x"]))
        assert type(copy) is ps.Dataset
        assert again(ps.File(file)) == file


def test_an_object_after_an_external_link_names_its_own_file(path, tmp_path):
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["away"] = h5py.ExternalLink("f.h5", "/group")
    with ps.File(tmp_path / "links.h5") as file:
        copy = again(file["away/x"])
    assert copy.file.filename == str(path)
    assert copy[0, 1] == 1


def _modes(file):
    return file.mode, file.swmr_mode


def test_a_reader_of_swmr_stays_one_and_a_writer_becomes_one(path):
    with ps.File(path, swmr=True) as file:
        assert again(file).swmr_mode
    with ps.File(path, "r+", libver="latest") as file:
        file.swmr_mode = True
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(_modes, (file,)) == ("r", True)


def test_a_file_that_is_open_for_writing_is_refused_with_the_reason(path):
    with ps.File(path, "r+") as file:
        for item in (file, file["group"], file["group/x"]):
            with pytest.raises(ps.IncompatibleError, match="open for writing") as raised:
                pickle.dumps(item)
            assert isinstance(raised.value, TypeError)
            assert raised.value.path == str(path)
            assert "mode" in raised.value.remedy


def test_a_file_in_memory_is_refused_with_the_reason(path):
    with (
        ps.File("memory.h5", "w", driver="core", backing_store=False) as file,
        pytest.raises(ps.IncompatibleError, match="in memory"),
    ):
        pickle.dumps(file)
    with (
        ps.File(io.BytesIO(path.read_bytes())) as file,
        pytest.raises(ps.IncompatibleError, match="in memory"),
    ):
        pickle.dumps(file["group/x"])
    with ps.File(path, driver="core") as file:  # a copy of a file that there is
        assert again(file["group/x"])[0, 5] == 5


def test_a_driver_whose_arguments_are_not_known_is_refused_with_the_reason(tmp_path):
    with h5py.File(tmp_path / "part%d.h5", "w", driver="family", memb_size=1 << 20) as file:
        file["x"] = 1
    with (
        h5py.File(tmp_path / "part%d.h5", driver="family", memb_size=1 << 20) as file,
        pytest.raises(ps.IncompatibleError, match="family"),
    ):
        pickle.dumps(ps.File(file))
    with ps.File(tmp_path / "part%d.h5", driver="family", memb_size=1 << 20) as file:
        assert again(file["x"])[()] == 1


def test_what_has_no_name_or_is_closed_is_refused_with_the_reason(path):
    with ps.File.in_memory() if hasattr(h5py.File, "in_memory") else ps.File(path) as file:
        if file.mode == "r+":
            nameless = file.create_dataset(None, data=[1, 2])
            with pytest.raises(ps.IncompatibleError, match="without a name"):
                pickle.dumps(nameless)
    with pytest.raises(ps.IncompatibleError, match="closed"):
        pickle.dumps(file)


def _sum_of_row(arguments):
    dataset, row = arguments
    return float(dataset[row].sum())


@pytest.mark.parametrize("start", ["spawn", "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_read_a_dataset_that_they_are_given(path, start, nothing_is_small):
    """As with torch's DataLoader, in each way in which it starts its workers."""
    with ps.File(path) as file:
        dataset = file["group/x"]
        assert dataset[0].shape == (100,)  # the parent has used the engine
        with multiprocessing.get_context(start).Pool(2) as pool:
            found = pool.map(_sum_of_row, [(dataset, row) for row in range(0, 200, 20)])
    assert found == [float(NUMBERS[row].sum()) for row in range(0, 200, 20)]
