"""Each program shows one behaviour of operations that continue after their call."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

EXAMPLE = Path(__file__).parents[2] / "examples" / "async_plotfile.c"
SOURCES = sorted((Path(__file__).parent / "async").glob("*.c"))


# HDF5's own driver and connector, the driver penstock, or another connector of this kind.
TWICE = "penstock_async under_vol=27022;under_info={under_vol=0;under_info={}}"
BELOW = {
    "native": {},
    "driver": {"HDF5_DRIVER": "penstock"},
    "another": {"HDF5_VOL_CONNECTOR": TWICE},
}
MANY = "ten_thousand_operations_are_pending_at_once"
"""It does not run above another connector: the lower one takes the queries with which the upper
one plans a transfer for calls of the application, and waits for operations on the dataset. Its
thousands of copies take long on the stand-in, so they happen above the driver only."""


def cases() -> Iterator[tuple[Path, str, str]]:
    for source in SOURCES:
        text = source.read_text()
        if "need_standin" in text or "need_device" in text:
            yield from ((source, "device", below) for below in BELOW)
            continue
        yield source, "host", "native"
        yield source, "host", "driver"
        if source.stem != MANY:
            yield source, "host", "another"
        # Only on the host if it asks for no other memory.
        if "new_memory" in text:
            if source.stem != MANY:
                yield source, "device", "native"
            yield source, "device", "driver"


CASES = list(cases())


@pytest.mark.parametrize(
    ("source", "memory", "below"),
    CASES,
    ids=[f"{source.stem}-{memory}-{below}" for source, memory, below in CASES],
)
def test_behaviour(source, memory, below, run_connected):
    run_connected(source, PENSTOCK_TEST_MEMORY=memory, **BELOW[below])


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("memory", ["host", "device"])
def test_the_example_writes_the_same_with_an_event_set_and_without(
    hdf5, installed, tmp_path, memory, levels
):
    if memory == "device" and not penstock.devices():
        pytest.skip("no CUDA device")
    program = hdf5.compile(EXAMPLE)
    arguments = ["--check", "--steps=3", "--mebibytes=12", "--compute=0.05", f"--levels={levels}"]
    environment = os.environ | {
        "HDF5_PLUGIN_PATH": str(installed.plugin_dir),
        "HDF5_VOL_CONNECTOR": "penstock_async under_vol=0;under_info={}",
    }
    if memory == "device":
        arguments.append("--gpu")
        if stand_in := os.environ.get("PENSTOCK_CUDA_LIBRARY"):
            # A program that opens libcuda.so.1 by itself finds it by the loader's path.
            environment["LD_LIBRARY_PATH"] = str(Path(stand_in).parent)
    for mode, says in (([], "without an event set"), (["--async"], "with an event set")):
        folder = tmp_path / says.replace(" ", "-")
        folder.mkdir()
        done = subprocess.run(
            [program, *arguments, *mode, folder],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        assert (
            f"3 steps of 12 MiB in {'GPU' if memory == 'device' else 'host'} memory" in done.stdout
        )
        assert says in done.stdout
        assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("mode", [[], ["--async"]], ids=["alone", "async"])
def test_the_example_leaves_existing_plot_files(hdf5, installed, tmp_path, mode):
    path = tmp_path / "plt00000.h5"
    path.write_bytes(b"mine")
    connector = {
        "HDF5_PLUGIN_PATH": str(installed.plugin_dir),
        "HDF5_VOL_CONNECTOR": "penstock_async under_vol=0;under_info={}",
    }
    done = subprocess.run(
        [hdf5.compile(EXAMPLE), "--steps=1", "--mebibytes=1", *mode, tmp_path],
        capture_output=True,
        text=True,
        env=os.environ | (connector if mode else {}),
    )
    assert done.returncode == 1
    assert "creation of a new file failed" in done.stderr
    assert path.read_bytes() == b"mine"
