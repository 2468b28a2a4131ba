"""The options by which build systems find Penstock."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("option", "file"),
    [
        ("--include-dir", "penstock.h"),
        ("--include-dir", "penstock_hdf5.h"),
        ("--plugin-dir", "libhdf5_vfd_penstock.so"),
        ("--plugin-dir", "libhdf5_vol_penstock_async.so"),
        ("--cmake-dir", "penstock-config.cmake"),
        ("--cmake-dir", "penstock-config-version.cmake"),
        ("--pkg-config-dir", "penstock.pc"),
    ],
)
def test_folder_that_is_printed_holds_the_file(penstock, option, file):
    folder = Path(penstock(option).stdout.strip())
    assert folder.is_absolute()
    assert (folder / file).is_file()


def test_another_library_does_not_move_the_folders_of_the_package(penstock, monkeypatch, tmp_path):
    folder = penstock("--pkg-config-dir").stdout
    other = tmp_path / "libpenstock.so"
    other.symlink_to(penstock("--library").stdout.strip())
    monkeypatch.setenv("PENSTOCK_LIBRARY", str(other))
    assert penstock("--pkg-config-dir").stdout == folder


def test_library_that_is_printed_is_a_shared_object(penstock):
    library = Path(penstock("--library").stdout.strip())
    assert library.name == "libpenstock.so.1"
    assert library.read_bytes()[:4] == b"\x7fELF"


def test_version_is_that_of_the_package(penstock):
    assert penstock("--version").stdout == version("penstock") + "\n"


@pytest.mark.parametrize("module", ["penstock", "penstock_command"])
def test_the_command_is_a_module_too(penstock, module):
    shown = subprocess.check_output([sys.executable, "-m", module, "--version"], text=True)
    assert shown == penstock("--version").stdout


def test_no_arguments_show_the_commands(penstock):
    shown = penstock(status=2)
    for command in ("demo", "read", "report", "run"):
        assert command in shown.stdout + shown.stderr
