"""Skips what needs a GPU, and compiles C, C++ and Fortran against the installed package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock as ps

os.environ["PENSTOCK_PROFILE"] = "off"  # what was tuned on this machine is no part of a test
SANITIZED = os.environ.get("PENSTOCK_TEST_ASAN")
"""The folder of a library built with AddressSanitizer, for programs that are built so, too."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a GPU, or the stand-in of scripts/standin-gpu")
    config.addinivalue_line("markers", "host: a GPU makes no difference to those that need none")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not ps.devices():
        reason, is_left_out = "no GPU: run on one, or under scripts/standin-gpu", "gpu"
    elif "PENSTOCK_CUDA_LIBRARY" in os.environ:
        reason, is_left_out = "the same without the stand-in GPU, where it is run", "host"
    else:
        return
    skip = pytest.mark.skip(reason=reason)
    for item in items:
        if is_left_out in item.keywords and not (is_left_out == "host" and "gpu" in item.keywords):
            item.add_marker(skip)


def run(*command: str | Path, **options: object) -> str:
    """Return the standard output; a failure shows both streams."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=240, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Installed:
    """What `penstock --cmake-dir` and its siblings answer."""

    cmake_dir: Path
    include_dir: Path
    library: Path
    pkg_config_dir: Path
    plugin_dir: Path

    def pkg_config(self, *arguments: str) -> list[str]:
        environment = os.environ | {"PKG_CONFIG_PATH": str(self.pkg_config_dir)}
        return run("pkg-config", *arguments, "penstock", env=environment).split()

    def compile(self, compiler: str, output: Path, *arguments: str | Path) -> Path:
        """Compile and link with the flags that pkg-config gives, or skip without the compiler."""
        for tool in (compiler, "pkg-config"):
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is not installed")
        flags = self.pkg_config("--cflags", "--libs")
        sanitizer = ["-fsanitize=address", "-fno-omit-frame-pointer"] if SANITIZED else []
        run(compiler, *sanitizer, *arguments, *flags, "-pthread", "-o", output, cwd=output.parent)
        return output

    @property
    def environment(self) -> dict[str, str]:
        """What programs find the library by."""
        if not SANITIZED:
            return {}
        library = Path(SANITIZED) / "libpenstock.so"
        return {"PENSTOCK_LIBRARY": str(library), "LD_LIBRARY_PATH": SANITIZED}


@pytest.fixture(scope="session")
def installed() -> Installed:
    def ask(option: str) -> Path:
        return Path(run(sys.executable, "-m", "penstock.cli", option).strip())

    return Installed(
        ask("--cmake-dir"),
        ask("--include-dir"),
        ask("--library"),
        ask("--pkg-config-dir"),
        ask("--plugin-dir"),
    )
