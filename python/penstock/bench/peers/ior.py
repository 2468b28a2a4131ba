"""IOR itself, one process per phase; it reports the seconds."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from ..cells import Cell, Measurement
from ..session import Session

NAME = "ior"
MEMORY = "IOR's own"
_MIB = 1 << 20


def cells(
    session: Session,
    work: list[Cell],
    path: Path,
    shape: tuple[int, int],
    *,
    fsync: bool,
    prepare: Callable[[str], None],
) -> list[Measurement]:
    """Measure the cells that IOR supports: POSIX, its own page-aligned memory, one rank.

    ``shape`` is the block size and the number of segments; ``prepare`` brings the file's pages into
    the state for a read.
    """
    if not session.wants(NAME):
        return []
    program = shutil.which(NAME)
    if program is None or session.ranks.size > 1:
        why = "it is not installed" if program is None else "it runs with one rank only"
        session.absent[NAME] = why
        return []
    block, segments = shape
    found = []
    for opened in dict.fromkeys(cell.opened for cell in work):
        like = next(cell for cell in work if cell.opened == opened)
        cell = Cell(MEMORY, opened, NAME, like.access, like.transfer, like.cache)
        seen = Measurement(cell, block * segments, path=f"ior, {opened}")
        for _ in range(session.common.iterations):
            if cell.access == "read":
                prepare(cell.cache)
            try:
                _phase(program, seen, path, shape, fsync=fsync)
            except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                seen.error = type(error).__name__
                break
        found.append(seen)
    return found


def _phase(
    program: str, seen: Measurement, path: Path, shape: tuple[int, int], *, fsync: bool
) -> None:
    cell, (block, segments) = seen.cell, shape
    with TemporaryDirectory() as folder:
        summary = Path(folder, "ior.json")
        command = [program, "-a", "POSIX", "-i", "1", "-o", str(path), "-k", "-E"]
        command += ["-b", str(block), "-t", str(cell.transfer), "-s", str(segments)]
        command += ["-r" if cell.access == "read" else "-w"]
        command += ["-e"] if fsync else []
        command += ["--posix.odirect"] if cell.opened == "direct" else []
        command += ["-O", "summaryFormat=JSON", "-O", f"summaryFile={summary}"]
        subprocess.run(command, capture_output=True, check=True, timeout=600)
        (test,) = json.loads(summary.read_text())["tests"]
    (result,) = [each for each in test["Results"] if each["access"] == cell.access]
    # IOR rounds the seconds to tenths of a millisecond, but not the rate.
    total = seen.nbytes / (result["bwMiB"] * _MIB)
    seen.opening.append(result["openTime"])
    seen.closing.append(result["closeTime"])
    seen.moving.append(max(total - result["openTime"] - result["closeTime"], 1e-9))
