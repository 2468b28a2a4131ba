"""Loads and saves with a fault at each system call, PENSTOCK_TEST_FAULTS of them random.

``python -m tests.faults`` runs more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.case import Case, Fault
from tests.faults.machine import IN_PLACE, ROOT, BrokenPromiseError, Machine, check_load, hidden

COUNT = int(os.environ.get("PENSTOCK_TEST_FAULTS", "100"))

# The last one goes past the page cache, with an end that does not.
SIZES = [0, 5000, 600_000, (64 << 20) + 4097]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


def saved(size: int, fault: Fault, **changes: object) -> Case:
    values = {"old": 5000, "durable": True, "threads": 4, **changes}
    return Case(size=size, fault=fault, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("waited", [True, False])
@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_a_folder_that_cannot_be_synced_leaves_the_new_file_and_is_reported(
    machine: Machine, size: int, unnamed: bool, waited: bool
) -> None:
    # The first one is of the file.
    fault = Fault("fsync", 2, "fail", "EIO")
    answer = machine.run(saved(size, fault, unnamed=unnamed, waited=waited))
    assert answer["outcome"] == "error"
    assert IN_PLACE in answer["message"]


@pytest.mark.parametrize("size", SIZES)
def test_a_folder_that_cannot_be_read_is_synced_with_its_file_system(
    machine: Machine, size: int
) -> None:
    answer = machine.run(saved(size, Fault("openfolder", 1, "fail", "EACCES")))
    assert answer["outcome"] == "done"
    assert answer["calls"][-1] == "syncfs"


@pytest.mark.parametrize("error", ["EIO", "EMFILE"])
@pytest.mark.parametrize("unnamed", [True, False])
def test_a_failure_to_open_the_new_file_for_direct_io_has_its_own_errno(
    machine: Machine, unnamed: bool, error: str
) -> None:
    """The machine checks errno. The file has not yet the name under which errors report it."""
    fault = Fault("open", 2, "fail", error)
    answer = machine.run(saved(5000, fault, old=None, direct="yes", unnamed=unnamed))
    assert answer["outcome"] == "error"


@pytest.mark.parametrize("size", SIZES)
def test_a_save_killed_before_its_link_leaves_no_file(machine: Machine, size: int) -> None:
    answer = machine.run(saved(size, Fault("linkat", 1, "kill before")))
    if "tmpfile" not in answer["calls"] or "flock" not in answer["calls"]:
        pytest.skip("the file system of the tests makes no files without names")
    assert answer["outcome"] == "killed"
    assert not hidden(machine.base / "folder")


@pytest.mark.parametrize("action", ["kill before", "kill after"])
@pytest.mark.parametrize("call", ["open", "flock", "pwrite", "fsync", "fchmod", "rename"])
@pytest.mark.parametrize("unnamed", [True, False])
def test_new_contents_are_private_at_each_moment(
    machine: Machine, unnamed: bool, call: str, action: str
) -> None:
    """The machine checks the modes of the files that a killed save leaves."""
    machine.run(saved(5000, Fault(call, 1, action), unnamed=unnamed, mode=0o400))


@pytest.mark.parametrize("unnamed", [True, False])
def test_what_a_killed_save_left_is_removed_by_the_next(machine: Machine, unnamed: bool) -> None:
    answer = machine.run(saved(5000, Fault("rename", 1, "kill before"), unnamed=unnamed))
    assert answer["outcome"] == "killed"
    assert not hidden(machine.base / "folder")


def test_a_file_that_holds_other_bytes_is_seen_by_the_machine(machine: Machine) -> None:
    case = Case(operation="load", size=1000)
    machine.run(case)
    target = machine.base / "folder" / "target"
    target.write_bytes(bytes(1000))
    assert not machine.perform(case, target)["right"]
    target.unlink()
    with pytest.raises(BrokenPromiseError):
        check_load(case, machine.perform(case, target), target)


@pytest.mark.timeout(300 + COUNT)
def test_random_loads_and_saves_keep_their_promises_whatever_call_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults", "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)], cwd=ROOT, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{COUNT} met their fault, 0 wrong" in done.stdout
