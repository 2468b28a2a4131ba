"""Strings with a fill value while other handles of their file are closed.

HDF5 (1.14.4 to 2.2.0) crashes in ``H5Dget_create_plist`` of such a dataset if the stored type names
a handle that was closed. So each case is a process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

_PROGRAM = """
import ctypes, sys
import h5py, numpy as np
import penstock as ps
from penstock._native import ffi, lib
from penstock.hdf5.library import lock

def creation_list(dataset):
    place = ffi.new("penstock_hid *")
    with lock():
        assert lib.penstock_dataset_creation_list(dataset.id.id, place) == 0
        return h5py.h5p.PropDCID(place[0]).get_chunk()

for _ in range(5):
    first = ps.File(sys.argv[1])
    first["strings"].ndim
    second = ps.File(sys.argv[1])
    dataset = second["strings"]
    first.close()
    # Other contents for the memory that the first handle was in.
    sizes = [n for n in range(16, 400, 8) for _ in range(50)]
    filled = [ctypes.create_string_buffer(b"\\xff" * n) for n in sizes]
    result = eval(sys.argv[2])
    second.close()
print(result)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "strings.h5"
    with h5py.File(made, "w") as file:
        file.create_dataset("strings", (20,), h5py.string_dtype(), fillvalue="none", chunks=(5,))
    return made


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("dataset[3]", b"none"),
        ("dataset[2:5].tolist()", [b"none"] * 3),
        ("dataset[[3, 1]].tolist()", [b"none"] * 2),
        ("dataset.read_async(np.s_[:2]).wait().tolist()", [b"none"] * 2),
        ("ps.read_many([(dataset, 3), dataset])[0]", b"none"),
        ("next(iter(dataset))", b"none"),
        ("dataset.chunks", (5,)),
        ("dataset.fillvalue", b"none"),
        ("dataset.filter_ids", ()),
        ("next(dataset.iter_chunks())", (slice(0, 5, 1),)),
        ("dataset.is_virtual", False),
        ("creation_list(dataset)", (5,)),
        ("ps.File.in_memory().create_dataset_like('x', dataset).fillvalue", b"none"),
    ],
)
def test_strings_with_a_fill_value_survive_the_close_of_another_handle(path, expression, result):
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, path, expression],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(result)


def test_a_read_of_strings_queries_no_creation_properties(path, monkeypatch):
    import penstock as ps

    def refuse(self):
        raise AssertionError("a read asks for the creation properties")

    monkeypatch.setattr(h5py.Dataset, "_dcpl", property(refuse))
    with ps.File(path) as file:
        assert file["strings"][3] == b"none"
        assert file["strings"][...].tolist() == [b"none"] * 20
        assert file["strings"].read(np.s_[2:4]).tolist() == [b"none"] * 2
