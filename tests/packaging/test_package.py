"""A checkout, the source distribution and the wheel install the same package."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADERS = ("penstock/include/penstock.h", "penstock/include/penstock_hdf5.h")
LIBRARY = "penstock/lib/libpenstock.so.1"
# For linkers, in place of a symbolic link.
LINKED = "penstock/lib/libpenstock.so"
# They call the library, and export nothing but what HDF5, Legate or Python calls.
PLUGINS = {
    "penstock/lib/plugins/libhdf5_vfd_penstock.so": {"H5PLget_plugin_type", "H5PLget_plugin_info"},
    "penstock/lib/plugins/libhdf5_vol_penstock_async.so": {
        "H5PLget_plugin_type",
        "H5PLget_plugin_info",
    },
    "penstock/lib/libpenstock_legate.so": {"H5Pset_fapl_gds"},
    "penstock/_core.abi3.so": {"PyInit__core"},
}
# What the library has for its plugins only.
FOR_PLUGINS = {"penstock_connector_class", "penstock_driver_class", "penstock_fapl_set_for"}

# What every Linux process has: the C library with its parts, the loader, and the unwinder.
EVERYWHERE = {
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
}


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder)
    return next(folder.glob("penstock-*.tar.gz"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder)
    return next(folder.glob("penstock-*.whl"))


@pytest.fixture(scope="session")
def wheel_from_sdist(sdist, tmp_path_factory):
    """What `pip install` of the source distribution installs."""
    folder = tmp_path_factory.mktemp("wheel-from-sdist")
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    environment = os.environ | {"CARGO_TARGET_DIR": str(Path(ROOT, target))}
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, sdist]
    run(*command, env=environment)
    return next(folder.glob("penstock-*.whl"))


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def contents(wheel: Path) -> dict[str, str]:
    """The digest of each file, without files whose bytes depend on the folder of the build."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: "built"
            if name.endswith((".so", ".so.1", "/RECORD"))
            else hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
        }


def exported(library: Path) -> set[str]:
    lines = run("readelf", "--dyn-syms", "--wide", library).splitlines()
    fields = [line.split() for line in lines]
    return {f[7] for f in fields if len(f) == 8 and f[4] == "GLOBAL" and f[6].isdigit()}


def declared(*headers: Path) -> set[str]:
    text = "".join(header.read_text() for header in headers)
    calls = re.findall(r"^PENSTOCK_API\b[^(]*?\b(penstock_\w+)\(", text, re.M)
    assert calls
    return set(calls)


@pytest.mark.long
def test_checkout_and_sdist_give_the_same_wheel(wheel, wheel_from_sdist, tmp_path):
    assert wheel.name == wheel_from_sdist.name
    assert contents(wheel) == contents(wheel_from_sdist)
    for number, built in enumerate([wheel, wheel_from_sdist]):
        with zipfile.ZipFile(built) as archive:
            archive.extract(LIBRARY, tmp_path / str(number))
    assert exported(tmp_path / "0" / LIBRARY) == exported(tmp_path / "1" / LIBRARY)


@pytest.mark.parametrize("cargo", [None, "#!/bin/sh\nexit 101\n"])
def test_a_build_that_cargo_cannot_do_ends_in_what_it_needs(cargo, tmp_path):
    if cargo:
        (tmp_path / "cargo").write_text(cargo)
        (tmp_path / "cargo").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path],
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    shown = done.stdout + done.stderr
    assert "needs cargo and a C compiler" in shown
    assert "hatch_build.py" not in shown, "a stack trace"


