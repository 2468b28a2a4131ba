"""The script that makes the wheels finds a toolchain, and refuses what is not portable."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGET = "aarch64-unknown-linux-gnu"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


wheels = load(ROOT / "scripts/wheels.py")

PORTABLE = wheels.Library(
    name="libpenstock.so.1",
    machine="aarch64",
    soname="libpenstock.so.1",
    needed=frozenset({"libc.so.6", "libgcc_s.so.1"}),
    versions=frozenset({"GLIBC_2.17", "GLIBC_2.28", "GCC_3.0"}),
    exports=frozenset({*wheels.FUNCTIONS, "penstock_driver_class"}),
    unresolved=frozenset(),
    run_path=False,
    alignment=64 << 10,
    has_debug_information=False,
)


def toolchain(folder: Path, *, with_target: bool) -> Path:
    """A folder with a cargo, and a rustc that has the standard library of the target or not."""
    libraries = folder / "lib" / TARGET
    libraries.mkdir(parents=True)
    if with_target:
        (libraries / "libstd-0123.rlib").touch()
    for name, does in {"cargo": "exit 1", "rustc": f"echo {libraries}"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    return folder


def test_a_portable_library_has_no_faults():
    assert wheels.library_faults(PORTABLE, "aarch64") == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"machine": "x86_64"}, "is for x86_64"),
        ({"soname": None}, "has the SONAME None"),
        ({"versions": frozenset({"GLIBC_2.29"})}, "needs GLIBC_2.29"),
        ({"versions": frozenset({"GLIBC_2.28.9", "GLIBC_3.0"})}, "needs GLIBC_3.0"),
        ({"needed": PORTABLE.needed | {"libstdc++.so.6"}}, "needs libstdc++.so.6"),
        ({"needed": frozenset({"libc.so.6"})}, "has an unwinder of its own"),
        ({"exports": PORTABLE.exports | {"ZSTD_compress"}}, "exports ZSTD_compress"),
        ({"exports": PORTABLE.exports - {"penstock_read"}}, "lacks the function penstock_read"),
        (
            {"unresolved": frozenset({"gettid"})},
            "needs gettid, which the glibc of the tag lacks",
        ),
        ({"run_path": True}, "has a run path"),
        ({"alignment": 4096}, "has a segment aligned at 4096, less than a page"),
        ({"has_debug_information": True}, "has debug information"),
    ],
)
def test_a_library_that_is_not_portable_is_refused(change, fault):
    library = replace(PORTABLE, **change)
    assert wheels.library_faults(library, "aarch64") == [f"libpenstock.so.1 {fault}"]


def test_the_module_of_python_takes_symbols_of_the_interpreter():
    module = replace(
        PORTABLE,
        name="_core.abi3.so",
        soname=None,
        exports=frozenset({"PyInit__core"}),
        unresolved=frozenset({"PyList_New", "_Py_NoneStruct"}),
    )
    assert wheels.library_faults(module, "aarch64") == []


def test_segments_on_x86_64_are_aligned_at_its_only_page_size():
    library = replace(PORTABLE, machine="x86_64", alignment=4096)
    assert wheels.library_faults(library, "x86_64") == []


def wheel_of(folder: Path, *files: str) -> Path:
    wheel = folder / "penstock-0.1.0-cp310-abi3-manylinux_2_28_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in files:
            archive.writestr(file, "")
    return wheel


LICENCES = f"penstock-0.1.0{wheels.NOTICES}"
FILES = {LICENCES, *(f"penstock/lib/{name}" for name in wheels.EXPORTS)}


@pytest.fixture(autouse=True)
def portable(monkeypatch):
    """The libraries of wheels, whose files are empty here, have no faults."""

    def read(_, name):
        name = Path(name).name
        return replace(PORTABLE, name=name, exports=frozenset(wheels.EXPORTS[name]))

    monkeypatch.setattr(wheels, "read_library", read)


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_wheel_that_lacks_a_library_or_licence_is_refused(tmp_path, file):
    (fault,) = wheels.faults_of(wheel_of(tmp_path, *FILES - {file}))
    assert fault == f"lacks {wheels.NOTICES if file == LICENCES else Path(file).name}"


def test_a_library_of_a_wheel_that_exports_nothing_is_refused(tmp_path, monkeypatch):
    empty = replace(PORTABLE, name="libpenstock_legate.so", exports=frozenset())
    monkeypatch.setattr(wheels, "read_library", lambda *_: empty)
    faults = wheels.faults_of(wheel_of(tmp_path, *FILES))
    assert set(faults) == {"libpenstock_legate.so lacks the function H5Pset_fapl_gds"}


@pytest.mark.parametrize("faults", [[], ["has a fault"]])
def test_only_files_that_passed_the_checks_are_in_dist(tmp_path, monkeypatch, faults):
    dist = tmp_path / "dist"

    def build(_kind, folder, _environment):
        folder.mkdir(parents=True)
        (folder / "penstock-0.1.0.tar.gz").touch()

    monkeypatch.setattr(wheels, "FOLDER", tmp_path / "wheels")
    monkeypatch.setattr(wheels, "toolchain", lambda _: tmp_path)
    monkeypatch.setattr(wheels, "build", build)
    monkeypatch.setattr(wheels, "make", lambda _, _tools, made: wheel_of(made))
    monkeypatch.setattr(wheels, "report", lambda _: None)
    monkeypatch.setattr(wheels, "run", lambda *_: None)
    monkeypatch.setattr(wheels, "faults_of", lambda _: faults)
    monkeypatch.setattr(sys, "argv", ["wheels.py", "aarch64", "--dist", str(dist)])
    if faults:
        with pytest.raises(SystemExit, match=r"aarch64\.whl: has a fault"):
            wheels.main()
    else:
        wheels.main()
    assert {path.suffix for path in dist.glob("*")} == (set() if faults else {".whl", ".gz"})


def test_a_wheel_that_is_too_large_is_refused(tmp_path, monkeypatch):
    wheel = wheel_of(tmp_path, *FILES)
    assert wheels.faults_of(wheel) == []
    monkeypatch.setattr(wheels, "MOST_BYTES", 10)
    assert wheels.faults_of(wheel) == [f"{wheel.stat().st_size} bytes, more than 10"]


def test_the_default_toolchain_is_used_if_it_has_the_target(tmp_path, monkeypatch):
    default = toolchain(tmp_path, with_target=True)
    monkeypatch.setenv("PATH", f"{default}:{os.environ['PATH']}")
    assert wheels.toolchain("aarch64") == default


def test_debians_toolchain_is_used_if_the_default_one_lacks_the_target(tmp_path, monkeypatch):
    default = toolchain(tmp_path / "default", with_target=False)
    monkeypatch.setenv("PATH", f"{default}:{os.environ['PATH']}")
    debian = toolchain(tmp_path / "debian", with_target=True)
    monkeypatch.setattr(wheels, "DEBIAN_TOOLS", debian)
    assert wheels.toolchain("aarch64") == debian


def test_a_missing_target_is_reported_with_the_commands_that_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(wheels, "DEBIAN_TOOLS", tmp_path)
    with pytest.raises(SystemExit) as stopped:
        wheels.toolchain("aarch64")
    text = str(stopped.value)
    assert f"rustup target add {TARGET}\n" in text
    assert "dpkg --add-architecture arm64 && apt-get update\n" in text
    assert text.endswith("apt-get install rustc-web cargo-web libstd-rust-web-dev:arm64")


def test_an_unknown_architecture_is_refused():
    command = [sys.executable, ROOT / "scripts/wheels.py", "sparc"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no wheels for sparc" in done.stderr


def test_what_the_build_leaves_is_not_of_the_repository():
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/dist/", "/target/"} <= set(ignored)
    assert wheels.FOLDER.is_relative_to(ROOT / "target")
