#!/usr/bin/env python3
"""Makes the wheels for PyPI and the source distribution, in `dist`. `make wheels` runs it.

No file gets there before all have passed the checks.

    scripts/wheels.py [x86_64] [aarch64]    # both by default

Its interpreter has the packages of `scripts/wheel-tools.txt`. It needs a Rust toolchain with the
standard library of each target.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target/wheels"
GLIBC = (2, 28)
ARCHITECTURES = ("x86_64", "aarch64")
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
DEBIAN_TOOLS = Path("/usr/bin")
MOST_BYTES = 10_000_000
# The largest pages of a system, so that its loader can map each segment.
PAGE = {"x86_64": 4 << 10, "aarch64": 64 << 10}
# The licences of the crates that the libraries contain. hatch_build.py writes them.
NOTICES = ".dist-info/licenses/THIRD-PARTY-NOTICES.txt"
LIBRARY = "libpenstock.so.1"
HEADERS = ROOT / "crates/capi/include"
FUNCTIONS = {
    name
    for header in HEADERS.glob("*.h")
    for name in re.findall(r"^PENSTOCK_API .*?\b(penstock_\w+)\(", header.read_text(), re.M)
}
PLUGIN = {"H5PLget_plugin_type", "H5PLget_plugin_info"}
# The libraries of a wheel, and what their callers look up in each. They export no more, except for
# LIBRARY, in which the plugins look up functions that no header declares.
EXPORTS = {
    LIBRARY: FUNCTIONS,
    "_core.abi3.so": {"PyInit__core"},
    "libhdf5_vfd_penstock.so": PLUGIN,
    "libhdf5_vol_penstock_async.so": PLUGIN,
    "libpenstock_legate.so": {"H5Pset_fapl_gds"},
}

# The functions of libgcc_s.so.1 that Rust's standard library calls, by version of the symbols. Zig
# would link its own unwinder into each library, whose frames libgcc_s, used by glibc and C++, could
# not unwind.
UNWINDER = {
    "GCC_3.0": [
        "DeleteException",
        "GetDataRelBase",
        "GetGR",
        "GetIP",
        "GetLanguageSpecificData",
        "GetRegionStart",
        "GetTextRelBase",
        "RaiseException",
        "Resume",
        "SetGR",
        "SetIP",
    ],
    "GCC_3.3": ["Backtrace", "FindEnclosingFunction", "GetCFA", "Resume_or_Rethrow"],
    "GCC_4.2.0": ["GetIPInfo"],
}


@dataclass(frozen=True)
class Library:
    """What the checks need of a shared object."""

    name: str
    machine: str
    soname: str | None
    needed: frozenset[str]
    versions: frozenset[str]
    """Versions of the symbols that it takes from others, such as GLIBC_2.17."""
    exports: frozenset[str]
    unresolved: frozenset[str]
    """Symbols that it requires, and that no library it was linked against has."""
    run_path: bool
    alignment: int
    """The smallest alignment of a segment in memory."""
    has_debug_information: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("architectures", nargs="*", metavar="ARCHITECTURE", help="x86_64, aarch64")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where the files go")
    arguments = parser.parse_args()
    architectures = arguments.architectures or list(ARCHITECTURES)
    if unknown := set(architectures) - set(ARCHITECTURES):
        parser.error(f"no wheels for {', '.join(sorted(unknown))}; there are {ARCHITECTURES}")
    # All toolchains are sought before the first wheel, which takes minutes.
    toolchains = {architecture: toolchain(architecture) for architecture in architectures}

    made = FOLDER / "made"
    shutil.rmtree(made, ignore_errors=True)
    build("--sdist", made, dict(os.environ))
    wheels = [make(arch, found, made) for arch, found in toolchains.items()]
    for wheel in wheels:
        report(wheel)
    if faults := [f"{wheel.name}: {fault}" for wheel in wheels for fault in faults_of(wheel)]:
        sys.exit("\n".join(faults))
    run([sys.executable, "-m", "twine", "check", "--strict", *made.iterdir()], dict(os.environ))
    arguments.dist.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        shutil.move(path, arguments.dist / path.name)
        print(f"made: {arguments.dist / path.name}")


def triple(architecture: str) -> str:
    return f"{architecture}-unknown-linux-gnu"


def toolchain(architecture: str) -> Path:
    """Return the folder of a cargo and rustc that have the standard library of the target.

    That is the default toolchain, or else Debian's.
    """
    default = shutil.which("cargo")
    for folder in [*([Path(default).parent] if default else []), DEBIAN_TOOLS]:
        if has_target(folder, triple(architecture)):
            return folder
    debian = DEBIAN[architecture]
    sys.exit(
        f"no Rust toolchain has the standard library of {triple(architecture)}. With rustup:\n"
        f"    rustup target add {triple(architecture)}\n"
        "Or on Debian, as root:\n"
        f"    dpkg --add-architecture {debian} && apt-get update\n"
        f"    apt-get install rustc-web cargo-web libstd-rust-web-dev:{debian}"
    )


def has_target(folder: Path, target: str) -> bool:
    if not (folder / "cargo").exists():
        return False
    try:
        command = [folder / "rustc", "--print", "target-libdir", "--target", target]
        found = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return False
    return found.returncode == 0 and any(Path(found.stdout.strip()).glob("libstd-*.rlib"))


def make(architecture: str, tools: Path, made: Path) -> Path:
    """Make the wheel of an architecture, repaired by auditwheel; return its path in `made`."""
    folder = FOLDER / architecture
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flags = [
        f"-Clink-arg={unwinder(architecture, folder)}",
        # The wheel is the same wherever it is built.
        f"--remap-path-prefix={ROOT}=penstock",
        f"--remap-path-prefix={Path(os.environ.get('CARGO_HOME', Path.home() / '.cargo'))}=cargo",
    ]
    environment = os.environ | {
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        "CARGO_TARGET_DIR": str(FOLDER / "build"),
        "PENSTOCK_WHEEL_TARGET": f"{triple(architecture)}.{GLIBC[0]}.{GLIBC[1]}",
        # cargo finds its command zigbuild, and that finds ziglang, in this environment.
        "PATH": f"{Path(sys.executable).parent}:{tools}:{os.environ['PATH']}",
        "RUSTC": str(tools / "rustc"),
        # The time that hatchling gives to all files, for auditwheel too.
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "1580601600"),
    }
    build("--wheel", folder, environment)
    (plain,) = folder.glob("penstock-*.whl")
    wheel = made / plain.name.replace("-linux_", "-manylinux_{}_{}_".format(*GLIBC))
    # auditwheel finds the oldest glibc that the wheel runs on. It takes names of platforms for this
    # machine's processor only.
    audit = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--plat", "auto"]
    run([*audit, "--wheel-dir", made, plain], environment)
    if not wheel.exists():
        sys.exit(f"auditwheel gave {plain.name} another tag than {wheel.name}")
    return wheel


def build(kind: str, folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", folder, ROOT]
    run(command, environment)


def run(command: list[str | Path], environment: dict[str, str]) -> None:
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


def unwinder(architecture: str, folder: Path) -> Path:
    """Make a library with the names of libgcc_s.so.1, to link against."""
    source = folder / "libgcc_s.c"
    names = [f"_Unwind_{name}" for names in UNWINDER.values() for name in names]
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    script = folder / "libgcc_s.map"
    script.write_text(
        "".join(
            f"{version} {{ {' '.join(f'_Unwind_{name};' for name in names)} }};\n"
            for version, names in UNWINDER.items()
        )
    )
    library = folder / "libgcc_s.so.1"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-gnu"]
    options = ["-shared", "-nostdlib", "-w", f"-Wl,-soname,{library.name}"]
    script_option = f"-Wl,--version-script={script}"
    run([*zig, *options, script_option, source, "-o", library], dict(os.environ))
    return library


def report(wheel: Path) -> None:
    run([sys.executable, "-m", "auditwheel", "show", wheel], dict(os.environ))
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if is_library(entry.filename):
                print(f"{entry.file_size:12,}  {entry.filename}")
    print(f"{wheel.stat().st_size:12,}  {wheel}")


def is_library(name: str) -> bool:
    # libpenstock.so without a number is a script for linkers.
    return name.endswith((".so", ".so.1")) and not name.endswith("/libpenstock.so")


def faults_of(wheel: Path) -> list[str]:
    faults = []
    if wheel.stat().st_size > MOST_BYTES:
        faults.append(f"{wheel.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
    architecture = next(a for a in ARCHITECTURES if wheel.stem.endswith(a))
    with zipfile.ZipFile(wheel) as archive:
        if not any(name.endswith(NOTICES) for name in archive.namelist()):
            faults.append(f"lacks {NOTICES}")
        names = [name for name in archive.namelist() if is_library(name)]
        missing = EXPORTS.keys() - {Path(name).name for name in names}
        faults += [f"lacks {name}" for name in sorted(missing)]
        for name in names:
            faults += library_faults(read_library(archive, name), architecture)
    return faults


def library_faults(library: Library, architecture: str) -> list[str]:
    """Return what would keep the library from running on each machine that its wheel names."""
    faults = []
    if library.machine != architecture:
        faults.append(f"is for {library.machine}")
    if library.name == LIBRARY != library.soname:
        faults.append(f"has the SONAME {library.soname}")
    if library.run_path:
        faults.append("has a run path")
    if library.has_debug_information:
        faults.append("has debug information")
    if library.alignment < PAGE[architecture]:
        faults.append(f"has a segment aligned at {library.alignment}, less than a page")
    if "libgcc_s.so.1" not in library.needed:
        faults.append("has an unwinder of its own")
    wanted = EXPORTS.get(library.name, set())
    faults += [f"lacks the function {name}" for name in sorted(wanted - library.exports)]
    for name in sorted(library.exports - wanted):
        if library.name != LIBRARY or not name.startswith("penstock_"):
            faults.append(f"exports {name}")
    faults += [
        f"needs {name}, which the glibc of the tag lacks"
        for name in sorted(library.unresolved)
        if not (library.name == "_core.abi3.so" and re.match("_?Py", name))
    ]
    faults += [f"needs {name}" for name in sorted(library.needed) if "c++" in name]
    for version in sorted(library.versions):
        found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
        if found and (int(found[1]), int(found[2])) > GLIBC:
            faults.append(f"needs {version}")
    return [f"{library.name} {fault}" for fault in faults]


def read_library(archive: zipfile.ZipFile, name: str) -> Library:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

    machines = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
    with archive.open(name) as file:
        elf = ELFFile(file)
        sections = list(elf.iter_sections())
        tags = [tag for s in sections if isinstance(s, DynamicSection) for tag in s.iter_tags()]
        versions = [
            auxiliary.name
            for s in sections
            if isinstance(s, GNUVerNeedSection)
            for _, auxiliaries in s.iter_versions()
            for auxiliary in auxiliaries
        ]
        symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
        numbers = elf.get_section_by_name(".gnu.version")
        exports, unresolved = [], []
        for number, symbol in enumerate(symbols):
            if symbol["st_info"]["bind"] == "STB_LOCAL":
                continue
            if symbol["st_shndx"] != "SHN_UNDEF":
                exports.append(symbol.name)
            elif symbol["st_info"]["bind"] == "STB_GLOBAL" and numbers.get_symbol(number)[
                "ndx"
            ] in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL"):
                unresolved.append(symbol.name)
        loaded = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        return Library(
            name=Path(name).name,
            machine=machines.get(elf["e_machine"], elf["e_machine"]),
            soname=next((t.soname for t in tags if t.entry.d_tag == "DT_SONAME"), None),
            needed=frozenset(t.needed for t in tags if t.entry.d_tag == "DT_NEEDED"),
            versions=frozenset(versions),
            exports=frozenset(exports),
            unresolved=frozenset(unresolved),
            run_path=any(t.entry.d_tag in ("DT_RPATH", "DT_RUNPATH") for t in tags),
            alignment=min(s["p_align"] for s in loaded),
            has_debug_information=any(s.name.startswith(".debug_") for s in sections),
        )


if __name__ == "__main__":
    main()
