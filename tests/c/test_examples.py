"""The examples build with pkg-config and with CMake, and do what they say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZE = 3_000_017


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture(scope="module")
def cmake_build(installed, tmp_path_factory):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    build = tmp_path_factory.mktemp("cmake")
    for command in (
        ["cmake", "-S", EXAMPLES, "-B", build, f"-Dpenstock_DIR={installed.cmake_dir}"],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


@pytest.fixture(params=["pkg-config", "cmake"])
def built(request, installed, tmp_path):
    """Return a function that builds an example by its name, either way."""

    def build(name: str, compiler: str, *sources: str) -> Path:
        if shutil.which(compiler) is None:
            pytest.skip(f"{compiler} is not installed")
        if request.param == "cmake":
            return request.getfixturevalue("cmake_build") / name
        return installed.compile(compiler, tmp_path / name, *(EXAMPLES / s for s in sources))

    return build


def output_of(*command: str | Path, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_c_example_copies_a_file_byte_for_byte(built, data, tmp_path):
    copy = tmp_path / "copy"
    output = output_of(built("copy_file", "cc", "c/copy_file.c"), data, copy)
    assert copy.read_bytes() == data.read_bytes()
    assert f"read  {SIZE} bytes" in output
    assert f"saved {SIZE} bytes" in output


def test_c_example_says_why_it_failed(built, tmp_path):
    program = built("copy_file", "cc", "c/copy_file.c")
    done = subprocess.run([program, "/absent/file", "copy"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "/absent/file" in done.stderr


@pytest.mark.parametrize("parts", [1, 8, 100])
def test_cxx_example_sums_every_byte(built, data, parts):
    output = output_of(built("async_read", "c++", "cpp/async_read.cpp"), data, str(parts))
    assert output == f"{SIZE} bytes in {parts} requests, sum {sum(data.read_bytes())}\n"


def test_fortran_example_gets_back_what_it_wrote(built, tmp_path):
    program = built(
        "write_and_read", "gfortran", "fortran/penstock.f90", "fortran/write_and_read.f90"
    )
    output = output_of(program, "field", cwd=tmp_path)
    assert "read: 8000000 bytes, equal" in output
    assert "request: 8000000 bytes, equal" in output


def test_fortran_example_leaves_an_existing_file(built, tmp_path):
    program = built(
        "write_and_read", "gfortran", "fortran/penstock.f90", "fortran/write_and_read.f90"
    )
    (tmp_path / "field").write_bytes(b"mine")
    run = subprocess.run([program, "field"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert "already a file field" in run.stderr
    assert (tmp_path / "field").read_bytes() == b"mine"


def find_package(
    installed, folder: Path, version: str, language: str = "C"
) -> subprocess.CompletedProcess[str]:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(later {language})\n"
        f"find_package(penstock {version} REQUIRED)\n"
    )
    return subprocess.run(
        ["cmake", "-S", folder, "-B", folder / "b", f"-Dpenstock_DIR={installed.cmake_dir}"],
        capture_output=True,
        text=True,
    )


def test_cmake_refuses_a_version_that_does_not_fit(installed, tmp_path):
    done = find_package(installed, tmp_path, "99.0")
    assert done.returncode != 0
    assert 'compatible with requested version "99.0"' in done.stderr


def test_cmake_finds_the_package_where_no_language_is_enabled(installed, tmp_path):
    done = find_package(installed, tmp_path, "0.1", "NONE")
    assert done.returncode == 0, done.stderr


def test_cmake_takes_a_major_version_alone(installed, tmp_path):
    done = find_package(installed, tmp_path, "0")
    assert done.returncode == 0, done.stderr
