"""The headers of both lines of HDF5 lay out drivers and connectors as Penstock's Rust has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
# The Rust declarations are compared with the same file by a test beside it.
EXPECTED = HERE.parents[1] / "crates/sys/tests/hdf5_layouts.txt"


def test_layouts_of_the_headers_are_those_of_the_declarations(hdf5):
    program = hdf5.compile(HERE / "layouts.c")
    printed = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert printed == EXPECTED.read_text()
