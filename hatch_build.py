"""Builds the native library and places it, its headers and its build-system files in the wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from cffi import FFI
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeLibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        self.generated = tempfile.TemporaryDirectory(prefix="penstock-wheel-")
        pkg_config = self.fill(root / "packaging" / "penstock.pc.in")
        cmake_version = self.fill(root / "packaging" / "penstock-config-version.cmake.in")

        # scripts/wheels.py sets a target, such as aarch64-unknown-linux-gnu.2.28.
        target = os.environ.get("PENSTOCK_WHEEL_TARGET")
        platform = f"linux-{target.split('-')[0]}" if target else sysconfig.get_platform()
        # penstock._core uses only Python's stable ABI, so one wheel serves every Python 3.
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-{platform.replace('-', '_').replace('.', '_')}"
        built = build_libraries(root, target)
        build_data["force_include"] |= {
            built["penstock"]: "penstock/lib/libpenstock.so.1",
            # For linkers; a wheel cannot hold a symbolic link.
            str(root / "packaging/libpenstock.so"): "penstock/lib/libpenstock.so",
            built["_core"]: "penstock/_core.abi3.so",
            # In a folder of its own: HDF5 opens every library of a plugin folder.
            built["hdf5_vfd_penstock"]: "penstock/lib/plugins/libhdf5_vfd_penstock.so",
            built["hdf5_vol_penstock_async"]: (
                "penstock/lib/plugins/libhdf5_vol_penstock_async.so"
            ),
            built["penstock_legate"]: "penstock/lib/libpenstock_legate.so",
            str(root / "crates/capi/include/penstock.h"): "penstock/include/penstock.h",
            str(root / "crates/capi/include/penstock_hdf5.h"): "penstock/include/penstock_hdf5.h",
            pkg_config: "penstock/lib/pkgconfig/penstock.pc",
            str(root / "packaging/penstock-config.cmake"): (
                "penstock/lib/cmake/penstock/penstock-config.cmake"
            ),
            self.declarations(root / "crates/capi/include"): "penstock/_declarations.py",
            cmake_version: "penstock/lib/cmake/penstock/penstock-config-version.cmake",
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.generated.cleanup()

    def fill(self, template: Path) -> str:
        filled = Path(self.generated.name) / template.stem
        filled.write_text(template.read_text().replace("@VERSION@", self.metadata.version))
        return str(filled)

    def declarations(self, headers: Path) -> str:
        """Write a module with the declarations of the headers: imports need not parse them."""
        ffi = FFI()
        for header in ("penstock.h", "penstock_hdf5.h"):
            ffi.cdef(declarations((headers / header).read_text(encoding="utf-8")))
        ffi.set_source("penstock._declarations", None)
        module = Path(self.generated.name) / "_declarations.py"
        ffi.emit_python_code(str(module))
        return str(module)


def declarations(header: str) -> str:
    """Return the declarations and integer constants of a header, which cffi can parse."""
    text = re.sub(r"/\*.*?\*/", " ", header.replace("\\\n", " "), flags=re.DOTALL)
    text = re.sub(r"^#ifdef __cplusplus$.*?^#endif$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^#(?!define PENSTOCK_\w+ \d+\s*$).*$", "", text, flags=re.MULTILINE)
    return text.replace("PENSTOCK_API ", "")


PACKAGES = [
    "penstock-capi",
    "penstock-vfd-plugin",
    "penstock-vol-plugin",
    "penstock-legate",
    "penstock-python",
]


def build_libraries(root: Path, target: str | None) -> dict[str, str]:
    """Compile the shared objects; return their paths, as cargo reports them, by name."""
    command = ["cargo", "build"] if target is None else ["cargo", "zigbuild", "--target", target]
    command += ["--release", "--locked"]
    for package in PACKAGES:
        command += ["-p", package]
    messages = subprocess.run(
        [*command, "--message-format=json-render-diagnostics"],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    built = {}
    for line in messages.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and "cdylib" in message["target"]["kind"]:
            shared = (name for name in message["filenames"] if name.endswith(".so"))
            built[message["target"]["name"]] = next(shared)
    if len(built) != len(PACKAGES):
        raise RuntimeError(f"cargo built only {sorted(built)} of {PACKAGES}")
    return built
