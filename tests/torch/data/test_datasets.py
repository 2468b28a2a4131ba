"""Data sets of HDF5 files, with NumPy as the oracle."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed")

import torch

from penstock.errors import IncompatibleError, InvalidError, UnavailableError
from penstock.torch import HDF5Dataset
from penstock.torch.data import started

NAMES = {"image": "image", "state": "group/state", "label": "label"}


def dataset_of(files: Any, **arguments: Any) -> HDF5Dataset:
    return HDF5Dataset(files.paths, NAMES, **{"device": "cpu"} | arguments)


def assert_equal(batch: Any, files: Any, indices: Any) -> None:
    assert batch.keys() == files.arrays.keys()
    for name, array in files.arrays.items():
        assert np.array_equal(batch[name].numpy(), array[np.asarray(indices, int)])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(indices=st.lists(st.integers(-39, 38), max_size=60))
def test_a_batch_has_the_samples_in_their_order(files: Any, indices: list[int]) -> None:
    dataset = dataset_of(files)
    found = dataset.__getitems__(indices)
    assert_equal(found.batch, files, indices)
    assert len(found) == len(indices)
    assert found.batch["label"].dtype == torch.int64


@pytest.mark.parametrize("most", [0, 1000])
def test_one_request_and_many_read_alike(files: Any, most: int, monkeypatch: Any) -> None:
    monkeypatch.setitem(started._MOST_REQUESTS, "cpu", most)
    indices = np.random.default_rng(1).integers(0, 39, 100)
    assert_equal(dataset_of(files).__getitems__(indices).batch, files, indices)


def test_samples_are_views_of_the_batch(files: Any) -> None:
    dataset = dataset_of(files)
    found = dataset.__getitems__([3, 30])
    assert found[-1]["image"].data_ptr() == found.batch["image"][1].data_ptr()
    assert [one["label"].item() for one in found] == files.arrays["label"][[3, 30]].tolist()
    with pytest.raises(IndexError):
        found[2]
    assert np.array_equal(dataset[12]["state"], files.arrays["state"][12])
    assert dataset[12]["label"].shape == ()


def test_names_may_be_one_or_a_list(files: Any) -> None:
    assert dataset_of(files)[0].keys() == NAMES.keys()
    assert HDF5Dataset(files.paths[0], "label", device="cpu")[2].keys() == {"label"}
    one = HDF5Dataset(str(files.paths[0]), ["group/state"], device="cpu")
    assert one[1]["group/state"].shape == (3,)


def test_a_group_of_a_file_is_a_source_of_its_own(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "episodes.h5", "w") as file:
        for number in range(3):
            file[f"data/demo_{number}/action"] = np.full((number + 1, 2), number)
    paths = [f"{tmp_path}/episodes.h5:data/demo_{number}" for number in range(3)]
    dataset = HDF5Dataset(paths, "action", device="cpu")
    batch = dataset.__getitems__(range(6)).batch
    assert batch["action"][:, 0].tolist() == [0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("dtype", "kinds"),
    [
        (torch.float32, [torch.float32] * 3),
        ("float16", [torch.float16] * 3),
        (torch.bfloat16, [torch.bfloat16] * 3),
        ({"image": torch.float64}, [torch.float64, torch.float32, torch.int64]),
    ],
)
def test_elements_are_converted_as_they_are_read(files: Any, dtype: Any, kinds: list[Any]) -> None:
    batch = dataset_of(files, dtype=dtype).__getitems__([1, 20, 3]).batch
    assert [tensor.dtype for tensor in batch.values()] == kinds
    for name, tensor in batch.items():
        expected = torch.from_numpy(files.arrays[name][[1, 20, 3]]).to(tensor.dtype)
        assert torch.equal(tensor, expected)


@pytest.fixture
def packed(tmp_path: Path) -> tuple[list[Path], np.ndarray[Any, Any]]:
    """Files with scales of their own, and their decoded elements."""
    paths, decoded = [tmp_path / "0.nc", tmp_path / "1.nc"], []
    for path, scale in zip(paths, (0.5, 0.25), strict=True):
        stored = np.arange(30, dtype="i2").reshape(10, 3)
        with h5py.File(path, "w") as file:
            file["t"], file["label"] = stored, np.arange(10)
            file["t"].attrs["scale_factor"] = np.float32(scale)
            file["t"].attrs["_FillValue"] = np.int16(4)
        decoded.append(np.where(stored == 4, np.nan, stored * scale))
    return paths, np.concatenate(decoded)


@pytest.mark.parametrize("most", [0, 1000])
def test_packed_numbers_are_decoded_by_the_attributes_of_each_file(
    packed: tuple[list[Path], np.ndarray[Any, Any]], most: int, monkeypatch: Any
) -> None:
    monkeypatch.setitem(started._MOST_REQUESTS, "cpu", most)
    paths, expected = packed
    dataset = HDF5Dataset(paths, ["t", "label"], device="cpu", cf=True)
    indices = [12, 1, 3, 19]
    found = pickle.loads(pickle.dumps(dataset)).__getitems__(indices).batch
    assert found["t"].dtype == torch.float32
    np.testing.assert_array_equal(found["t"].numpy(), expected[indices])
    assert found["label"].tolist() == [2, 1, 3, 9]
    np.testing.assert_array_equal(dataset[1]["t"].numpy(), expected[1])
    windows = HDF5Dataset(paths, "t", device="cpu", steps=3, cf=True)
    np.testing.assert_array_equal(windows[8]["t"].numpy(), expected[10:13])


def test_decoded_numbers_have_no_other_dtype(
    packed: tuple[list[Path], np.ndarray[Any, Any]],
) -> None:
    with pytest.raises(InvalidError, match=r"dataset /t of .*0\.nc is decoded to float32"):
        HDF5Dataset(packed[0], "t", device="cpu", dtype="f8", cf=True)
    of_label = {"label": torch.int32}
    found = HDF5Dataset(packed[0], ["t", "label"], device="cpu", dtype=of_label, cf=True)
    assert found[0]["label"].dtype == torch.int32


def test_a_transform_is_given_the_batch(files: Any) -> None:
    def transform(batch: Any) -> Any:
        return batch["image"].float() / 255, batch["label"]

    dataset = dataset_of(files, transform=transform)
    images, labels = dataset.__getitems__([4, 2]).batch
    assert images.shape == (2, 6, 5)
    image, label = dataset[4]
    assert torch.equal(image, images[0])
    assert label == labels[0]


@pytest.mark.parametrize(
    ("steps", "stride", "spacing"), [(1, 1, 1), (5, 1, 1), (3, 2, 2), (4, 5, 1)]
)
def test_windows_along_the_first_axis(files: Any, steps: int, stride: int, spacing: int) -> None:
    dataset = dataset_of(files, steps=steps, stride=stride, spacing=spacing)
    expected = [
        part[start : start + (steps - 1) * spacing + 1 : spacing]
        for part in files.parts["image"]
        for start in range(0, len(part) - (steps - 1) * spacing, stride)
    ]
    assert len(dataset) == len(expected)
    order = np.random.default_rng(2).permutation(len(dataset))
    batch = dataset.__getitems__(order).batch
    assert np.array_equal(batch["image"], np.stack(expected)[order])
    assert batch["state"].shape == (len(dataset), steps, 3)
    assert np.array_equal(dataset[-1]["image"], expected[-1])


@pytest.mark.parametrize("axis", [1, 2])
def test_windows_along_another_axis(tmp_path: Path, axis: int) -> None:
    source = np.random.default_rng(3)
    shapes = [(2, 6, 9), (3, 6, 9)] if axis == 2 else [(2, 9, 4), (3, 5, 4)]
    arrays = [source.random(shape) for shape in shapes]
    for number, array in enumerate(arrays):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("x", data=array, chunks=(1, 3, 2))
            file["mass"] = np.arange(len(array)) + 10 * number
    paths = [tmp_path / "0.h5", tmp_path / "1.h5"]
    dataset = HDF5Dataset(paths, ["x", "mass"], device="cpu", steps=3, stride=2, axis=axis)
    expected = [
        (np.take(array[row], range(start, start + 3), axis - 1), row + 10 * number)
        for number, array in enumerate(arrays)
        for row in range(len(array))
        for start in range(0, array.shape[axis] - 2, 2)
    ]
    assert len(dataset) == len(expected)
    batch = dataset.__getitems__(range(len(dataset))).batch
    assert np.array_equal(batch["x"], np.stack([x for x, _ in expected]))
    assert batch["mass"].tolist() == [mass for _, mass in expected]


def test_blocks_are_chunks_that_do_not_cross_files(files: Any) -> None:
    starts = [0, 4, 8, 11, 12, 16, 20, 24, 28, 32, 36]
    assert dataset_of(files).blocks().tolist() == starts
    assert dataset_of(files).blocks(100).tolist() == [0, 11, 12, 32]


def test_a_block_is_a_chunk_of_the_largest_samples(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("image", (64, 100), "f4", chunks=(2, 100))
        file.create_dataset("label", (64,), "i8", chunks=(32,))
    dataset = HDF5Dataset(tmp_path / "x.h5", ["label", "image"], device="cpu")
    assert dataset.blocks().tolist() == list(range(0, 64, 2))


def test_elements_that_were_never_written_are_zero(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (64, 100), "f4", chunks=(1, 100), fillvalue=None)
    dataset = HDF5Dataset(tmp_path / "x.h5", "x", device="cpu")
    for few in ([1, 2], range(64)):
        assert not dataset.__getitems__(list(few)).batch["x"].any()
    assert not dataset[5]["x"].any()


def test_booleans_and_array_elements_are_tensors(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["done"] = np.array([True, False, True])
        file.create_dataset("pose", (3,), np.dtype(("f4", (2, 2))))
        file["pose"][...] = np.arange(12, dtype="f4").reshape(3, 2, 2)
    dataset = HDF5Dataset(tmp_path / "x.h5", ["done", "pose"], device="cpu")
    batch = dataset.__getitems__([2, 1]).batch
    assert batch["done"].tolist() == [True, False]
    assert batch["pose"].tolist() == [[[8, 9], [10, 11]], [[4, 5], [6, 7]]]


def test_a_pickled_data_set_opens_its_files_again(files: Any) -> None:
    dataset = dataset_of(files, steps=2)
    dataset[0]
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again[5]["image"], dataset[5]["image"])


def test_no_more_files_are_open_than_the_process_may_open(files: Any, monkeypatch: Any) -> None:
    dataset = dataset_of(files)
    monkeypatch.setattr(dataset._files, "_most", 2)
    before = len(os.listdir("/proc/self/fd"))
    for index in (0, 11, 12, 35, 0):
        assert_equal(dataset.__getitems__([index]).batch, files, [index])
    order = np.random.default_rng(0).permutation(39)
    assert_equal(dataset.__getitems__(order).batch, files, order)  # more files than may be open
    assert len(dataset._files._open) == 2
    dataset.close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("index", [39, -40])
def test_a_sample_out_of_range_is_an_index_error(files: Any, index: int) -> None:
    with pytest.raises(IndexError, match=f"sample {index} is out of range.* 39 samples"):
        dataset_of(files)[index]
    with pytest.raises(IndexError, match=f"sample {index}"):
        dataset_of(files).__getitems__([0, index])


def test_an_index_without_a_sign_is_not_that_of_the_last_sample(files: Any) -> None:
    with pytest.raises(IndexError, match="sample 18446744073709551615 is out of range"):
        dataset_of(files).start(np.array([2**64 - 1], "u8"))


def test_an_index_that_is_no_integer_is_refused(files: Any) -> None:
    with pytest.raises(TypeError):
        dataset_of(files)[0.5]
    with pytest.raises(ValueError, match="integers"):
        dataset_of(files).__getitems__([0.5])


def test_a_missing_name_is_a_key_error_with_the_names_that_are_there(files: Any) -> None:
    with pytest.raises(KeyError, match=r"0\.h5.*labels.*datasets in /: image, label, name"):
        HDF5Dataset(files.paths, "labels", device="cpu")
    with pytest.raises(KeyError, match=r"group.*state"):
        HDF5Dataset(files.paths, "group", device="cpu")


def test_strings_are_refused(files: Any) -> None:
    with pytest.raises(InvalidError, match=r"dataset /name of .*0\.h5 has no dimensions"):
        HDF5Dataset(files.paths, "name", device="cpu")
    with h5py.File(files.paths[0], "a") as file:
        file["names"] = ["a", "b"]
        file["places"] = np.zeros(3, [("x", "f4")])
    for name in ("names", "places"):
        with pytest.raises(IncompatibleError, match=f"dataset /{name} of .*leave it out of names"):
            HDF5Dataset(files.paths, name, device="cpu")


def test_a_shape_that_differs_between_files_is_refused(files: Any) -> None:
    with h5py.File(files.paths[2], "a") as file:
        del file["image"]
        file["image"] = np.zeros((20, 6, 7), "u1")
    with pytest.raises(IncompatibleError, match=r"/image of .*2\.h5 have shape \(6, 7\).*0\.h5"):
        dataset_of(files)


def test_a_type_that_differs_between_files_needs_a_dtype(files: Any) -> None:
    with h5py.File(files.paths[2], "a") as file:
        del file["image"]
        file["image"] = np.ones((20, 6, 5), "f4")
    with pytest.raises(IncompatibleError, match=r"2\.h5 have type torch.float32.*give dtype"):
        dataset_of(files)
    batch = dataset_of(files, dtype={"image": torch.float32}).__getitems__([0, 12]).batch
    assert batch["image"][1].eq(1).all()


def test_datasets_of_different_lengths_in_a_file_are_refused(files: Any) -> None:
    with h5py.File(files.paths[1], "a") as file:
        del file["group/state"]
        file["group/state"] = np.zeros((2, 3), "f4")
    with pytest.raises(InvalidError, match=r"1\.h5: the datasets have different lengths"):
        dataset_of(files)


def test_a_file_that_is_cut_off_is_named(files: Any) -> None:
    os.truncate(files.paths[3], 3000)
    with pytest.raises(OSError, match=r"3\.h5 cannot be opened.*cut off"):
        dataset_of(files)


def test_a_chunk_that_is_cut_off_later_is_named(files: Any) -> None:
    dataset = dataset_of(files)
    os.truncate(files.paths[2], 3000)
    with pytest.raises(OSError, match=r"2\.h5"):
        dataset.__getitems__(range(39))


def test_a_file_that_is_not_there_is_named(files: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"other\.h5"):
        HDF5Dataset([*files.paths, tmp_path / "other.h5"], "label", device="cpu")


@pytest.mark.parametrize("values", [np.zeros(10, "i8"), np.zeros(13, "i8")], ids=len)
def test_a_file_that_changed_is_named(files: Any, values: Any) -> None:
    dataset = dataset_of(files)
    with h5py.File(files.paths[0], "a") as file:
        del file["label"]
        file["label"] = values
    with pytest.raises(InvalidError, match=r"0\.h5 was replaced or changed after the data set was"):
        dataset[0]


def test_a_file_that_was_replaced_is_named(files: Any) -> None:
    dataset = dataset_of(files)
    dataset[0]
    dataset.close()
    copy = shutil.copy(files.paths[0], files.paths[0].with_suffix(".new"))
    os.replace(copy, files.paths[0])
    with pytest.raises(InvalidError, match=r"0\.h5 was replaced or changed after the data set was"):
        pickle.loads(pickle.dumps(dataset))[0]


@pytest.mark.parametrize("device", ["meta", "nothing", 7.5])
def test_a_device_that_torch_or_penstock_lacks_is_refused(files: Any, device: Any) -> None:
    with pytest.raises(InvalidError, match="cuda"):
        dataset_of(files, device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(files: Any) -> None:
    with pytest.raises(UnavailableError, match=r"cuda.*not there"):
        dataset_of(files, device="cuda")


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": 0},
        {"steps": 2, "stride": 0},
        {"steps": 2, "spacing": 0},
        {"steps": 2, "axis": -1},
        {"stride": 2},
        {"steps": 2, "axis": 5},
        {"dtype": {"other": "f4"}},
    ],
)
def test_arguments_that_make_no_samples_are_refused(files: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        dataset_of(files, **arguments)


def test_no_files_or_names_are_refused(files: Any) -> None:
    with pytest.raises(InvalidError, match="no file"):
        HDF5Dataset([], "label", device="cpu")
    with pytest.raises(InvalidError, match="names is empty"):
        HDF5Dataset(files.paths, [], device="cpu")


LIMITED = """
import resource, sys, time
from penstock.torch import Batches, HDF5Dataset

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
paths = [f"{sys.argv[1]}/{number}.h5" for number in range(200)]
datasets = [HDF5Dataset(paths, "x", device="cpu") for _ in range(2)]
for dataset in datasets:
    found = [x for batch in Batches(dataset, 64, seed=1) for x in batch["x"][:, 0].tolist()]
    assert sorted(found) == list(range(200))
