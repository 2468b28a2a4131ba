"""The committed PTX is what the sources of the kernels make."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = Path("crates/codec/kernels")
SCRIPT = Path("scripts/compile-kernels.py")
WHEEL = "nvidia-cuda-nvrtc-cu12"


@pytest.fixture(scope="module", autouse=True)
def compiler():
    try:
        metadata.version(WHEEL)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{WHEEL} is not installed: there is no wheel of it for this machine")


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, root / SCRIPT, "--check"]
    return subprocess.run(command, capture_output=True, text=True)


def copy_of_the_sources(root: Path) -> Path:
    """A folder with what the script needs; returns that of the kernels."""
    for file in [SCRIPT, *(f.relative_to(ROOT) for f in (ROOT / KERNELS).iterdir())]:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes((ROOT / file).read_bytes())
    return root / KERNELS


def test_the_committed_ptx_is_what_the_sources_make():
    done = check(ROOT)
    assert done.returncode == 0, done.stderr


def test_the_ptx_is_the_same_wherever_the_sources_lie(tmp_path):
    copy_of_the_sources(tmp_path)
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_source_that_was_changed_is_reported(tmp_path):
    source = copy_of_the_sources(tmp_path) / "place.cuh"
    source.write_text(source.read_text().replace("PLACE_TILE = 2048", "PLACE_TILE = 1024"))
    done = check(tmp_path)
    assert done.returncode == 1
    assert "run scripts/compile-kernels.py" in done.stderr


@pytest.mark.parametrize("module", ["encoder", "kernels"])
def test_drivers_since_cuda_12_0_load_the_ptx(module):
    lines = (ROOT / KERNELS / f"{module}.ptx").read_text().splitlines()
    assert lines[:2] == [".version 8.0", ".target sm_70"]
