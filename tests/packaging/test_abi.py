"""What programs are compiled against, and what says which release it is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.packaging import abi

import penstock
from penstock._declarations import ffi

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def library():
    return ffi.dlopen(str(penstock.library()))


def test_the_interface_is_the_committed_one():
    found, committed = set(abi.lines()), set(abi.COMMITTED.read_text().splitlines())
    assert not committed - found, (
        "Programs that are compiled against the old header break: increment PENSTOCK_API_VERSION, "
        "which gives the library another SONAME. See docs/reference/compatibility.md."
    )
    assert not found - committed, "python -m tests.packaging.abi > tests/packaging/abi.txt"


def structs():
    kinds = {name: ffi.typeof(name) for name in ffi.list_types()[0]}
    return {name: k for name, k in kinds.items() if k.kind == "struct" and abi.size_of(k)}


def may_grow(kind):
    while kind.kind == "array":
        kind = kind.item
    return kind.kind == "struct" and kind.fields[0][0] == "struct_size"


def test_no_struct_contains_one_that_may_grow():
    members = [
        (f"{name}.{field}", found.type)
        for name, kind in structs().items()
        for field, found in kind.fields
    ]
    assert [member for member, kind in members if may_grow(kind)] == []


def test_a_struct_that_may_grow_has_no_padding_at_its_end():
    # A new field would lie in it, and struct_size would not show whether the program has the field.
    for name, kind in structs().items():
        last = kind.fields[-1][1]
        assert not may_grow(kind) or last.offset + ffi.sizeof(last.type) == ffi.sizeof(kind), name


def test_the_page_names_the_structs_that_never_change():
    page = (ROOT / "docs/reference/compatibility.md").read_text()
    names = page.partition("so the stride of an array of them stays:")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", names)) == {
        name for name, kind in structs().items() if not may_grow(kind)
    }


def test_library_header_and_package_have_one_version(library):
    version = ffi.string(library.penstock_version()).decode()
    parts = (library.PENSTOCK_VERSION_MAJOR, library.PENSTOCK_VERSION_MINOR)
    assert version == ".".join(map(str, (*parts, library.PENSTOCK_VERSION_PATCH)))
    assert version == penstock.__version__


def test_the_soname_has_the_number_of_the_interface(library):
    dynamic = readelf(penstock.library())
    number = library.PENSTOCK_API_VERSION
    assert re.findall(r"\(SONAME\).*\[(.+)\]", dynamic) == [f"libpenstock.so.{number}"]
    assert penstock.library().name == f"libpenstock.so.{number}"


def test_a_program_needs_the_library_of_its_number(library, installed, tmp_path):
    source = tmp_path / "program.c"
    source.write_text("#include <penstock.h>\nint main(void) { return !penstock_version(); }\n")
    program = installed.compile("cc", tmp_path / "program", source)
    subprocess.run([program], check=True, env=installed.environment)
    assert f"[libpenstock.so.{library.PENSTOCK_API_VERSION}]" in readelf(program)


def readelf(path):
    command = ["readelf", "--dynamic", "--wide", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
