"""The HDF5 libraries of this machine, each queried in a separate process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock import paths
from penstock.hdf5 import plugins

_PROBE = Path(__file__).with_name("hdf5_probe.py")
_SECONDS = 10
_MOST = 12
"""The most libraries that are queried: each takes a process."""

# "libhdf5.so.310", "libhdf5_openmpi.so", "libhdf5-1a2b3c4d.so.310.5.1" of a wheel, but not
# libraries on top of HDF5, such as libhdf5_hl.
_NAME = re.compile(r"libhdf5(?:_serial|_openmpi|_mpich|-[0-9a-f]{8,})?\.so(?:[.\d]*)$")


def libraries(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return version and thread-safety of each library found, and whether it loads Penstock's
    driver and connector."""
    found: dict[str, str] = {}
    for path, origin in _places(environment):
        found.setdefault(os.path.realpath(path), origin)
    asked = {path: _ask(path, environment) for path in [*found][:_MOST]}
    return [
        {"path": path, "found": origin, "asked": path in asked, **_answer(asked.get(path))}
        for path, origin in found.items()
    ]


def _places(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield candidates and how each was found; the library that Penstock uses comes first."""
    import h5py

    own = f"h5py {h5py.version.version}"
    mapped = [(path, _wheel(path) or own) for path in _mapped()]
    yield from sorted(mapped, key=lambda one: one[1] != own)
    folders = [(Path(f), "LD_LIBRARY_PATH") for f in _listed(environment, "LD_LIBRARY_PATH")]
    for variable in ("HDF5_DIR", "HDF5_ROOT", "CONDA_PREFIX"):
        folders += [(Path(f, "lib"), variable) for f in _listed(environment, variable)]
    folders.append((Path(sys.prefix, "lib"), "this Python's folder"))
    for folder, origin in folders:
        yield from ((path, origin) for path in _inside(folder))
    for wheel in Path(h5py.__file__).parent.parent.glob("*.libs"):
        yield from ((path, f"wheel {wheel.name[:-5]}") for path in _inside(wheel))
    yield from ((path, "the loader's cache") for path in _cached())


def _wheel(library: Path) -> str | None:
    """Return how a library was found that belongs to another wheel than h5py's."""
    folder = library.parent.name
    return f"wheel {folder[:-5]}" if folder.endswith(".libs") and folder != "h5py.libs" else None


def _mapped() -> Iterator[Path]:
    """Yield the libraries that this process has loaded, such as h5py's."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    lines = (line.split(None, 5) for line in maps.splitlines())
    for path in dict.fromkeys(line[5] for line in lines if len(line) == 6):
        if _NAME.match(os.path.basename(path)):
            yield Path(path)


def _listed(environment: Mapping[str, str], variable: str) -> list[str]:
    return [folder for folder in environment.get(variable, "").split(":") if folder]


def _inside(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [folder / name for name in names if _NAME.match(name)]


def _cached() -> Iterator[Path]:
    """Yield what ldconfig(8) has found in the system's folders."""
    for command in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            listed = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=5)
        except (OSError, subprocess.SubprocessError):
            continue
        for line in listed.stdout.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if arrow and _NAME.match(name.split()[0]):
                yield Path(path)
        return


def _ask(path: str, environment: Mapping[str, str]) -> subprocess.Popen[str] | str:
    """Start a process that queries one library, so that a crash of it does no harm."""
    names = [plugins.DRIVER, plugins.CONNECTOR]
    # Without the user's settings of HDF5, which may load other plugins.
    kept = {key: environment[key] for key in environment if not key.startswith("HDF5_")}
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROBE), path, *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=kept | {"HDF5_PLUGIN_PATH": str(paths.plugin_dir())},
        )
    except OSError as error:
        return f"the process to query it cannot be started: {error.strerror}"


def _answer(process: subprocess.Popen[str] | str | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "version": None,
        "thread_safe": None,
        "driver": None,
        "connector": None,
        "reason": None,
    }
    if process is None or isinstance(process, str):
        return answer | {"reason": process}
    try:
        output, errors = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return answer | {"reason": f"it did not answer within {_SECONDS} s"}
    for line in output.splitlines():
        answer |= _parsed(line)
    if process.returncode and not answer["reason"]:
        last = (errors.strip().splitlines() or [""])[-1]
        how = (
            f"by signal {-process.returncode}"
            if process.returncode < 0
            else f"with status {process.returncode}"
        )
        answer["reason"] = f"the process that queried it ended {how}{last and ': '}{last}"
    return answer


def _parsed(line: str) -> dict[str, Any]:
    """Parse a line of the probe; return {} for a line that a library printed as it was loaded."""
    try:
        facts = json.loads(line)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
