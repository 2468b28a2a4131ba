"""The errors that the manual explains are those of the code."""

from __future__ import annotations

import fcntl
import re
from functools import cache
from pathlib import Path

import h5py
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "troubleshooting.md"
ERRORS = re.findall(r"^### (.*)$", PAGE.read_text(), re.MULTILINE)

OF_HDF5 = ["unable to lock file"]


@cache
def sources() -> list[str]:
    """The sources, with each string literal of several lines as one."""
    files = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("python/penstock/**/*.py")]
    return [
        re.sub(r'"\s*\n\s*f?"|\\\n\s*', "", path.read_text()).replace('\\"', '"')
        for path in files
        if path.name != "tests.rs"
    ]


def test_the_page_explains_many_errors():
    assert len(ERRORS) >= 25
    assert len(set(ERRORS)) == len(ERRORS)


@pytest.mark.parametrize("error", [error for error in ERRORS if error not in OF_HDF5])
def test_the_words_of_an_error_are_in_the_code(error):
    parts = [part.strip() for part in error.split("…") if part.strip()]
    pattern = re.compile(r"[^\n]*?".join(map(re.escape, parts)))
    assert any(pattern.search(text) for text in sources())


def test_the_words_of_hdf5_are_those_of_a_locked_file(tmp_path):
    path = tmp_path / "a.h5"
    h5py.File(path, "w").close()
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match=OF_HDF5[0]):
            h5py.File(path, "r+", locking=True)
