"""h5py's own tests, with the default driver and with Penstock's under all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

PYTEST = (sys.executable, "-m", "pytest", "--pyargs", "h5py", "-q", "-p", "no:cacheprovider")
MOST = 800
"""h5py 3.16 has about 880 tests that pass; fewer than this, and something else is wrong."""

EXPECTED: dict[str, str] = {}
"""Tests that may fail with the driver alone, with the reason."""


def outcomes(folder: Path, *prefix: str) -> tuple[set[str], set[str]]:
    """The names of the tests that passed and of those that failed."""
    folder.mkdir()
    results = folder / "results.xml"
    done = subprocess.run(
        [*prefix, *PYTEST, f"--junitxml={results}"], cwd=folder, capture_output=True, text=True
    )
    assert results.exists(), done.stdout + done.stderr
    passed, failed = set(), set()
    for case in ElementTree.parse(results).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        elif case.find("skipped") is None:
            passed.add(name)
    return passed, failed


def test_nothing_fails_that_passes_with_the_default_driver(tmp_path):
    passed, _ = outcomes(tmp_path / "default")
    assert len(passed) > MOST
    report = tmp_path / "report.json"
    run = (sys.executable, "-m", "penstock.cli", "run", "--report-to", str(report), "--")
    passed_with, failed_with = outcomes(tmp_path / "penstock", *run)
    assert failed_with & passed <= EXPECTED.keys()
    assert passed - passed_with <= EXPECTED.keys()

    files = [account for process in read(report)["processes"] for account in process["closed"]]
    assert len(files) > MOST / 2, "the driver was not used"


def read(report: Path) -> dict[str, list[dict[str, list[object]]]]:
    return json.loads(report.read_text())
