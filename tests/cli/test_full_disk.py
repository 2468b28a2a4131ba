"""Files of results on a file system that is full."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import h5py
import pytest

OLD = b"old\n" * 1024
"""A whole page, so that nothing can be appended."""


@pytest.fixture
def disk(tmp_path):
    """A file system without room, and a file on it that was written before."""
    folder = tmp_path / "disk"
    folder.mkdir()
    kind = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
    mounted = subprocess.run(kind, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    try:
        (folder / "old").write_bytes(OLD)
        with suppress(OSError), open(folder / "filler", "wb", 0) as filler:
            while True:
                filler.write(bytes(4096))
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def small_file(tmp_path):
    path = tmp_path / "small.bin"
    path.write_bytes(bytes(4096))
    return path


BENCH = ["bench", "hdf5-write", "--sizes", "1000", "--dtypes", "float32", "--device", "cpu"]
BENCH += ["-i", "1", "--peers", "none", "--dir"]


@pytest.mark.parametrize(
    "command",
    [
        ["read", "SMALL", "--device", "cpu", "--trace", "OLD"],
        ["report", "--html", "OLD"],
        ["run", "--report-to", "OLD", "true"],
        [*BENCH, "FOLDER", "--json", "OLD"],
        [*BENCH, "FOLDER", "--csv", "OLD"],
    ],
    ids=["trace", "html", "report-to", "json", "csv"],
)
def test_a_result_that_cannot_be_written_leaves_the_old_file_and_is_an_error_with_its_name(
    penstock, disk, small_file, tmp_path, command
):
    place = {"SMALL": small_file, "OLD": disk / "old", "FOLDER": tmp_path}
    status = 2 if command[0] in ("bench", "report") else 1
    done = penstock(*[place.get(word, word) for word in command], status=status)
    assert f"{disk}/old" in done.stderr.splitlines()[-1]
    assert "No space left on device" in done.stderr
    assert (disk / "old").read_bytes() == OLD
    assert sorted(file.name for file in disk.iterdir()) == ["filler", "old"]


def test_a_log_that_the_connector_cannot_write_is_reported_at_the_end(penstock, disk, tmp_path):
    program = "import h5py; h5py.File('x.h5', 'w')['x'] = range(100000)"
    options = ["--async", "--async-implicit", "--async-log", disk / "old", "--report"]
    shown = penstock("run", *options, "env", "-C", tmp_path, sys.executable, "-c", program)
    assert f"{disk}/old: the log lacks calls" in shown.stderr
    assert "No space left on device" in shown.stderr
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["x"][-1] == 99999
