"""Data sets of the Well, compared with those of the package ``the_well``."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("the_well", reason="the_well is not installed")

import the_well.data.datasets as theirs
import torch
import yaml
from the_well.data.normalization import ZScoreNormalization
from the_well.utils.dummy_data import write_dummy_data

from penstock.torch import Batches, well

STATISTICS = {"field": [0.5, 0.2], "constant_field": 0.3}


def scaled(data: Any, metadata: Any) -> Any:
    data["variable_fields"][1]["field"] *= metadata.time_idx + 1
    return data


ARGUMENTS: dict[str, dict[str, Any]] = {
    "default": {},
    "more steps": {"n_steps_input": 3, "n_steps_output": 2},
    "stride": {"n_steps_input": 2, "min_dt_stride": 2, "max_dt_stride": 2},
    "random stride": {"max_dt_stride": 3},
    "trajectories": {"full_trajectory_mode": True},
    "end of trajectories": {"full_trajectory_mode": True, "start_output_steps_at_t": 4},
    "normalized": {"use_normalization": True, "normalization_type": ZScoreNormalization},
    "some samples": {"restrict_num_samples": 7},
    "some trajectories": {"restrict_num_trajectories": 2},
    "no grid": {"return_grid": False, "cache_small": False, "boundary_return_type": None},
    "transformed": {"transform": scaled},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: Any) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("well")
    split = folder / "dummy/data/train"
    split.mkdir(parents=True)
    for number in range(3):
        write_dummy_data(str(split / f"{number}.hdf5"))
    known = dict.fromkeys(("mean", "std", "mean_delta", "std_delta"), STATISTICS)
    (folder / "dummy/stats.yaml").write_text(yaml.safe_dump(known))
    names = {"well_dataset_name": "dummy", "well_split_name": "train"}
    return {"well_base_path": str(folder), **names}


def samples(dataset: Any) -> Iterator[dict[str, Any]]:
    np.random.seed(3)  # the_well draws strides from it
    return (dataset[index] for index in range(len(dataset)))


def assert_same(mine: dict[str, Any], other: dict[str, Any]) -> None:
    assert mine.keys() == other.keys()
    for name, tensor in mine.items():
        assert tensor.dtype == other[name].dtype
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("name", ARGUMENTS)
def test_each_sample_is_that_of_the_well(place: dict[str, Any], name: str) -> None:
    arguments = {**place, **ARGUMENTS[name]}
    other = list(samples(theirs.WellDataset(**arguments)))
    mine = well.WellDataset(**arguments)
    assert len(mine) == len(other)
    for one, expected in zip(samples(mine), other, strict=True):
        assert_same(one, expected)
    np.random.seed(3)
    for one, expected in zip(mine.__getitems__(range(len(mine))), other, strict=True):
        assert_same(one, expected)


def test_samples_of_differences_are_those_of_the_well(place: dict[str, Any]) -> None:
    other = theirs.DeltaWellDataset(**place, n_steps_output=2)
    mine = well.DeltaWellDataset(**place, n_steps_output=2)
    for one, expected in zip(samples(mine), samples(other), strict=True):
        assert_same(one, expected)


@pytest.mark.parametrize("shuffle", ["full", "blocks", False])
def test_batches_have_each_sample_once(place: dict[str, Any], shuffle: Any) -> None:
    mine = well.WellDataset(**place)
    taken = list(Batches(mine, 8, shuffle=shuffle))
    found = torch.cat([batch["input_fields"] for batch in taken]).flatten(1)
    other = torch.stack([one["input_fields"] for one in samples(mine)]).flatten(1)
    assert torch.equal(found.sum(1).sort().values, other.sum(1).sort().values)


def test_a_worker_has_a_copy_of_its_own(place: dict[str, Any]) -> None:
    mine = well.WellDataset(**place)
    assert_same(pickle.loads(pickle.dumps(mine))[5], mine[5])
    loader = torch.utils.data.DataLoader(mine, batch_size=9, num_workers=2)
    found = torch.cat([batch["output_fields"] for batch in loader])
    assert torch.equal(found, torch.stack([one["output_fields"] for one in samples(mine)]))


MANY_FILES = """
import os, resource, sys
import numpy as np
import torch
from penstock.torch import Batches, well
from tests.torch_kernels import kernels_on_cpu

folder, device = sys.argv[1:]
dataset = well.WellDataset(path=folder, well_split_name="train", n_steps_output=1)
assert len(dataset.files_paths) == 200
expected = torch.stack([dataset[n]["input_fields"] for n in range(len(dataset))])
dataset._files.close()
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 64, used + 64))
dataset = well.WellDataset(path=folder, well_split_name="train", n_steps_output=1, device=device)
for shuffle in (False, "full"):
    with kernels_on_cpu():
        taken = list(Batches(dataset, len(dataset), shuffle=shuffle))
    found = torch.cat([batch["input_fields"] for batch in taken]).cpu().flatten(1)
    assert torch.equal(found.sum(1).sort().values, expected.flatten(1).sum(1).sort().values)
"""


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU"),
            ],
        ),
    ],
)
def test_a_batch_may_have_more_files_than_there_are_descriptors(
    place: dict[str, Any], tmp_path: Path, device: str
) -> None:
    source = Path(place["well_base_path"]) / "dummy/data/train/0.hdf5"
    folder = tmp_path / "data/train"
    folder.mkdir(parents=True)
    for number in range(200):
        shutil.copyfile(source, folder / f"{number:03}.hdf5")
    command = [sys.executable, "-c", MANY_FILES, str(tmp_path), device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_file_system_that_is_not_local_is_refused(place: dict[str, Any], tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    source = Path(place["well_base_path"]) / "dummy/data/train/0.hdf5"
    memory.pipe("/well/data/train/0.hdf5", source.read_bytes())
    with pytest.raises(ValueError, match="not in a local file system"):
        well.WellDataset(path="memory://well", well_split_name="train")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_each_sample_on_a_gpu_is_that_of_the_well(place: dict[str, Any], name: str) -> None:
    arguments = {**place, **ARGUMENTS[name]}
    other = samples(theirs.WellDataset(**arguments))
    expected = torch.stack([one["input_fields"] for one in other])
    mine = well.WellDataset(**arguments, device="cuda")
    np.random.seed(3)
    taken = list(Batches(mine, 8, shuffle=False))
    assert all(tensor.is_cuda for batch in taken for tensor in batch.values())
    found = torch.cat([batch["input_fields"] for batch in taken])
    torch.testing.assert_close(found.cpu(), expected)
