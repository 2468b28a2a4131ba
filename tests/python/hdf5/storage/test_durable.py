"""What ``durable`` promises of HDF5 files, seen by the system calls of a process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

PROGRAM = """
import os
import numpy as np
import penstock as ps
file = ps.File("f.h5", "w")
file.create_dataset("old", (100,), "f8")
file.h5py.flush()
os.path.exists("/begin")
with ps.options(durable={durable}):
    {act}
os._exit(0)
"""

ACTS = {
    "flush": "file.attrs['a'] = 1; file.flush()",
    "dataset": "file['old'].h5py[:] = 1; file['old'].flush()",
    "close": "file.attrs['a'] = 1; file.close()",
    "array": "file['x'] = np.ones(1000)",
    "list": "file.create_dataset('x', data=[[1, 2], [3, 4]])",
    "text": "file.create_dataset('x', data='text')",
}


def calls(folder, act, durable):
    """The calls on the HDF5 file, in their order, after the program has made it."""
    program = PROGRAM.format(act=ACTS[act], durable=durable)
    text = trace(folder, program).partition('"/begin"')[2]
    return re.findall(r"(fdatasync|pwrite64)\(\d+<[^>]*f\.h5>", text)


def trace(folder, program):
    calls = "trace=fsync,fdatasync,pwrite64,?access,?stat,?newfstatat"
    command = ["strace", "-f", "-y", "-e", calls, "-o", "trace", sys.executable, "-c", program]
    subprocess.run(command, cwd=folder, check=True, timeout=120, env=os.environ)
    return (folder / "trace").read_text()


@pytest.mark.parametrize("act", ACTS)
def test_what_is_made_under_durable_options_is_on_the_medium(tmp_path, act):
    made = calls(tmp_path, act, durable=True)
    assert "fdatasync" in made
    if act != "close":  # which ends with the superblock
        assert made[-1] == "fdatasync"


@pytest.mark.parametrize("act", ACTS)
def test_without_durable_nothing_is_synced(tmp_path, act):
    assert "fdatasync" not in calls(tmp_path, act, durable=False)


@pytest.mark.parametrize("end", ["flush", "close"])
@pytest.mark.parametrize("filters", ["", ", compression='gzip'"])
def test_the_connector_syncs_what_hdf5_writes(tmp_path, monkeypatch, filters, end):
    act = f"file.h5py.create_dataset('x', data=np.ones(1000){filters}); file.h5py.{end}()"
    monkeypatch.setitem(ACTS, "connector", act)
    connector = 'connector="penstock_async", connector_options={{"durable": "yes"}}'
    monkeypatch.setattr(
        sys.modules[__name__], "PROGRAM", PROGRAM.replace('"w"', f'"w", {connector}')
    )
    assert calls(tmp_path, "connector", durable=False)[-1] == "fdatasync"


@pytest.mark.parametrize("act", [*ACTS, "connector", "write"])
@pytest.mark.parametrize("folder", [".", "other"])
def test_the_folder_of_a_file_is_synced_once(tmp_path, act, folder):
    """Also if the program changes its folder, and if the next file gets the same inode."""
    acts = {
        "connector": "file.h5py['x'] = np.ones(1000); file.h5py.flush()",
        "write": "ps.write(file['old'], np.ones(100))",
    }
    more = ", connector='penstock_async', connector_options={'durable': 'yes'}"
    program = f"""
import os
import numpy as np
import penstock as ps
os.mkdir("other")
for name in ("f.h5", "g.h5"):
    file = ps.File(name, "w"{more if act == "connector" else ""})
    file.create_dataset("old", (100,), "f8")
    os.chdir({folder!r})
    with ps.options(durable=True):
        {(ACTS | acts)[act]}
        if file.h5py:
            file.h5py["y"] = np.ones(1000)
            file.flush()
    os.chdir({str(tmp_path)!r})
    file.close()
    os.remove(name)
"""
    born = subprocess.run(["stat", "-c", "%W", tmp_path], capture_output=True, check=True).stdout
    if int(born) == 0:
        pytest.skip("the file system does not distinguish files with the same inode")
    synced = re.findall(r"fsync\(\d+<([^>]*)>", trace(tmp_path, program))
    assert synced == [str(tmp_path)] * 2


def refused(dataset):
    with pytest.raises(ps.UnavailableError, match="durable is not available"):
        ps.write(dataset, np.ones(100), durable=True)


@pytest.mark.parametrize("driver", ["stdio", "core", "family", "split"])
def test_durable_is_refused_with_drivers_of_other_files(tmp_path, driver):
    with ps.File(tmp_path / ("f%d.h5" if driver == "family" else "f.h5"), "w", driver) as file:
        refused(file.create_dataset("x", (100,), "f8"))


def test_durable_has_no_effect_on_a_file_in_memory_alone():
    with ps.options(durable=True), ps.File.in_memory() as file:
        file["x"] = np.zeros(100)
        ps.write(file["x"], np.ones(100))
        file.flush()
        assert (file["x"][:] == 1).all()


def test_durable_is_refused_for_external_files(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        external = [(str(tmp_path / "raw"), 0, 800)]
        refused(file.create_dataset("x", (100,), "f8", external=external))


def test_a_flush_of_a_virtual_dataset_is_refused_in_a_file_that_is_open_for_writing(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        layout = h5py.VirtualLayout((100,), "f8")
        file.create_virtual_dataset("x", layout)
    for mode in ("r", "r+"):
        with ps.File(tmp_path / "f.h5", mode) as file, ps.options(durable=True):
            dataset = file["x"]
            if mode == "r":
                dataset.flush()
                continue
            with pytest.raises(ps.UnavailableError, match="durable is not available"):
                dataset.flush()


def test_durable_is_refused_for_virtual_datasets(tmp_path):
    with h5py.File(tmp_path / "source.h5", "w") as source:
        source["x"] = np.zeros(100)
    with ps.File(tmp_path / "f.h5", "w") as file:
        layout = h5py.VirtualLayout((100,), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "x", (100,))
        refused(file.create_virtual_dataset("x", layout))
