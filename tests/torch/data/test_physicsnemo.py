"""The reader for PhysicsNeMo's datapipes, compared with that of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip(
    "physicsnemo.datapipes.readers.hdf5", reason="nvidia-physicsnemo is not installed"
)

import torch
from physicsnemo.datapipes.readers import hdf5 as theirs

from penstock.torch.physicsnemo import HDF5Reader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    source = np.random.default_rng(0)
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file.create_dataset(
            "pressure", data=source.random((9, 50), "f4"), chunks=(1, 50), compression="gzip"
        )
        file["velocity"] = source.random((9, 10, 3))
        file["number"] = np.arange(9)
    return tmp_path / "run.h5"


def assert_same(mine: Any, other: Any) -> None:
    assert len(mine) == len(other)
    assert mine.field_names == other.field_names
    for index in [*range(len(mine)), -1]:
        (found, metadata), (expected, known) = mine[index], other[index]
        assert metadata == known
        assert found.keys() == expected.keys()
        for name in found.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
            assert torch.equal(found[name], expected[name])


@pytest.mark.parametrize("index_key", [None, "number"])
def test_samples_of_a_file_are_the_same(path: Path, index_key: str | None) -> None:
    arguments: dict[str, Any] = {"fields": ["pressure", "velocity"], "index_key": index_key}
    with HDF5Reader(path, **arguments) as mine, theirs.HDF5Reader(path, **arguments) as other:
        assert_same(mine, other)


def test_samples_of_a_folder_are_the_same(tmp_path: Path) -> None:
    for number in range(4):
        with h5py.File(tmp_path / f"sample_{number}.h5", "w") as file:
            file["points"] = np.random.default_rng(number).random((5 + number, 3))
    arguments = {"file_pattern": "sample_*.h5"}
    assert_same(HDF5Reader(tmp_path, **arguments), theirs.HDF5Reader(tmp_path, **arguments))


def test_elements_that_were_never_written_are_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "sample_0.h5", "w") as file:
        points = file.create_dataset("points", (40,), "f4", chunks=(20,), fill_time="never")
        points[:20] = 1

    def used_before(shape: Any, **keys: Any) -> torch.Tensor:
        return torch.full(shape, 7, **keys)

    monkeypatch.setattr(torch, "empty", used_before)
    sample, _ = HDF5Reader(tmp_path, file_pattern="sample_*.h5")[0]
    assert sample["points"].tolist() == [1] * 20 + [0] * 20


def test_a_field_of_numbers_is_read(path: Path) -> None:
    assert HDF5Reader(path)[3][0]["number"] == 3


def test_a_missing_field_is_named(path: Path) -> None:
    with pytest.raises(KeyError, match=r"run\.h5 has no object /density; datasets in /: number"):
        HDF5Reader(path, fields=["density"], index_key="number")


def test_a_field_of_arrays_is_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file.create_dataset("corner", (4,), np.dtype(("f4", (3,))))[...] = np.arange(12).reshape(
            4, 3
        )
    arguments = {"fields": ["corner"]}
    mine, other = (
        kind(tmp_path / "run.h5", **arguments) for kind in (HDF5Reader, theirs.HDF5Reader)
    )
    assert_same(mine, other)


def test_a_sample_that_a_shorter_field_lacks_is_an_error(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["short"] = np.arange(7)
    reader = HDF5Reader(path, fields=["pressure", "short"])
    assert reader[6][0]["short"] == 6
    with pytest.raises(IndexError, match=r"/short of .*run\.h5 has 7 samples, and sample 7 is"):
        reader[7]


def test_a_closed_reader_raises_an_error(path: Path) -> None:
    reader = HDF5Reader(path)
    reader.close()
    with pytest.raises(ValueError, match=r"the reader of .*run\.h5 is closed"):
        reader[0]


@pytest.mark.parametrize(
    ("name", "value", "kind", "why"),
    [
        ("text", np.array(["a", "b"], h5py.string_dtype()), TypeError, "hold Python objects"),
        ("pair", np.zeros(2, "f4,i4"), TypeError, "are no numbers"),
        ("long", np.ones(2, np.longdouble), TypeError, "torch has no data type"),
        ("null", h5py.Empty("f4"), ValueError, "has no dimensions"),
        ("scalar", 3.0, ValueError, "has no dimensions"),
    ],
)
def test_a_field_that_is_no_tensor_is_named(
    path: Path, name: str, value: Any, kind: type[Exception], why: str
) -> None:
    with h5py.File(path, "a") as file:
        file[name] = value
    reader = HDF5Reader(path, fields=[name], index_key="number")
    with pytest.raises(kind, match=rf"/{name} of .*run\.h5.*{why}.*; leave it out of fields"):
        reader[0]


def test_a_file_of_a_folder_without_elements_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "sample_0.h5", "w") as file:
        file["points"] = h5py.Empty("f4")
    with pytest.raises(TypeError, match=r"/points of .*sample_0\.h5: its dataspace is null"):
        HDF5Reader(tmp_path)[0]


def test_a_loader_of_datapipes_takes_the_reader(path: Path) -> None:
    from physicsnemo.datapipes import DataLoader, Dataset

    dataset = Dataset(HDF5Reader(path, fields=["pressure"]))
    batches = list(DataLoader(dataset, batch_size=3))
    found = [batch[0] if isinstance(batch, tuple) else batch for batch in batches]
    assert [tuple(batch["pressure"].shape) for batch in found] == [(3, 50)] * 3
