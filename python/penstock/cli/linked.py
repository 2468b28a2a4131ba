"""The HDF5 of a program, as found in its files before it runs."""

from __future__ import annotations

import mmap
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_VERSION = re.compile(rb"HDF5 library version:? (\d+)\.(\d+)\.(\d+)")
"""A text that every HDF5 library contains."""

_OLDEST = (1, 14)
"""The first version that Penstock supports: it loads file drivers as plugins."""

_TOO_OLD = "too old: Penstock needs HDF5 1.14 or 2.x"

_LIBRARY = re.compile(r"\s(?:\S+ => )?(/\S*/libhdf5[^/\s]*\.so\S*) \(0x")
NEEDED = (b"H5open", b"H5Aread_async", b"H5Gflush", b"H5Lcopy")
"""Functions that the driver's library calls. A linker leaves those that the program does not call
out of an archive."""
_SECONDS = 10

# SHT_STRTAB and SHF_ALLOC of elf.h: the names of the dynamic symbols are the strings that are
# loaded with the program.
_STRINGS, _LOADED = 3, 2


def problems(command: Iterable[str], environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each program of a command that cannot use Penstock, and the reason.

    Programs that load HDF5 only as they run, such as Python, are not examined.
    """
    for word in dict.fromkeys(command):
        path = shutil.which(word, path=environment.get("PATH"))
        if path is not None and _is_program(path):
            reason = _reason(path, environment)
            if reason is not None:
                yield word, f"{word} {reason}, so it cannot use Penstock"


def _is_program(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _reason(path: str, environment: Mapping[str, str]) -> str | None:
    libraries = _linked(path, environment)
    for library in libraries:
        version = _version(library)
        if version is not None and version[:2] < _OLDEST:
            return f"uses HDF5 {_dotted(version)} ({library}), which is {_TOO_OLD}"
    version = None if libraries else _version(path)
    if version is None:
        return None
    if version[:2] < _OLDEST:
        return f"contains HDF5 {_dotted(version)}, which is {_TOO_OLD}"
    if all(_exports(path, name) for name in NEEDED):
        return None
    return (
        f"contains HDF5 {_dotted(version)}, linked statically, whose functions a driver does not "
        "find: link it with libhdf5.so (h5cc -shlib), or with -rdynamic -Wl,--whole-archive "
        "libhdf5.a -Wl,--no-whole-archive"
    )


def _linked(path: str, environment: Mapping[str, str]) -> list[str]:
    """Return the HDF5 libraries that the loader finds for a program."""
    try:
        listed = subprocess.run(
            ["ldd", path], capture_output=True, text=True, env=environment, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return _LIBRARY.findall(listed.stdout)


def _version(path: str) -> tuple[int, ...] | None:
    """Return the version of the HDF5 in a file; ``None`` if there is none."""
    try:
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text,
        ):
            found = _VERSION.search(text)
            return None if found is None else tuple(int(part) for part in found.groups())
    except (OSError, ValueError):
        return None


def _exports(path: str, name: bytes) -> bool:
    """Whether the dynamic symbols of a 64-bit ELF file have this name."""
    with open(path, "rb") as file:
        header = file.read(64)
        sections_at, size, count = _offset_size_count(header)
        for number in range(count):
            file.seek(sections_at + number * size)
            # sh_type, sh_flags, sh_offset and sh_size of an Elf64_Shdr
            kind, flags, offset, length = struct.unpack("=4xIQ8xQQ24x", file.read(64))
            if kind == _STRINGS and flags & _LOADED:
                file.seek(offset)
                if b"\0" + name + b"\0" in file.read(length):
                    return True
    return False


def _offset_size_count(header: bytes) -> tuple[int, int, int]:
    """Return where the section headers of an Elf64_Ehdr lie, their length and their number."""
    if len(header) < 64 or header[4] != 2:
        return 0, 0, 0
    offset, size, count = struct.unpack("=40xQ10xHH2x", header)
    return offset, size, count


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
