"""The declarations that cffi gets are those of the header, and are quickly there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import penstock as ps
from penstock._native import ffi, lib


def test_every_function_of_the_header_is_declared_and_in_the_library():
    header = (ps.include_dir() / "penstock.h").read_text()
    names = re.findall(r"^PENSTOCK_API [^(]*?(\w+)\(", header, flags=re.MULTILINE)
    assert len(names) > 30
    for name in names:
        assert callable(getattr(lib, name)), name


def test_every_constant_of_the_header_has_its_value():
    header = (ps.include_dir() / "penstock.h").read_text()
    enumerators = re.findall(r"^ *(PENSTOCK_\w+) = (\d+)", header, flags=re.MULTILINE)
    macros = re.findall(r"^#define (PENSTOCK_\w+) (\d+)", header, flags=re.MULTILINE)
    assert len(enumerators) > 30
    assert len(macros) >= 7
    for name, value in enumerators + macros:
        assert getattr(lib, name) == int(value), name


def test_structs_are_as_long_as_the_c_compiler_would_make_them():
    assert ffi.sizeof("penstock_options") == 8 + 2 * 4 + 8 + 4 * 4 + 8 + 2 * 4
    assert ffi.sizeof("penstock_report") == 8 + 2 * 4 + 14 * 8 + 2 * 4 + 256 + 5 * 8 + 128
    assert ffi.sizeof("penstock_range") == 24
    assert ffi.sizeof("penstock_array") == 3 * 8 + 2 * 4 + 3 * 8


def test_import_brings_in_no_array_framework_no_h5py_and_no_parser():
    code = (
        "import sys, penstock;"
        "heavy = 'torch', 'cupy', 'jax', 'h5py', 'asyncio', 'cffi', 'pycparser';"
        "print([module for module in heavy if module in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_a_library_that_cannot_be_opened_is_an_import_error_that_names_it(monkeypatch, tmp_path):
    missing = tmp_path / "libpenstock.so"
    monkeypatch.setenv("PENSTOCK_LIBRARY", str(missing))
    result = subprocess.run(
        [sys.executable, "-c", "import penstock"], capture_output=True, text=True
    )
    assert result.returncode != 0
    assert "ImportError" in result.stderr
    assert str(missing) in result.stderr


def test_a_library_that_lacks_a_function_is_an_import_error_with_both_versions(tmp_path):
    source = tmp_path / "old.c"
    source.write_text(
        f"int penstock_api_version(void) {{ return {lib.PENSTOCK_API_VERSION}; }}\n"
        'const char *penstock_version(void) { return "0.0.9"; }\n'
    )
    library = tmp_path / "libpenstock.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    result = subprocess.run(
        [sys.executable, "-c", "import penstock"],
        env=os.environ | {"PENSTOCK_LIBRARY": str(library)},
        capture_output=True,
        text=True,
    )
    words = f"ImportError: {library} has version 0.0.9, and the package needs {ps.__version__}: "
    assert words in result.stderr


def test_a_package_in_an_archive_is_an_import_error_with_the_remedy(tmp_path):
    archive = tmp_path / "penstock.whl"
    archive.touch()
    result = subprocess.run(
        [sys.executable, "-c", "import penstock"],
        env=os.environ | {"PENSTOCK_LIBRARY": f"{archive}/penstock/lib/libpenstock.so.1"},
        capture_output=True,
        text=True,
    )
    assert "install the wheel by pip" in result.stderr


def test_describe_is_a_dict_and_takes_a_path(tmp_path):
    assert isinstance(ps.describe(), dict)
    assert isinstance(ps.describe(tmp_path), dict)


def test_a_child_that_cannot_load_the_library_again_gets_an_error_and_no_hang(tmp_path):
    path = tmp_path / "f.bin"
    path.write_bytes(bytes(1000))
    code = f"""
import os, sys, penstock as ps
ps.load({str(path)!r})
child = os.fork()
if child == 0:
    def refuse(name):
        raise PermissionError(name)
    os.memfd_create = refuse
    try:
        ps.load({str(path)!r})
    except ps.ForkedError as error:
        os._exit(7 if isinstance(error, RuntimeError) else 1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.strip() == "7", result.stderr
