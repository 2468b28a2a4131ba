"""New files that replace others as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock._native import lib
from penstock.errors import Error, check
from penstock.files import WRITE, NativeFile
from penstock.replacement import Replacement

SAVE = "import sys, numpy, penstock; penstock.save(sys.argv[1], numpy.zeros(3))"
REPLACE = """
import sys
from pathlib import Path
from penstock.replacement import Replacement
with Replacement(Path(sys.argv[1])):
    print("begun", flush=True)
    sys.stdin.read()
"""
HIDE_PROC = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")


FORK = """
import os, sys
from pathlib import Path
from penstock.replacement import Replacement
new = Replacement(Path(sys.argv[1]))
with new as descriptor:
    child = os.fork()
    if not child:
        new.__exit__(None, KeyboardInterrupt(), None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.write(descriptor, b"new")
"""

PUBLISH_IN_CHILD = """
import os, sys
from pathlib import Path
from penstock.errors import ForkedError
from penstock.replacement import Replacement
new = Replacement(Path(sys.argv[1]))
with new as descriptor:
    os.write(descriptor, b"ne")
    child = os.fork()
    if not child:
        try:
            new.__exit__(None, None, None)
        except ForkedError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert not os.path.exists(sys.argv[1])
    os.write(descriptor, b"w")
"""


@pytest.fixture(params=["unnamed", "named"])
def python(request: pytest.FixtureRequest) -> list[str]:
    """The start of a command. Without /proc, a file without a name could not get one later."""
    start = [sys.executable, "-c"]
    if request.param == "unnamed":
        return start
    if subprocess.run([*HIDE_PROC, "true"], check=False, capture_output=True).returncode:
        pytest.skip("/proc cannot be hidden from a process here")
    return [*HIDE_PROC, *start]


@pytest.mark.parametrize("writer", ["save", "replacement"])
def test_the_file_of_a_dead_process_is_removed_by_the_next_process(
    tmp_path: Path, python: list[str], writer: str
) -> None:
    command = [*python, REPLACE, str(tmp_path / "x")]
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"begun\n"
        left = os.listdir(tmp_path)
        assert len(left) == (python[0] == HIDE_PROC[0])
        subprocess.run([sys.executable, "-c", SAVE, tmp_path / "y"], check=True)
        assert sorted(os.listdir(tmp_path)) == [*left, "y"]  # the process is alive
        killed.kill()
    if writer == "replacement":
        Replacement(tmp_path / "y").write(b"new")
    else:
        subprocess.run([sys.executable, "-c", SAVE, tmp_path / "y"], check=True)
    assert os.listdir(tmp_path) == ["y"]


def test_a_file_is_in_place_when_its_process_ends_the_block(
    tmp_path: Path, python: list[str]
) -> None:
    command = [*python, REPLACE, str(tmp_path / "x")]
    subprocess.run(command, input=b"", check=True, stdout=subprocess.DEVNULL)
    assert os.listdir(tmp_path) == ["x"]


def test_a_child_of_fork_does_not_remove_the_file_of_its_parent(
    tmp_path: Path, python: list[str]
) -> None:
    subprocess.run([*python, FORK, str(tmp_path / "x")], check=True)
    assert (tmp_path / "x").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


def test_a_child_of_fork_does_not_publish_the_file_of_its_parent(
    tmp_path: Path, python: list[str]
) -> None:
    subprocess.run([*python, PUBLISH_IN_CHILD, str(tmp_path / "x")], check=True)
    assert (tmp_path / "x").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


def test_an_error_of_a_native_write_names_the_file_that_would_be_replaced(tmp_path: Path) -> None:
    with (
        pytest.raises(Error, match="too large") as raised,
        Replacement(tmp_path / "x") as descriptor,
        NativeFile(descriptor, WRITE) as file,
    ):
        check(lib.penstock_truncate(file.handle, 1 << 62))
    assert raised.value.path == str(tmp_path / "x")
    assert str(raised.value).startswith(str(tmp_path / "x"))
    assert os.listdir(tmp_path) == []
