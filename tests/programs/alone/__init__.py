"""C programs of HDF5 calls: by HDF5 alone, and with the driver, the connector, and both.

`program.c` carries a program out and prints the result of each call. The oracle is HDF5 alone, of
the same version: outputs and the contents of the files must be equal. On a machine with a GPU, some
of the memory is the GPU's, except for HDF5 alone.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from ..program import Operation, Program

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
VERSIONS = {"1.14.4": "1.14.4", "2.2.0": "2.2.0-threadsafe"}
"""HDF5's versions, and the folders that scripts/build-hdf5 makes for them."""
_SECONDS = 15
_ALLOC = {"default": 0, "early": 1, "late": 2, "incr": 3}
_FILL_TIME = {"alloc": 0, "never": 1, "ifset": 2}
_FILL_IS = {"default": 0, "defined": 1, "undefined": 2}
_LAYOUT = {"contiguous": 0, "chunked": 1, "compact": 2}
_STRATEGY = {"fsm": 0, "page": 1, "aggregate": 2, "none": 3}
NUMBERS = 20
"""The first types of `types.h`."""
FLOATS = 16
"""The first type of these that is a float."""
FILTERS = {"nbit": 4, "gzip": 1, "shuffle": 2, "fletcher32": 3}


def run(program: Program, folder: Path) -> str | None:
    """Return the failure of a program, or ``None``."""
    lines = folder / "program"
    lines.write_text("".join(f"{line}\n" for line in listing(program)))
    for version in program.settings.get("versions", VERSIONS):
        if wrong := _with(version, program, folder, lines):
            return f"HDF5 {version}, {wrong}"
    return None


def _with(version: str, program: Program, folder: Path, lines: Path) -> str | None:
    binary = _built(version)
    ways = {"alone": {}} | _ways(program)
    outputs = {}
    for way, environment in ways.items():
        place = folder / f"{version}-{way}"
        place.mkdir()
        done = _call([binary, "run", lines], place, environment)
        # HDF5 2.2.0 cannot copy chunks of an extensible array that are only in its cache.
        if way == "alone" and (done.returncode or " copies -1\n" in done.stdout):
            return None  # a defect of HDF5 by itself
        if done.returncode:
            error = done.stderr.strip()[-300:]
            return f"{way}: status {done.returncode} after {last(done.stdout)}: {error}"
        outputs[way] = done.stdout
    for way in ways:
        if wrong := difference(outputs["alone"], outputs[way]):
            return f"{way}: {wrong}"
    names = [f"{version}-{way}" for way in ways]
    left = _call([binary, "dump", *names], folder, {}).stdout.split("in ")[1:]
    contents = [each.partition("\n")[2] for each in left]
    for way, found in zip(ways, contents, strict=True):
        if wrong := difference(contents[0], found):
            return f"{way}: in the files that are left, {wrong}"
    return None


def _call(
    command: list[Any], place: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HDF5_", "PENSTOCK_OPTIONS"))
    }
    try:
        return subprocess.run(
            list(map(str, command)),
            cwd=place,
            env=clean | environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
        return subprocess.CompletedProcess(command, 124, output, "it hangs")


def difference(wanted: str, found: str) -> str | None:
    pairs = zip(wanted.splitlines(), found.splitlines(), strict=False)
    for right, other in pairs:
        if right != other:
            return f"{other!r} instead of {right!r}"
    if len(wanted) != len(found):
        return f"the output ends with {last(found)!r} instead of {last(wanted)!r}"
    return None


def last(text: str) -> str:
    return text.splitlines()[-1] if text.strip() else "nothing"


def _ways(program: Program) -> dict[str, dict[str, str]]:
    from penstock import paths

    settings = program.settings
    driver = {"HDF5_DRIVER": "penstock", "HDF5_DRIVER_CONFIG": settings.get("driver", "")}
    options = ";".join(["under_vol=0", "under_info={}", *settings.get("connector", ())])
    connector = {"HDF5_VOL_CONNECTOR": f"penstock_async {options}"}
    ways = {"driver": driver, "connector": connector, "both": driver | connector}
    if program.device != "host":
        device = {
            "PROGRAM_DEVICE": "1",
            "PENSTOCK_CUDA_LIBRARY": os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1"),
        }
        ways["device"] = device | (ways["both"] if settings.get("device_driver") else connector)
    plugins = {"HDF5_PLUGIN_PATH": str(paths.plugin_dir())}
    return {way: plugins | environment for way, environment in ways.items()}


@cache
def _built(version: str) -> Path:
    """Compile the interpreter for a version, unless it is there."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    prefix = target / "hdf5" / VERSIONS[version]
    if not prefix.exists():
        raise SystemExit(f"there is no {prefix}: make build-hdf5")
    sources = sorted(HERE.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    binary = target / "programs" / f"{version}-{digest}"
    if not binary.exists():
        binary.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
            made = Path(folder) / "program"
            command = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
            command += ["-isystem", str(prefix / "include"), str(HERE / "program.c")]
            command += ["-o", str(made), f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
            subprocess.run([*command, "-lhdf5", "-ldl"], check=True, stdout=sys.stderr)
            made.replace(binary)
    return binary


# -- the input of program.c ------------------------------------------------------------------------


def listing(program: Program) -> list[str]:
    """The program as lines of words and numbers."""
    file = program.settings.get("file") or {}
    first = [
        int(program.settings.get("libver") == "latest"),
        _STRATEGY[file.get("strategy", "fsm")],
        file.get("page_buffer", 0),
        file.get("userblock", 0),
    ]
    return [line("open", first), *(_line_of(operation) for operation in program.operations)]


def line(word: str, numbers: list[Any]) -> str:
    return " ".join([word, *(str(int(number)) for number in numbers)])


def _line_of(operation: Operation) -> str:
    do = operation["do"]
    if do == "create":
        return line(do, created(operation))
    if do in ("write", "read"):
        numbers = [operation["set"], len(operation["parts"])]
        for part in operation["parts"]:
            numbers += [part["slot"], part["dtype"], part["device"], part.get("seed", 0)]
            numbers += _selected(part["select"])
        return line(do, numbers)
    numbers = list(operation["numbers"])
    return line(do, numbers)


def created(operation: Operation) -> list[int]:
    rank = len(operation["shape"])
    filler = [1] * (3 - rank)
    return [
        *(operation["slot"], operation["file"], operation["type"], _LAYOUT[operation["layout"]]),
        *(rank, *operation["shape"], *filler, *operation["chunks"], *filler),
        operation["maxshape"] or 0,
        *(_ALLOC[operation["alloc"]], _FILL_TIME[operation["fill_time"]]),
        *(_FILL_IS[operation["fill_is"]], len(operation["filters"])),
        *(FILTERS[name] for name in operation["filters"]),
    ]


def _selected(select: dict[str, Any] | None) -> list[int]:
    if select is None:
        return [0] + [0, 1000, 1] * 3
    kind = 2 if select["kind"] == "points" else 1
    return [kind, *(number for part in select["parts"] for number in part)]
