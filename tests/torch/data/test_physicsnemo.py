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


def test_a_loader_of_datapipes_takes_the_reader(path: Path) -> None:
    from physicsnemo.datapipes import DataLoader, Dataset

    dataset = Dataset(HDF5Reader(path, fields=["pressure"]))
    batches = list(DataLoader(dataset, batch_size=3))
    found = [batch[0] if isinstance(batch, tuple) else batch for batch in batches]
    assert [tuple(batch["pressure"].shape) for batch in found] == [(3, 50)] * 3