for dataset in datasets:
    dataset.close()
time.sleep(0.3)  # files stay open for a tenth of a second after a read
held = []
try:
    while True:
        held.append(open("/dev/null"))
except OSError:
    pass
try:
    datasets[0][0]
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("chunks", [None, (1, 3000)])
def test_a_batch_may_have_more_files_than_there_are_descriptors(
    tmp_path: Path, chunks: Any
) -> None:
    for number in range(200):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            filters = {"chunks": chunks, "compression": "gzip"} if chunks else {}
            file.create_dataset("x", data=np.full((1, 3000), number, "f4"), **filters)
    command = [sys.executable, "-c", LIMITED, tmp_path]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "0.h5 cannot be opened" in made.stdout
    assert "ulimit -n" in made.stdout
    assert "cut off" not in made.stdout


def test_a_batch_whose_read_failed_is_never_returned(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", data=np.arange(4096.0), chunks=(64,), compression="gzip")
        place = data.id.get_chunk_info(3).byte_offset
    with open(path, "r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 32)
    reads = HDF5Dataset(path, ["x"], device="cpu").start(range(4096))
    for _ in range(3):
        with pytest.raises(Exception, match=r"x\.h5|this batch failed"):
            reads.wait()


def test_a_transform_is_applied_once_however_often_a_batch_is_waited_for(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(8.0)
    dataset = HDF5Dataset(
        tmp_path / "x.h5", ["x"], device="cpu", transform=lambda batch: batch["x"].add_(1)
    )
    reads = dataset.start(range(8))
    for _ in range(3):
        assert reads.wait().tolist() == [number + 1 for number in range(8)]


def test_a_batch_whose_transform_failed_is_never_returned(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(8.0)
    dataset = HDF5Dataset(tmp_path / "x.h5", ["x"], device="cpu", transform=lambda batch: batch[3])
    reads = dataset.start(range(8))
    for error in (KeyError, InvalidError):
        with pytest.raises(error):
            reads.wait()


def test_windows_of_a_dataset_without_elements_have_their_shape(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros((20, 0))
    dataset = HDF5Dataset(tmp_path / "x.h5", ["x"], device="cpu", steps=2)
    assert dataset[0]["x"].shape == (2, 0)
    assert dataset.start(range(5)).wait()["x"].shape == (5, 2, 0)
