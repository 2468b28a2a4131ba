"""Runs h5py's own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[3]
PYTEST = (sys.executable, "-m", "pytest", "--pyargs", "h5py", "-q", "-p", "no:cacheprovider")
# These start pytest on a file, which finds the configuration of this repository and fails,
# whatever HDF5 does; those of the first also compare the plugin path, by which driver and
# connector are found. A relative pattern would begin at the working directory.
WITHOUT = ("--ignore-glob=/*/test_h5pl.py", "-k", "not test_unregister_filter")
MOST = 800
"""h5py 3.16 has about 880 tests that pass; fewer than this, and something else is wrong."""


def outcomes(
    folder: Path, *options: str, prefix: tuple[str, ...] = ()
) -> tuple[set[str], set[str]]:
    """The names of the tests that passed and of those that failed.

    ``options`` are pytest's; ``prefix`` is a command that runs Python.
    """
    folder.mkdir()
    results = folder / "results.xml"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [*prefix, *PYTEST, *WITHOUT, f"--junitxml={results}", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        # Plugins of pytest that are installed take a second to import, and none is used.
        env=os.environ | {"PYTHONPATH": ":".join(paths), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert results.exists(), done.stdout + done.stderr
    passed, failed = set(), set()
    for case in ElementTree.parse(results).iter("testcase"):
        module = case.get("classname", "").removeprefix("h5py.tests.")
        name = f"{module.removeprefix('tests.')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        elif case.find("skipped") is None:
            passed.add(name)
    return passed, failed
