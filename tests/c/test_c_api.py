"""Each program in programs/ shows one behaviour of the C API, which its name tells."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.c"))
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"]
SKIPPED = 77


def run_program(program: Path, folder: Path) -> None:
    done = subprocess.run([program], cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr == ""


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda source: source.stem)
def test_c_program(source, installed, tmp_path):
    program = installed.compile(
        "cc", tmp_path / source.stem, "-std=c99", "-D_POSIX_C_SOURCE=200809L", *STRICT, source
    )
    run_program(program, tmp_path)


def test_header_compiles_as_cxx(installed, tmp_path):
    program = installed.compile(
        "c++", tmp_path / "program", "-std=c++17", *STRICT, HERE / "header_compiles_as_cxx.cpp"
    )
    run_program(program, tmp_path)
