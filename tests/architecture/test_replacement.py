"""Files are replaced in one place, which decides about links, modes and permissions."""

from __future__ import annotations

import re

from .test_modules import CRATES
from .test_threads import PYTHON, places

RUST = re.compile(r"\brename(?:at2?)?\(|\blinkat\(|\bfchmod\b|\bfchown\b")
PYTHONS = re.compile(r"\bos\.(?:rename|replace|link|f?chmod|f?chown)\(|\.(?:rename|chmod)\(")


def test_only_one_module_of_the_crates_replaces_files():
    found = {
        f"{crate.name}/{place}"
        for crate in CRATES.iterdir()
        if crate.name != "cudasim"
        for place in places(crate / "src", ".rs", RUST)
    }
    assert found
    assert all(place.startswith("engine/save") for place in found), found


def test_only_one_module_of_python_replaces_files():
    found = places(PYTHON, ".py", PYTHONS)
    found -= {"bench/hdf5_files.py"}  # its own files, in a folder of its own
    # These call the methods of a place.
    users = {"dist/storage.py", "dist/mpi/parts.py", "torch/checkpoint/huggingface.py"}
    assert found <= {"dist/place.py", *users}, found
    for user in users:
        calls = PYTHONS.findall((PYTHON / user).read_text())
        assert all(call == ".rename(" for call in calls), calls
