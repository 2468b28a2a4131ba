"""The examples of people who start: h5py as it is, C++ with MPI, a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MPI = ROOT / "target" / "hdf5" / "mpich" / "bin"
YIELDS = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}


def output_of(*command: str | Path, **options: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=200, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_of_the_examples_names_each():
    page = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.rglob("*.*"):
        name = path.relative_to(EXAMPLES).as_posix()
        if path.suffix in (".c", ".cpp", ".f90", ".py", ".ipynb") and not path.is_symlink():
            assert f"]({name})" in page, name


def test_a_plain_h5py_program_reads_and_writes_through_the_driver(tmp_path):
    run = [sys.executable, "-m", "penstock_command", "run", "--report-to", "report.json", "--"]
    output = output_of(*run, sys.executable, EXAMPLES / "plain_h5py.py", cwd=tmp_path)
    assert output == "(365, 45, 90) in K: 280.0 294.3 288.8 271.2 265.7\n"
    report = json.loads((tmp_path / "report.json").read_text())
    assert "temperatures.h5" in json.dumps(report)


def test_a_plain_h5py_program_leaves_an_existing_file(tmp_path):
    path = tmp_path / "mine.h5"
    path.write_bytes(b"mine")
    program = [sys.executable, EXAMPLES / "plain_h5py.py", path]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 1
    assert "File exists" in done.stderr
    assert path.read_bytes() == b"mine"


@pytest.mark.either
def test_ranks_of_a_cxx_program_share_a_new_file(tmp_path):
    if not (MPI / "mpicxx").exists():
        pytest.skip("no MPI of scripts/mpi: make build-hdf5-parallel")
    program, library, path = tmp_path / "mpi_ranks", ps.library(), tmp_path / "shared.bin"
    flags = [f"-I{ps.include_dir()}", library, f"-Wl,-rpath,{Path(library).parent}"]
    source = EXAMPLES / "cpp" / "mpi_ranks.cpp"
    output_of(MPI / "mpicxx", "-std=c++17", source, *flags, "-o", program)
    command = [MPI / "mpiexec", "-n", "3", program, path, "1"]
    output = output_of(*command, env=os.environ | YIELDS)
    assert output.startswith("3 ranks wrote 3145728 bytes from ")
    assert output.endswith(" memory; the sums are equal\n")

    path.write_bytes(b"mine")
    again = subprocess.run(command, env=os.environ | YIELDS, capture_output=True, text=True)
    assert again.returncode != 0
    assert "shared.bin: File exists" in again.stderr
    assert path.read_bytes() == b"mine"


def test_the_notebook_runs_and_shows_what_is_stored_in_it(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    # In a process of its own: the kernel's client leaves loops and sockets.
    program = (
        "import nbformat, sys\n"
        f"from {nbclient.__name__} import NotebookClient\n"
        "book = nbformat.read(sys.argv[1], 4)\n"
        "NotebookClient(book, timeout=100, kernel_name='python3').execute()\n"
        "nbformat.write(book, 'executed.ipynb')\n"
    )
    output_of(sys.executable, "-c", program, EXAMPLES / "first_look.ipynb", cwd=tmp_path)

    def shown(path):
        cells = json.loads(path.read_text())["cells"]
        # The kernel may send what a cell prints in several pieces.
        return ["".join("".join(o["text"]) for o in cell.get("outputs", [])) for cell in cells]

    stored, found = shown(EXAMPLES / "first_look.ipynb"), shown(tmp_path / "executed.ipynb")
    assert [text.count("\n") for text in stored] == [text.count("\n") for text in found]
    assert stored[-1] == found[-1]
