"""C programs of HDF5 calls on two to four MPI ranks, which share the files: by HDF5 alone, and
with the connector.

`program.c` documents its lines; each rank prints the results of its calls. The oracle is HDF5
alone, of the same version and MPI: the outputs of each rank and the contents of the files must be
equal. On a machine with a GPU, some of the memory is the GPU's, but for HDF5 alone. A
program that hangs is wrong; one that HDF5 alone cannot carry out is left out.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.parallel_hdf5 import CONNECTOR, PAIRS, ParallelHdf5

from .. import alone
from ..program import Operation, Program

HERE = Path(__file__).parent
_SECONDS = 60
"""The program itself ends after 15, by an alarm."""


def run(program: Program, folder: Path) -> str | None:
    """Return the failure of a program, or ``None``."""
    lines = folder / "program"
    lines.write_text("".join(f"{line}\n" for line in listing(program)))
    for pair in program.settings.get("pairs", PAIRS):
        if wrong := _with(pair, program, folder, lines):
            return f"HDF5 {pair}, {wrong}"
    return None


def _with(pair: str, program: Program, folder: Path, lines: Path) -> str | None:
    hdf5, binary = _built(pair)
    ranks = program.settings["ranks"]
    outputs: dict[str, list[str]] = {}
    ways = {"alone": {}, "connector": _connector(program), "plain": {"PROGRAM_UNFILTERED": "1"}}
    for way, environment in ways.items():
        place = folder / f"{pair}-{way}"
        place.mkdir()
        command = (binary, "run", lines)
        status, output = hdf5.run(ranks, *command, folder=place, seconds=_SECONDS, **environment)
        found = [_read(place / f"rank{rank}.out") for rank in range(ranks)]
        if status and way != "connector":
            return f"HDF5 {way}: {output[-300:]}" if "strict" in program.settings else None
        if status:
            ends = ", ".join(alone.last(text) for text in found)
            wrong = f"{way}: status {status} after {ends}: {output.strip()[-400:]}"
            continue
        left = subprocess.run([binary, "dump", place], capture_output=True, text=True).stdout
        outputs[way] = [*found, left.partition("\n")[2]]
        if way == "connector" and not (wrong := _difference(outputs["alone"], outputs[way])):
            return None
    # HDF5 1.14.4 by itself puts several chunks with filters at one address, reads wrong chunks, and
    # writes past the end of its memory. No element depends on filters.
    return None if _difference(outputs["plain"], outputs["alone"]) else wrong


def _difference(wanted: list[str], found: list[str]) -> str | None:
    """Compare what each rank has printed, and then the contents of the files."""
    for rank, (right, other) in enumerate(zip(wanted, found, strict=True)):
        if wrong := alone.difference(right, other):
            where = f"rank {rank}:" if rank < len(wanted) - 1 else "in the files that are left,"
            return f"{where} {wrong}"
    return None


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _connector(program: Program) -> dict[str, str]:
    from penstock import paths

    options = ";".join([CONNECTOR, *program.settings.get("connector", ())])
    variables = {"HDF5_VOL_CONNECTOR": options, "HDF5_PLUGIN_PATH": str(paths.plugin_dir())}
    second = CONNECTOR.partition(" ")[2]
    variables["PROGRAM_SECOND"] = ";".join([second, *program.settings.get("second", ())])
    if program.device != "host":
        variables["PROGRAM_DEVICE"] = "1"
        variables["PENSTOCK_CUDA_LIBRARY"] = os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1")
    return variables


@cache
def _built(pair: str) -> tuple[ParallelHdf5, Path]:
    """Compile the interpreter for a copy of HDF5, unless it is there."""
    hdf5 = ParallelHdf5(pair)
    sources = sorted((*HERE.glob("*.[ch]"), *HERE.parent.glob("alone/*.h")))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target"))
    binary = target / "programs" / f"{pair}-{digest}"
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
            made = Path(folder) / "program"
            command = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
            command += [str(HERE / "program.c"), "-o", str(made), *hdf5.flags]
            subprocess.run(command, check=True)
            made.replace(binary)
    return hdf5, binary


# -- the input of program.c ------------------------------------------------------------------------


def listing(program: Program) -> list[str]:
    """The program as lines of words and numbers."""
    settings = program.settings
    is_implicit = "implicit=1" in settings.get("connector", ())
    first = [settings["libver"] == "latest", settings["reads"], settings["writes"], is_implicit]
    return [alone.line("open", first), *map(_line_of, program.operations)]


def _line_of(operation: Operation) -> str:
    do = operation["do"]
    if do == "create":
        return alone.line(do, [operation["whole"], *alone.created(operation)])
    if do not in ("write", "read"):
        return alone.line(do, operation["numbers"])
    numbers = [operation["collective"], operation["fails"], len(operation["slots"])]
    numbers += [operation["dtype"], *operation["slots"]]
    for takes_part, in_background, by_second, parts in operation["ranks"]:
        numbers += [takes_part, in_background, by_second]
        for part in parts:
            numbers += [part["dtype"], part["device"], part["seed"], part["kind"]]
            numbers += [number for bounds in part["box"] for number in bounds]
    return alone.line(do, numbers)