def test_a_build_for_another_machine_is_refused_at_once(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path],
        cwd=ROOT,
        env=os.environ | {"PENSTOCK_WHEEL_TARGET": "riscv64gc-unknown-linux-gnu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "this Python is for linux-riscv64gc" in done.stdout + done.stderr


def test_wheel_serves_every_python_of_its_platform(wheel):
    assert re.fullmatch(r"penstock-[\d.]+-cp310-abi3-linux_\w+\.whl", wheel.name)


def test_wheel_holds_the_native_parts(unpacked):
    for name in (
        *HEADERS,
        *PLUGINS,
        LIBRARY,
        LINKED,
        "penstock/lib/pkgconfig/penstock.pc",
        "penstock/lib/cmake/penstock/penstock-config.cmake",
        "penstock/lib/cmake/penstock/penstock-config-version.cmake",
        "penstock/py.typed",
    ):
        assert (unpacked / name).is_file(), name
    for name in HEADERS:
        source = ROOT / "crates/capi/include" / Path(name).name
        assert (unpacked / name).read_bytes() == source.read_bytes()


def test_wheel_holds_the_module_that_its_command_starts(unpacked):
    (entry_points,) = unpacked.glob("*.dist-info/entry_points.txt")
    module = re.search(r"^penstock = (\w+):main$", entry_points.read_text(), re.M)[1]
    assert (unpacked / f"{module}.py").is_file()


def test_the_page_of_the_package_has_no_relative_links(unpacked):
    page = next(unpacked.glob("*.dist-info/METADATA")).read_text()
    assert "Project-URL: Source, https://" in page
    links = re.findall(r"\]\(([^)]+)\)", page) + re.findall(r'src(?:set)?="([^"]+)"', page)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []


def test_wheel_holds_neither_test_double_nor_placeholder(unpacked):
    names = [path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")]
    assert {name for name in names if re.search(r"\.so(\.\d+)?$", name)} == {
        LIBRARY,
        LINKED,
        *PLUGINS,
    }
    assert "@VERSION@" not in (unpacked / "penstock/lib/pkgconfig/penstock.pc").read_text()


def test_wheel_holds_the_licences_of_the_crates_in_its_libraries(unpacked):
    (notices,) = unpacked.glob("*.dist-info/licenses/THIRD-PARTY-NOTICES.txt")
    text = notices.read_text()
    for words in ("Meta Platforms", "Eric Biggers", "Pascal Seitz", "libloading v", "numpy v"):
        assert words in text
    assert "GNU GENERAL PUBLIC LICENSE" not in text
    assert "syn v" not in text  # runs in the compiler only


@pytest.mark.parametrize("library", [LIBRARY, *PLUGINS])
def test_libraries_need_nothing_that_is_not_everywhere(unpacked, library):
    dynamic = run("readelf", "--dynamic", "--wide", unpacked / library)
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic))
    assert needed <= EVERYWHERE
    assert not re.search(r"\((RPATH|RUNPATH)\)", dynamic)


def test_library_exports_what_the_headers_declare_and_no_more(unpacked):
    headers = (unpacked / name for name in HEADERS)
    assert exported(unpacked / LIBRARY) == declared(*headers) | FOR_PLUGINS


@pytest.mark.parametrize(("plugin", "symbols"), PLUGINS.items())
def test_plugins_export_what_is_called_and_no_more(unpacked, plugin, symbols):
    assert exported(unpacked / plugin) == symbols


@pytest.mark.parametrize(
    "source", ["checkout", pytest.param("wheel_from_sdist", marks=pytest.mark.long), "wheel"]
)
def test_install_gives_the_same_files(source, request, wheel, tmp_path):
    """The dependencies are those of this interpreter: only Penstock itself is in question."""
    what = ROOT if source == "checkout" else request.getfixturevalue(source)
    target = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", target, what)
    package = target / "penstock"
    found = {
        path.relative_to(target).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert found == {name for name in contents(wheel) if name.startswith("penstock/")}


def test_package_works_from_where_it_is_moved_to(unpacked, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(unpacked, moved)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import penstock, pathlib;"
        "assert pathlib.Path(penstock.__file__).is_relative_to(sys.argv[1]);"
        "print(penstock.describe()['version'])"
    )
    version = run(sys.executable, "-c", code, str(moved), cwd=tmp_path).strip()
    assert version in next(moved.glob("*.dist-info")).name
