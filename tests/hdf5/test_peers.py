"""Tests that others have written for all connectors: what passes natively passes on this one.

``PENSTOCK_TEST_VOL_TESTS`` names a checkout of HDFGroup/vol-tests, which is HDF5's own h5_api_test
for any HDF5, ``PENSTOCK_TEST_VOL_ASYNC`` one of hpc-io/vol-async, and ``PENSTOCK_TEST_H5BENCH`` one
of hpc-io/h5bench. Nothing of them is kept here.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest

HERE = Path(__file__).parent
OUTCOME = re.compile(r"^ *(Testing .*?) +(PASSED|\*FAILED\*|-SKIP-)", re.MULTILINE)

CONNECTOR = "penstock_async under_vol=0;under_info={}"
MODES = {
    "event sets": {"HDF5_VOL_CONNECTOR": CONNECTOR},
    "implicit": {"HDF5_VOL_CONNECTOR": f"{CONNECTOR};implicit=1"},
    "at the close": {"HDF5_VOL_CONNECTOR": CONNECTOR, "HDF5_ASYNC_EXE_FCLOSE": "1"},
    "driver": {"HDF5_VOL_CONNECTOR": CONNECTOR, "HDF5_DRIVER": "penstock"},
}

EXPECTED = {
    "Testing H5Aexists()": (
        "HDF5 leaves the answer of H5Aexists_async as it was if there is no such attribute, on its "
        "own connector, too, for which this test is skipped"
    ),
}
"""Tests that run only if a connector says that it is asynchronous, and may fail."""


def checkout(variable: str) -> Path:
    if variable not in os.environ:
        pytest.skip(f"{variable} is not set")
    return Path(os.environ[variable])


def build(hdf5, program: Path, sources: list[Path], *folders: Path) -> Path:
    lib = hdf5.prefix / "lib"
    command = ["cc", "-w", "-O1", "-std=gnu99", "-D_GNU_SOURCE", "-DH5_USE_114_API"]
    command += [f"-I{folder}" for folder in (*folders, hdf5.prefix / "include")]
    command += [*map(str, sources), "-o", str(program)]
    command += [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lhdf5", "-lm", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def environment(installed, **variables: str) -> dict[str, str]:
    """Return that of the tests, but for what HDF5 and its connectors find in it."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HDF5_")}
    return inherited | {"HDF5_PLUGIN_PATH": str(installed.plugin_dir)} | variables


@pytest.fixture
def outcome(installed, tmp_path):
    """Return a function that runs a program in a folder of its own."""

    def run(program: Path, name: str, **variables: str) -> tuple[int, str]:
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        done = subprocess.run(
            [program],
            cwd=folder,
            capture_output=True,
            timeout=300,
            env=environment(installed, **variables),
        )
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    return run


def main_program(source: Path, folder: Path) -> Path:
    """Write one that draws the same numbers in each run.

    Identifiers of one connector may differ since HDF5 2.0.
    """
    text = source.read_text().replace("(unsigned)HDtime(NULL)", "1")
    text = text.replace("default_con_id != registered_con_id", "default_con_id < 0")
    (folder / source.name).write_text(text)
    return folder / source.name


@pytest.fixture(scope="module")
def api_tests(hdf5, tmp_path_factory) -> Path:
    source = checkout("PENSTOCK_TEST_VOL_TESTS")
    folder = tmp_path_factory.mktemp("vol-tests")
    (folder / "h5vl_test_config.h").write_text("#define H5VL_TEST_HAS_ASYNC\n")
    main = main_program(source / "vol_test.c", folder)
    parts = ["attribute", "dataset", "datatype", "file", "group", "link", "misc", "object", "async"]
    sources = [source / f"vol_{part}_test.c" for part in parts]
    sources += [source / "vol_test_util.c", main]
    return build(hdf5, folder / "h5vl_test", sources, folder, source)


def test_hdf5_s_api_tests_pass_as_natively(api_tests, outcome):
    _, text = outcome(api_tests, "native")
    native = Counter(OUTCOME.findall(text))
    assert sum(native.values()) > 900
    for mode, variables in MODES.items():
        _, text = outcome(api_tests, mode, **variables)
        found = Counter(OUTCOME.findall(text))
        more = found - native
        assert {test for test, what in more if what != "PASSED"} <= EXPECTED.keys(), mode
        assert {test for test, _ in native - found} <= EXPECTED.keys(), mode
        assert more[("Testing synchronization using H5ESwait()", "PASSED")], "nothing was async"


def test_hdf5_s_library_tests_pass_as_natively(hdf5, outcome, tmp_path):
    source = checkout("PENSTOCK_TEST_VOL_TESTS")
    (tmp_path / "h5vl_test_config.h").write_text("")
    sources = sorted((source / "hdf5_test").glob("*.c"))
    folders = (tmp_path, source, source / "hdf5_test")
    program = build(hdf5, tmp_path / "testhdf5", sources, *folders)
    for mode, variables in ({"native": {}} | MODES).items():
        status, text = outcome(program, mode, **variables)
        assert status == 0, f"{mode}\n{text[-2000:]}"
        assert "HDF5 tests ran successfully" in text, mode


