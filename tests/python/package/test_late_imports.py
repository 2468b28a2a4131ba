"""Transfers import nothing, so that they succeed where no descriptor is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, resource, sys
import h5py, numpy as np
import penstock as ps

folder = sys.argv[1]
numbers = np.arange(200_000, dtype="i4").reshape(1000, 200)
records = np.zeros(50_000, [("a", "i4"), ("b", "f8"), ("c", "u1")])
with ps.File(folder + "/f.h5", "w") as file:
    file.create("gzip", data=numbers, chunks=(50, 200), compression="gzip")
    file.create("plain", data=numbers)
    file.create("records", data=records, chunks=(1000,))
    file.create("strings", data=["a", "bc"] * 50)
    file.create("bools", data=numbers % 2 == 0)
ps.save(folder + "/raw", numbers)

imported = []
def hook(event, arguments):
    if event == "import":
        imported.append(arguments[0])

def transfers():
    for name in ("gzip", "plain"):
        x = file[name]
        assert x[...].sum() == numbers.sum()
        for selection in (5, np.s_[:10], np.s_[::3, 4], [900, 3, 3], ([1, 2], [3, 4]), numbers > 7):
            assert np.array_equal(x[selection], numbers[selection])
        x.read(out=np.zeros((200, 1000), "f8").T)
        x.read_async(np.s_[:50]).wait()
        x.astype("f4")[:3]
        for _, part in x.blocks(300):
            part.sum()
    ps.read_many([file["gzip"], (file["plain"], 3)])
    file["records"]["a"], file["records"].fields(["a", "c"])[:10], file["records"][5]
    file["strings"][:], file["strings"].asstr()[3], file["bools"][:3], file["bools"].astype("i8")[:]

def writes():
    for name in ("gzip", "plain"):
        x = file[name]
        for value in (numbers, numbers.astype("f4"), numbers[::-1], 5, [3] * 200, numbers.tolist()):
            x[...] = value
            x[:5] = np.asarray(value)[:5] if np.ndim(value) == 2 else value
        x[[900, 3, 3]] = 7
        x.write_async(numbers).wait()
    file["records"]["a", :100] = np.arange(100)
    file["records"]["a", "b", :100] = records[:100]
    file["records"]["a"] = records[["a", "c"]]
    file["bools"][...] = numbers
    file["strings"][3] = "d"

if sys.argv[2] == "reads":
    file = ps.File(folder + "/f.h5")
    file["gzip"].ndim
else:
    file = ps.File(folder + "/f.h5", "r+")
if sys.argv[3] == "exhausted":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            os.open("/dev/null", os.O_RDONLY)
    except OSError:
        pass
    assert np.array_equal(file["plain"][:], numbers)
    assert np.array_equal(file["gzip"][:], numbers)
    assert np.array_equal(file["gzip"][[900, 3, 3]], numbers[[900, 3, 3]])
    assert np.array_equal(ps.read_many([file["gzip"]])[0], numbers)
    if sys.argv[2] == "writes":
        file["gzip"][...] = numbers[::-1]
        file["plain"][...] = numbers[::-1]
        assert np.array_equal(file["gzip"][:], numbers[::-1])
        assert np.array_equal(file["plain"][:], numbers[::-1])
else:
    sys.addaudithook(hook)
    transfers() if sys.argv[2] == "reads" else writes()
    ps.load(folder + "/raw", dtype="i4")
    ps.save(folder + "/raw", numbers[::2])
    file.close()
print(imported)
"""


@pytest.mark.parametrize("condition", ["any", "exhausted"])
@pytest.mark.parametrize("what", ["reads", "writes"])
def test_a_transfer_imports_nothing(tmp_path: Path, what, condition):
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, tmp_path, what, condition],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stderr, done.stdout.strip()) == ("", "[]")
