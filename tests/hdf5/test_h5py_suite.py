"""h5py's own tests: with the default driver and connector, and with Penstock's under all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hdf5.h5py_suite.outcomes import MOST, outcomes

PAGE_BUFFER_IS_OFF = "the driver turns off the page buffer of a file that is open for writing"
EXPECTED: dict[str, str] = {
    f"test_file.TestPageBuffering::{name}": PAGE_BUFFER_IS_OFF
    for name in ("test_check_page_buf_size", "test_only_with_page_strategy")
}
"""Tests that may fail with the driver or the connector alone, with the reason."""


def test_nothing_fails_that_passes_with_the_default_driver(passes_with_h5py, tmp_path):
    report = tmp_path / "report.json"
    run = (sys.executable, "-m", "penstock_command", "run", "--report-to", str(report), "--")
    passed_with, failed_with = outcomes(tmp_path / "penstock", prefix=run)
    assert failed_with & passes_with_h5py <= EXPECTED.keys()
    assert passes_with_h5py - passed_with <= EXPECTED.keys()

    files = [account for process in read(report)["processes"] for account in process["closed"]]
    assert len(files) > MOST / 2, "the driver was not used"


@pytest.mark.parametrize(
    "option", [pytest.param("implicit=0", marks=pytest.mark.long), "implicit=1"]
)
def test_nothing_fails_that_passes_with_the_default_connector(
    passes_with_h5py, installed, tmp_path, option
):
    def environment(text: str) -> tuple[str, ...]:
        plugins = f"HDF5_PLUGIN_PATH={installed.plugin_dir}"
        return ("env", plugins, f"HDF5_VOL_CONNECTOR=penstock_async {text}")

    passed_with, failed_with = outcomes(
        tmp_path / "penstock", prefix=environment(f"under_vol=0;under_info={{}};{option}")
    )
    assert failed_with & passes_with_h5py <= EXPECTED.keys()
    assert passes_with_h5py - passed_with <= EXPECTED.keys()

    refused = subprocess.run(
        [*environment("colour=red"), sys.executable, "-c", "import h5py; h5py.File('x.h5', 'w')"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "colour" in refused.stderr, "the connector was not used"


def read(report: Path) -> dict[str, list[dict[str, list[object]]]]:
    return json.loads(report.read_text())
