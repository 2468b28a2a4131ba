"""Programs that have more rights than the user who starts them, as setgid programs have."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def programs(installed, tmp_path) -> tuple[Path, Path]:
    """Return a program, and a copy of it that runs with the rights of another group."""
    if installed.environment:
        pytest.skip("the library under test is found by a variable that setgid programs ignore")
    plain = tmp_path / "plain"
    shutil.copy(installed.compile_once(HERE / "describe.c"), plain)
    others = [g for g in os.getgroups() if g != os.getgid()] + [65534] * (os.geteuid() == 0)
    if not others:
        pytest.skip("this user is in one group only")
    setgid = shutil.copy(plain, tmp_path / "setgid")
    os.chown(setgid, -1, others[0])
    os.chmod(setgid, 0o755 | stat.S_ISGID)
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("the file system has no setgid programs")
    return plain, setgid


def test_files_and_libraries_of_the_environment_are_not_taken(programs, installed, tmp_path):
    named = installed.compile(
        "cc", tmp_path / "l.so", "-shared", "-fPIC", HERE / "announces_itself.c"
    )
    for program, takes_them in zip(programs, (True, False), strict=True):
        trace = tmp_path / f"{program.name}.json"
        variables = {"PENSTOCK_CUDA_LIBRARY": str(named), "PENSTOCK_TRACE": str(trace)}
        done = subprocess.run(
            [program], env=os.environ | variables, capture_output=True, text=True, timeout=60
        )
        assert done.stderr == ""
        assert (done.stdout == "loaded") == takes_them
        assert trace.exists() == takes_them
