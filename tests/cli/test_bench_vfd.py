"""`penstock bench vfd`, each time in a new process: the driver takes its settings once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest


def run_vfd(program, folder, *words, **environment):
    """Run the benchmark by a program that changes it, with further variables."""
    return subprocess.run(
        [sys.executable, "-c", program, "bench", "vfd", *words, "--dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | environment,
    )


BROKEN = """
import sys
from penstock.bench import vfd
from penstock.cli import main

write = vfd.write

def broken(way, *arguments):
    if way.name == "direct":
        raise OSError("broken")
    write(way, *arguments)

vfd.write = broken
sys.argv = ["penstock", *sys.argv[1:]]
main()
"""


@pytest.mark.gpu
def test_a_mode_of_our_driver_that_fails_is_a_failure(folder):
    words = ["--sizes", "1MiB", "--modes", "auto,direct", "--directions", "write", "-i", "1"]
    done = run_vfd(BROKEN, folder, *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "direct" in done.stderr


WRONG = """
import sys
from penstock.bench import gpu, vfd
from penstock.cli import main

read, write = vfd.read, vfd.write
PLACE = 100 << 10

def flip(address):
    gpu.put(address, gpu.get(address, 1) ^ 1)

def wrong_read(way, file, buffer, *arguments):
    read(way, file, buffer, *arguments)
    flip(buffer.address + PLACE)

def wrong_write(way, file, buffer, *arguments):
    flip(buffer.address + PLACE)
    write(way, file, buffer, *arguments)
    flip(buffer.address + PLACE)

vfd.read, vfd.write = wrong_read, wrong_write
sys.argv = ["penstock", *sys.argv[1:]]
main()
"""


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["read", "write"])
def test_vfd_compares_all_bytes_of_the_last_run(folder, direction):
    words = ["--sizes", "4MiB", "--modes", "auto", "--directions", direction, "--cache", "warm"]
    done = run_vfd(WRONG, folder, *words, "-i", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WrongBytesError" in done.stderr


KILLED = """
import os, signal, sys
from penstock.bench import vfd
from penstock.cli import main

vfd.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["penstock", *sys.argv[1:]]
main()
"""


@pytest.mark.gpu
def test_all_files_of_a_run_are_in_the_folder_that_is_measured(tmp_path):
    measured, temporary = tmp_path / "measured", tmp_path / "temporary"
    measured.mkdir()
    temporary.mkdir()
    words = ["--sizes", "1MiB", "--modes", "auto", "--directions", "write", "--cache", "warm"]
    done = run_vfd(KILLED, measured, *words, TMPDIR=str(temporary))
    assert done.returncode == -signal.SIGKILL
    assert len(list(measured.iterdir())) == 1
    assert list(temporary.iterdir()) == []