RANKS = 3
EVENT_SETS = MODES["event sets"]
PHDF5 = "dset file mdset ph5basic coll_chunk span_tree chunk_alloc filter_read prop coll_md_read"
TESTPAR = {
    "testphdf5": ["testphdf5", *(f"t_{part}" for part in f"{PHDF5} file_image".split())],
    "t_pshutdown": ["t_pshutdown"],
}
"""HDF5's own parallel tests, as vol-tests has them: the sources of each program. Its t_bigio
writes gigabytes, and its t_shapesame takes many minutes."""


@pytest.fixture
def ranks_outcome(parallel_hdf5, installed, tmp_path):
    """Return a function that compiles and runs a program of MPI ranks in a folder of its own."""

    def run(sources: list[Path], *folders: Path, **variables: str) -> tuple[int, str]:
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        program = tmp_path / "program"
        if not program.exists():
            command = ["cc", "-w", "-O1", "-std=gnu99", "-D_GNU_SOURCE", "-DH5_USE_114_API"]
            command += [f"-I{each}" for each in folders]
            command += [*map(str, sources), "-o", str(program), *parallel_hdf5.flags, "-lm"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        variables = variables | {"HDF5_PLUGIN_PATH": str(installed.plugin_dir)}
        return parallel_hdf5.run(RANKS, program, folder=folder, seconds=900, **variables)

    return run


@pytest.mark.timeout(2000)
@pytest.mark.parametrize("name", TESTPAR)
def test_hdf5_s_parallel_tests_pass_as_natively(ranks_outcome, tmp_path_factory, name):
    source = checkout("PENSTOCK_TEST_VOL_TESTS")
    headers = tmp_path_factory.mktemp("headers")
    (headers / "h5vl_test_config.h").write_text("")
    sources = [source / f"hdf5_testpar/{part}.c" for part in TESTPAR[name]]
    folders = (headers, source, source / "hdf5_testpar")
    for variables in ({}, EVENT_SETS):
        status, text = ranks_outcome(sources, *folders, **variables)
        assert status == 0, f"{variables}\n{text[-2000:]}"


@pytest.mark.timeout(2000)
def test_hdf5_s_parallel_api_tests_pass_as_natively(ranks_outcome, tmp_path_factory):
    source = checkout("PENSTOCK_TEST_VOL_TESTS")
    headers = tmp_path_factory.mktemp("headers")
    (headers / "h5vl_test_config.h").write_text("#define H5VL_TEST_HAS_ASYNC\n")
    main = main_program(source / "vol_test_parallel.c", headers)
    parts = [each for each in source.glob("vol_*test_parallel.c") if each.name != main.name]
    sources = [*sorted(parts), source / "vol_test_util.c", main]
    found = []
    for variables in ({}, EVENT_SETS):
        _, text = ranks_outcome(sources, headers, source, **variables)
        found.append(Counter(OUTCOME.findall(text)))
    native, connected = found
    assert sum(native.values()) > 25
    assert {test for test, what in connected - native if what != "PASSED"} == set()
    assert {test for test, what in native - connected if what == "PASSED"} == set()


FAILS_AT_ONCE = (
    "expects that H5Gcreate_async of a group that exists returns, and fails when it is waited for: "
    "here, as natively, the call itself fails"
)


@pytest.mark.parametrize(
    "test",
    [
        "multifile",
        "serial",
        "serial2",
        "serial_event_set",
        "serial_mdset",
        pytest.param("serial_event_set_error_stack", marks=pytest.mark.skip(FAILS_AT_ONCE)),
    ],
)
def test_vol_async_s_tests_pass_as_natively(hdf5, outcome, tmp_path, test):
    source = checkout("PENSTOCK_TEST_VOL_ASYNC")
    sources = [source / "test" / f"async_test_{test}.c", HERE / "peers/vol_async.c"]
    program = build(hdf5, tmp_path / test, sources, source / "src")
    native, _ = outcome(program, "native")
    for mode, variables in MODES.items():
        status, text = outcome(program, mode, **variables)
        assert status == native, f"{mode}\n{text[-2000:]}"


PROCESSES, STEPS = 2, 3
ONE = {"NUM_DIMS": 1, "DIM_1": 65536}
TWO = {"NUM_DIMS": 2, "DIM_1": 256, "DIM_2": 256}
THREE = {"NUM_DIMS": 3, "DIM_1": 64, "DIM_2": 32, "DIM_3": 32}
STRIDES = {"STRIDE_SIZE": 8, "BLOCK_SIZE": 2, "BLOCK_CNT": 4096}


def pattern(memory: str, file: str, dimensions: dict[str, int]) -> dict[str, object]:
    return {"MEM_PATTERN": memory, "FILE_PATTERN": file, **dimensions}


PATTERNS = {
    "1D": pattern("CONTIG", "CONTIG", ONE),
    "2D": pattern("CONTIG", "CONTIG", TWO),
    "3D": pattern("CONTIG", "CONTIG", THREE),
    "strided": pattern("CONTIG", "STRIDED", ONE | STRIDES),
    "compound in the file": pattern("CONTIG", "INTERLEAVED", TWO),
    "compound in memory": pattern("INTERLEAVED", "CONTIG", TWO),
    "compound": pattern("INTERLEAVED", "INTERLEAVED", ONE),
}
READ = ["1D", "2D", "3D"]
"""What h5bench_write writes and h5bench_read can read."""

FILES = {
    "a file each": {"FILE_PER_PROC": "YES"},
    "a shared file": {"COLLECTIVE_DATA": "NO"},
    "a shared file, collectively": {"COLLECTIVE_DATA": "YES", "COLLECTIVE_METADATA": "YES"},
}


@pytest.fixture(scope="module")
def h5bench(parallel_hdf5, tmp_path_factory) -> Path:
    """The folder of h5bench_write and h5bench_read."""
    source = checkout("PENSTOCK_TEST_H5BENCH")
    folder = tmp_path_factory.mktemp("h5bench")
    replaced = ("srand", "H5Pset_fapl_mpio", "free_contig_memory")
    for name in ("h5bench_write", "h5bench_read"):
        parts = (source / f"h5bench_patterns/{name}.c", source / "commons/h5bench_util.c")
        command = ["cc", "-w", "-O1", f"-I{source / 'commons'}"]
        command += [*map(str, parts), str(HERE / "peers/h5bench.c"), "-o", str(folder / name)]
        command += [f"-Wl,--wrap={function}" for function in replaced]
        done = subprocess.run(
            [*command, *parallel_hdf5.flags, "-lm"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def run_h5bench(h5bench, parallel_hdf5, installed, tmp_path):
    """Return a function that runs one of its programs, and returns what it prints."""

    def run(name: str, operation: str, settings: dict, file: Path, **variables: str) -> str:
        settings = settings | {"TIMESTEPS": STEPS, "IO_OPERATION": operation}
        settings["EMULATED_COMPUTE_TIME_PER_TIMESTEP"] = "1 ms"
        configuration = tmp_path / "h5bench.cfg"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        variables = variables | {"HDF5_PLUGIN_PATH": str(installed.plugin_dir)}
        command = (h5bench / name, configuration, file)
        status, text = parallel_hdf5.run(PROCESSES, *command, folder=tmp_path, **variables)
        assert status == 0, text
        # It reports its results whatever calls have failed before.
        assert "Performance Results" in text, text
        assert "HDF5-DIAG" not in text, text
        return text

    return run


def contents(path: Path) -> dict[str, np.ndarray]:
    found = {}

    def note(name: str, thing: h5py.Dataset | h5py.Group) -> None:
        if isinstance(thing, h5py.Dataset):
            found[name] = thing[...]

    with h5py.File(path) as file:
        file.visititems(note)
    return found


@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("particles", PATTERNS)
def test_h5bench_writes_what_it_writes_natively(run_h5bench, tmp_path, particles, files):
    if (particles, files) == ("strided", "a shared file, collectively"):
        pytest.skip("MPI leaves other bytes in the gaps in each run, natively, too")
    settings = PATTERNS[particles] | FILES[files]
    written = {}
    for mode, variables in ({"native": {}} | MODES).items():
        folder = tmp_path / mode
        folder.mkdir()
        run_h5bench("h5bench_write", "WRITE", settings, folder / "x.h5", **variables)
        written[mode] = {path.name: contents(path) for path in folder.iterdir()}
    native = written.pop("native")
    assert len(native) == (PROCESSES if files == "a file each" else 1)
    assert all(len(datasets) in (STEPS, 8 * STEPS) for datasets in native.values())
    for mode, found in written.items():
        np.testing.assert_equal(found, native, mode)


@pytest.mark.parametrize("without_mpio", ["", "1"], ids=["shared", "by itself"])
@pytest.mark.parametrize("particles", READ)
def test_h5bench_reads_what_it_reads_natively(run_h5bench, tmp_path, particles, without_mpio):
    file = tmp_path / "x.h5"
    run_h5bench("h5bench_write", "WRITE", PATTERNS[particles], file)
    settings = PATTERNS[particles] | {"READ_OPTION": "FULL"}
    if without_mpio:
        settings["FILE_PER_PROC"] = "YES"
    sums = {}
    for mode, variables in ({"native": {}} | MODES).items():
        mpio = {"PENSTOCK_TEST_WITHOUT_MPIO": without_mpio} if without_mpio else {}
        text = run_h5bench("h5bench_read", "READ", settings, file, **variables, **mpio)
        sums[mode] = sorted(re.findall("Sum of what was read: ([0-9]+)", text))
    assert len(sums["native"]) == PROCESSES
    assert all(found == sums["native"] for found in sums.values()), sums
