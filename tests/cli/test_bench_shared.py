"""`penstock bench plotfile --shared`: ranks of MPI that write one file together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.parallel_hdf5 import PAIRS, ROOT, ParallelHdf5

WAYS = [
    "HDF5 alone, independent",
    "HDF5 alone, collective",
    "Penstock, synchronous",
    "Penstock, asynchronous",
    "Penstock, asynchronous in place",
]
# Elements beside metadata: HDF5 aligns larger datasets, as AMReX asks for.
SMALL = ["--n_rank", 2, "--bytes", "1MiB", "--steps", 2, "--levels", 1, "-i", 1]


@pytest.fixture(scope="module")
def hdf5():
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "hdf5" / PAIRS[0] / "inputs"
    if not built.exists():
        pytest.skip("needs a parallel HDF5: make build-hdf5-parallel")
    return ParallelHdf5(PAIRS[0])


@pytest.fixture
def bench(hdf5, folder):
    """Runs the benchmark, also of a program in place of the command, and gives what it prints."""

    def run(*words, program=("-m", "penstock_command"), launcher=(), status=0, prefix=None):
        command = [ROOT / "scripts/mpi", hdf5.mpi, *launcher, sys.executable, *program, "bench"]
        command += ["plotfile", "--shared", "--hdf5", prefix or hdf5.prefix, "--dir", folder]
        done = subprocess.run(
            [*map(str, command), *map(str, words)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def test_ranks_write_one_file_a_step_in_each_way_and_the_figure_is_drawn(bench, tmp_path, on_gpu):
    saved, figure = tmp_path / "result.json", tmp_path / "figure.svg"
    bench(*SMALL, "--json", saved, "--plot", figure)
    result = json.loads(saved.read_text())
    assert result["ranks"] == 2
    places = ["host memory", "GPU memory"] if on_gpu else ["host memory"]
    rows = [(row["name"], row["setting"], row["error"]) for row in result["rows"]]
    assert rows == 2 * [(name, place, "") for place in places for name in WAYS]
    (table,) = result["tables"]
    for cells in table["rows"]:
        cell = dict(zip(table["columns"], cells, strict=True))
        assert cell["total size (GB)"] == pytest.approx(2 * 2 * (1 << 20) / 1e9, rel=0.02)
        spent = cell["elapsed time (s)"] - cell["total compute time (s)"]
        assert cell["observed rate (GB/s)"] == pytest.approx(cell["total size (GB)"] / spent)
        assert cell["longest submit (us)"] >= cell["submit (us)"] > 0
        assert cell["elapsed / bound"] > 0.5
    assert "vol-async" in result["absent"]
    assert figure.stat().st_size > 8_000


@pytest.mark.long
def test_hdf5_alone_writes_levels_and_blocks_by_any_number_of_ranks(bench, monkeypatch):
    monkeypatch.setenv("PENSTOCK_BENCH_ONLY", "HDF5 alone")
    words = [
        "--n_rank",
        3,
        "--bytes",
        100_000,
        "--steps",
        2,
        "--levels",
        3,
        "--compute",
        0,
        "-i",
        1,
    ]
    said = bench(*words, status=1).stderr
    assert "WrongBytesError" not in said
    assert "3-D blocks, Penstock, synchronous, host memory: left out" in said


FAULT = """
import os, sys
from penstock.bench import plotfiles
from penstock.bench.plotfiles import Series
from penstock.cli import main
from penstock.dist.launched import Launched

def flip(self):
    write_all(self)
    self.ranks.barrier()
    if self.ranks.is_first:
        with open(self.path(1), "r+b") as file:
            file.seek(-20_000, os.SEEK_END)
            file.write(b"x")

def fail(*_):
    raise RuntimeError("this rank fails while its file is open")

write_all = Series._write_all
if sys.argv.pop(1) == "flip":
    Series._write_all = flip
elif Launched.by().rank == 1:
    plotfiles.numbers = fail
main()
"""


@pytest.fixture
def bench_with_fault(bench, hdf5, tmp_path, monkeypatch):
    program = tmp_path / "fault.py"
    program.write_text(FAULT)
    library = subprocess.run(
        ["ldd", hdf5.prefix / "lib/libhdf5.so"], capture_output=True, text=True, check=True
    )
    (mpi,) = [line.split()[2] for line in library.stdout.splitlines() if "libmpi.so" in line]
    monkeypatch.setenv("MPI4PY_LIBMPI", mpi)

    def run(fault):
        launcher = ["mpiexec", "-n", 2]
        words = [*SMALL, "--compute", 0]
        return bench(*words, program=[program, fault], launcher=launcher, status=1).stderr

    return run


@pytest.mark.long
def test_wrong_bytes_of_a_shared_file_end_the_benchmark_with_status_1(bench_with_fault):
    said = bench_with_fault("flip")
    assert "WrongBytesError" in said
    assert "plt00001.h5, level_0/data:datatype=0: element" in said


def test_a_rank_that_fails_ends_those_that_wait_for_it(bench_with_fault):
    said = bench_with_fault("fail")
    assert "penstock: rank 1: HDF5 alone, independent, host memory: this rank fails" in said


@pytest.mark.parametrize(
    ("message", "prefix", "words"),
    [
        ("one rank shares no file", None, []),
        ("there is no parallel HDF5", "nowhere", SMALL),
        ("there is no nowhere/mpiexec", None, [*SMALL, "--mpiexec", "nowhere/mpiexec"]),
        ("less than one element", None, ["--n_rank", 2, "--bytes", 9, "--levels", 3]),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(bench, message, prefix, words):
    done = bench(*words, prefix=prefix, status=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_hdf5_without_mpi_is_refused(penstock, folder):
    words = ["--shared", "--n_rank", 2, "--dir", folder, "--hdf5"]
    serial = next(Path(sys.prefix).glob("lib/python*/site-packages/h5py.libs/libhdf5-*.so*"), None)
    if serial is None:
        pytest.skip("needs the wheel of h5py")
    assert "is built without MPI" in penstock("bench", "plotfile", *words, serial, status=2).stderr


def test_options_of_shared_files_are_refused_without_them(penstock, folder):
    done = penstock("bench", "plotfile", "--mpiexec", "mpirun", "--dir", folder, status=2)
    assert "are for --shared" in done.stderr
