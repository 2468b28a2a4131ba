"""Builds the native library and places it, its headers and its build-system files in the wheel.

The text and the links of the package's page on the index are made here, too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from cffi import FFI
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class PageHook(MetadataHookInterface):
    """The index shows README.md apart from the files to which it links."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        configuration = (root / "mkdocs.yml").read_text(encoding="utf-8")
        repository = configuration.partition("\nrepo_url: ")[2].partition("\n")[0]
        tag = f"v{metadata['version']}"
        files = f"{repository}/blob/{tag}"
        text = (root / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"(?<=\]\()(?!#|\w+:)", f"{files}/", text)
        text = re.sub(r'(?<=src="|set=")(?!\w+:)', f"{repository}/raw/{tag}/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {
            "Source": repository,
            "Documentation": f"{files}/docs/index.md",
            "Changelog": f"{files}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }


class NativeLibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # scripts/wheels.py sets a target, such as aarch64-unknown-linux-gnu.2.28.
        target = os.environ.get("PENSTOCK_WHEEL_TARGET")
        platform = f"linux-{target.split('-')[0]}" if target else sysconfig.get_platform()
        refuse(platform)
        root = Path(self.root)
        self.generated = tempfile.TemporaryDirectory(prefix="penstock-wheel-")
        pkg_config = self.fill(root / "packaging" / "penstock.pc.in")
        cmake_version = self.fill(root / "packaging" / "penstock-config-version.cmake.in")

        # penstock._core uses only Python's stable ABI, so one wheel serves every Python 3.
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-{platform.replace('-', '_').replace('.', '_')}"
        built, crates = build_libraries(root, target)
        notices = Path(self.generated.name) / NOTICES
        notices.write_text(third_party_notices(root, target, crates), encoding="utf-8")
        licenses = f"{self.build_config.builder.artifact_project_id}.dist-info/licenses"
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
            str(notices): f"{licenses}/{NOTICES}",
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


def refuse(platform: str) -> None:
    """End the build where the libraries do not compile or Python refuses the wheel."""
    if platform not in ("linux-x86_64", "linux-aarch64"):
        sys.exit(f"Penstock is for Linux on x86-64 and 64-bit Arm; this Python is for {platform}.")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit("Penstock needs a Python with the GIL: see docs/decisions/0026.")


PACKAGES = [
    "penstock-capi",
    "penstock-vfd-plugin",
    "penstock-vol-plugin",
    "penstock-legate",
    "penstock-python",
]
SELECTED = [word for package in PACKAGES for word in ("-p", package)]

# PyO3 needs no interpreter for the stable ABI. If it looked for one, it would be compiled anew in
# each isolated environment, which has another PATH.
ENVIRONMENT = os.environ | {"PYO3_NO_PYTHON": "1"}

NOTICES = "THIRD-PARTY-NOTICES.txt"
NOTICES_HEAD = """\
The libraries of Penstock contain these crates, with the C sources that some of them bring. Where a
crate offers several licences, it is used under the one below. They also contain Rust's standard
library, used under Apache-2.0, whose text is in the file LICENSE.
"""
# Of the licences in a folder, the first is used: zstd's COPYING is its alternative, the GPL.
LICENSE_FILES = ("LICENSE-MIT*", "LICENSE*", "COPYING*")


def build_libraries(root: Path, target: str | None) -> tuple[dict[str, str], dict[str, Path]]:
    """Compile the shared objects.

    Return their paths by name, and the folders of all crates by name and version, as cargo reports
    them.
    """
    command = ["cargo", "build"] if target is None else ["cargo", "zigbuild", "--target", target]
    command += ["--release", "--locked", "--message-format=json-render-diagnostics", *SELECTED]
    built = {}
    crates = {}
    for line in run(command, root).splitlines():
        message = json.loads(line)
        if message["reason"] != "compiler-artifact":
            continue
        crates[message["package_id"].rpartition("#")[2]] = Path(message["manifest_path"]).parent
        if "cdylib" in message["target"]["kind"]:
            shared = (name for name in message["filenames"] if name.endswith(".so"))
            built[message["target"]["name"]] = next(shared)
    if len(built) != len(PACKAGES):
        raise RuntimeError(f"cargo built only {sorted(built)} of {PACKAGES}")
    return built, crates


def third_party_notices(root: Path, target: str | None, crates: dict[str, Path]) -> str:
    """Return the licences of the crates that the libraries contain: not those of build scripts."""
    command = ["cargo", "tree", "--locked", "--edges=normal,no-proc-macro", "--prefix=none"]
    command += ["--no-dedupe", "--format={p};{l}", *SELECTED]
    if target is not None:
        # Only zigbuild takes a version of glibc.
        command += ["--target", re.sub(r"\.\d+\.\d+$", "", target)]
    notices = [NOTICES_HEAD]
    for crate in sorted(set(run(command, root).split("\n"))):
        package, _, expression = crate.partition(";")
        if not package or "(" in package:
            continue  # one of this repository
        folder = crates[package.replace(" v", "@")]
        texts = [text for part in (folder, *sorted(folder.iterdir())) if (text := license_of(part))]
        if not texts:
            raise RuntimeError(f"{folder} has no file with the licence of {package}")
        notices += [f"{'-' * 80}\n{package} ({expression})\n", *dict.fromkeys(texts)]
    return "\n".join(notices)


def license_of(folder: Path) -> str:
    files = (file for name in LICENSE_FILES for file in sorted(folder.glob(name)))
    found = next((file for file in files if file.is_file()), None)
    return found.read_text(encoding="utf-8") if found else ""


def run(command: list[str], root: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=root, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"status {error.returncode}"
        sys.exit(
            f"{' '.join(command[:2])}: {reason}. A build needs cargo and a C compiler: see "
            '"From the source" in docs/installation.md.'
        )
    return done.stdout
