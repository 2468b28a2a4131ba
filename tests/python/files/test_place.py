"""New files that replace others as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock._place import Place

SAVE = "import sys, numpy, penstock; penstock.save(sys.argv[1], numpy.zeros(3))"
REPLACE = """
import sys
from pathlib import Path
from penstock._place import Place
def unnamed(place):
    return None
if sys.argv[2] == "named":
    Place._create_unnamed = unnamed
with Place(Path(sys.argv[1])).replacement() as descriptor:
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("writer", ["save", "place"])
def test_the_file_of_a_dead_process_is_removed_by_the_next_process(
    tmp_path: Path, writer: str
) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", REPLACE, str(tmp_path / "x"), "named"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"begun\n"
        (left,) = os.listdir(tmp_path)
        subprocess.run([sys.executable, "-c", SAVE, tmp_path / "y"], check=True)
        assert sorted(os.listdir(tmp_path)) == [left, "y"]  # the process is alive
        killed.kill()
    if writer == "place":
        Place(tmp_path / "y").replace(b"new")
    else:
        subprocess.run([sys.executable, "-c", SAVE, tmp_path / "y"], check=True)
    assert os.listdir(tmp_path) == ["y"]


@pytest.mark.parametrize("kind", ["named", "unnamed"])
def test_a_file_is_in_place_when_its_process_ends_the_block(tmp_path: Path, kind: str) -> None:
    program = [sys.executable, "-c", REPLACE, str(tmp_path / "x"), kind]
    subprocess.run(program, input=b"", check=True, stdout=subprocess.DEVNULL)
    assert os.listdir(tmp_path) == ["x"]


def test_a_new_file_that_another_process_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Place.create
    removed: list[str] = []

    def create_and_remove(place: Place, name: str) -> int:
        descriptor = create(place, name)
        if not removed:
            removed.append(name)
            place.remove(name)
        return descriptor

    monkeypatch.setattr(Place, "create", create_and_remove)
    monkeypatch.setattr(Place, "_create_unnamed", lambda _: None)
    Place(tmp_path / "x").replace(b"new")
    assert removed
    assert (tmp_path / "x").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]
