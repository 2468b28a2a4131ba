"""h5py's own tests: with the default driver and connector, and with Penstock's under all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

PYTEST = (sys.executable, "-m", "pytest", "--pyargs", "h5py", "-q", "-p", "no:cacheprovider")
MOST = 800
"""h5py 3.16 has about 880 tests that pass; fewer than this, and something else is wrong."""

EXPECTED: dict[str, str] = {}
"""Tests that may fail with the driver or the connector alone, with the reason."""


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


@pytest.fixture(scope="module")
def passed(tmp_path_factory) -> set[str]:
    """The names of the tests that pass without Penstock."""
    passed, _ = outcomes(tmp_path_factory.mktemp("suite") / "default")
    assert len(passed) > MOST
    return passed


def test_nothing_fails_that_passes_with_the_default_driver(passed, tmp_path):
    report = tmp_path / "report.json"
    run = (sys.executable, "-m", "penstock.cli", "run", "--report-to", str(report), "--")
    passed_with, failed_with = outcomes(tmp_path / "penstock", *run)
    assert failed_with & passed <= EXPECTED.keys()
    assert passed - passed_with <= EXPECTED.keys()

    files = [account for process in read(report)["processes"] for account in process["closed"]]
    assert len(files) > MOST / 2, "the driver was not used"


@pytest.mark.parametrize("option", ["implicit=0", "implicit=1"])
def test_nothing_fails_that_passes_with_the_default_connector(passed, installed, tmp_path, option):
    def environment(text: str) -> tuple[str, ...]:
        plugins = f"HDF5_PLUGIN_PATH={installed.plugin_dir}"
        return ("env", plugins, f"HDF5_VOL_CONNECTOR=penstock_async {text}")

    passed_with, failed_with = outcomes(
        tmp_path / "penstock", *environment(f"under_vol=0;under_info={{}};{option}")
    )
    assert failed_with & passed <= EXPECTED.keys()
    assert passed - passed_with <= EXPECTED.keys()

    refused = subprocess.run(
        [*environment("colour=red"), sys.executable, "-c", "import h5py"],
        capture_output=True,
        text=True,
    )
    assert "colour" in refused.stderr, "the connector was not used"


def read(report: Path) -> dict[str, list[dict[str, list[object]]]]:
    return json.loads(report.read_text())
