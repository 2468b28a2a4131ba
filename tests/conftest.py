"""Skips what needs a GPU, and compiles C, C++ and Fortran against the installed package."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import pytest
from tests.combinations import leave_out

import penstock as ps

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # in the environments of other packages
    pass
else:
    # Its first use makes a table of characters, which takes seconds on a busy machine.
    patient = {"suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("patient", parent=settings.default, **patient)
    settings.load_profile("patient")

os.environ["PENSTOCK_PROFILE"] = "off"  # tests do not use the tuned profiles of this machine
# cuFile (1.15) aborts the process where it cannot write its log, as beyond a limit of the length of
# files.
os.environ.setdefault("CUFILE_LOGFILE_PATH", os.devnull)
SANITIZED = os.environ.get("PENSTOCK_TEST_ASAN")
"""The folder of a library built with AddressSanitizer, for programs that are built so, too."""
PROGRAMS = Path(__file__).parents[1] / "target" / "programs"
"""Compiled programs, kept for the next run."""


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs, and nohup, ignore signals of the tests; programs inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.addinivalue_line("markers", "gpu: needs a GPU, or the stand-in of scripts/standin-gpu")
    config.addinivalue_line("markers", "torch: uses torch, and runs in `make test-torch`")
    config.addinivalue_line("markers", "long: takes seconds, and runs in `make test-long` only")
    config.addinivalue_line("markers", "either: another outcome is right where there is a GPU")


# First, so that -k and -m select among the same cases.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)
    for item in items:
        if "torch" in getattr(item, "fixturenames", ()):
            item.add_marker("torch")
    if ps.devices():
        return
    skip = pytest.mark.skip(reason="no GPU: run on one, or under scripts/standin-gpu")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Leave what is there out of garbage collections, of which the tests make thousands."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter free at its end what torch would otherwise report as leaked."""
    gc.unfreeze()


def run(*command: str | Path, **options: object) -> str:
    """Return the standard output; a failure shows both streams."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=240, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def prerequisites(rule: Path) -> list[str]:
    """Return the files that a compiler has read, headers included, from its rule for make."""
    if not rule.exists():
        return []
    return rule.read_text().replace("\\\n", " ").partition(":")[2].split()


def is_newer(file: Path, *others: str | Path) -> bool:
    """Whether a file exists and is newer than all others, which exist, too."""
    try:
        return all(Path(other).stat().st_mtime < file.stat().st_mtime for other in others)
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class Installed:
    """The paths that `penstock --cmake-dir` and its siblings print."""

    cmake_dir: Path
    include_dir: Path
    library: Path
    pkg_config_dir: Path
    plugin_dir: Path

    def pkg_config(self, *arguments: str) -> list[str]:
        environment = os.environ | {"PKG_CONFIG_PATH": str(self.pkg_config_dir)}
        return run("pkg-config", *arguments, "penstock", env=environment).split()

    @cached_property
    def flags(self) -> list[str]:
        """The flags with which every program is compiled and linked."""
        sanitizer = ["-fsanitize=address", "-fno-omit-frame-pointer", "-g"] if SANITIZED else []
        return [*self.pkg_config("--cflags", "--libs"), "-pthread", *sanitizer]

    def compile(self, compiler: str, output: Path, *arguments: str | Path) -> Path:
        """Compile and link with the flags that pkg-config gives, or skip without the compiler."""
        for tool in (compiler, "pkg-config"):
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is not installed")
        run(compiler, *arguments, *self.flags, "-o", output, cwd=output.parent)
        return output

    def compile_once(self, source: Path, *arguments: str | Path) -> Path:
        """As `compile`, of C; a program that is newer than its sources is kept."""
        words = map(str, (source, *arguments, self.library, *self.flags))
        program = PROGRAMS / sha256("\0".join(words).encode()).hexdigest()[:16] / source.stem
        rule = program.with_suffix(".d")
        if not is_newer(program, self.library, *prerequisites(rule)):
            program.parent.mkdir(parents=True, exist_ok=True)
            # Another process may be running the old program, or building the same one.
            made = program.with_suffix(f".{os.getpid()}")
            self.compile("cc", made, "-MD", "-MF", rule, source, *arguments)
            made.replace(program)
        return program

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which programs find the library."""
        if not SANITIZED:
            return {}
        library = Path(SANITIZED) / "libpenstock.so"
        return {"PENSTOCK_LIBRARY": str(library), "LD_LIBRARY_PATH": SANITIZED}


@pytest.fixture(scope="session")
def installed() -> Installed:
    def path_of(option: str) -> Path:
        return Path(run(sys.executable, "-m", "penstock_command", option).strip())

    return Installed(
        path_of("--cmake-dir"),
        path_of("--include-dir"),
        path_of("--library"),
        path_of("--pkg-config-dir"),
        path_of("--plugin-dir"),
    )
