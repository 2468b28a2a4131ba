"""`penstock bench`: each benchmark at a small size, what it saves, refuses and leaves behind."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from penstock.bench.commands import NAMES
from penstock.cli import app
from penstock.frameworks import with_gpu

NEED_GPU = {"vfd", "vfd-threads", "scaling"}
NEED_TORCH = {"batches", "weights", "checkpoint"}
NEED_ANNDATA = {"cells"}
OWN_PROCESS = {*NEED_GPU, "plotfile"}
"""Those that give HDF5 of their process plugins and settings."""


@pytest.fixture
def numbers(tmp_path):
    path = tmp_path / "numbers.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(200_000.0)
        file.create_dataset("g/b", data=np.arange(50_000), chunks=(5_000,), compression="gzip")
        file["words"] = "not read"
    return path


ARGUMENTS = {
    "hdf5-read": ["FILE"],
    "hdf5-write": ["--sizes", "10000,50000", "--dtypes", "float32,int16"],
    "vfd": ["--sizes", "1MiB,2MiB", "--modes", "auto,sec2,direct+pinned,gds", "--cache", "both"],
    "vfd-threads": ["--sizes", "1MiB,2MiB", "--threads", "1,2", "--blocks", "256KiB,1MiB"],
    "scaling": ["--size", "1MiB"],
    "memory": ["-t", "64KiB,256KiB", "-b", "512KiB", "--cache", "both"],
    "tensor": ["--mb_size", "4"],
    "plotfile": ["--bytes", "1MiB", "--compute", "0.02", "--steps", "2"],
    "decode": ["--size", "4MiB", "--chunks", "256KiB,1MiB", "--filters", "gzip,none"],
    "small": ["--file-size", "4MiB", "--sizes", "4KiB,64KiB", "--depths", "1,4"],
    "weights": ["--size", "4MiB", "--tensors", "8", "--small", "20", "--cache", "warm"],
    "batches": [
        "--samples",
        "64",
        "--small",
        "64",
        "--batch",
        "16",
        "--workers",
        "1",
        "--step",
        "1",
    ],
    "cells": ["--cells", "2000", "--batch", "600"],
    "checkpoint": ["--size", "100kB", "--tensors", "3", "--cache", "warm"],
    "netcdf": ["--steps", "16", "--grid", "30x40"],
}


@pytest.fixture
def run(penstock, folder, numbers, tmp_path):
    """Runs a benchmark and gives its result; its tables are those of the CSV file."""

    def run(name, *more, status=0, **environment):
        if name in NEED_TORCH:
            pytest.importorskip("torch", reason="torch is not installed")
        if name == "netcdf":
            pytest.importorskip("xarray", reason="xarray is not installed")
        if name in NEED_ANNDATA:
            pytest.importorskip("anndata", reason="anndata is not installed")
        saved, table = tmp_path / "result.json", tmp_path / "result.csv"
        place = [] if name == "hdf5-read" else ["--dir", folder]
        arguments = [numbers if word == "FILE" else word for word in ARGUMENTS[name]]
        common = ["-i", "2", "--json", saved, "--csv", table, *place, *more]
        words = ["bench", name, *map(str, [*arguments, *common])]
        if environment or name in OWN_PROCESS or "--n_rank" in words:
            penstock(*words, status=status, **environment)
        else:
            done = CliRunner().invoke(app, words)
            assert done.exit_code == status, done.output
        result = json.loads(saved.read_text())
        parts = table.read_text().split("\n\n")
        assert len(parts) == len(result["tables"])
        for text, shown in zip(parts, result["tables"], strict=True):
            heading, *rows = csv.reader(io.StringIO(text))
            assert heading == shown["columns"]
            assert len(rows) == len(shown["rows"])
        return result

    return run


def test_there_is_a_command_for_each_benchmark(penstock):
    assert set(ARGUMENTS) == set(NAMES)
    shown = penstock("bench", "--help").stdout
    assert all(name in shown for name in NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEED_GPU])
def test_a_benchmark_measures_saves_and_draws_on_the_host(run, name, tmp_path, on_gpu):
    if on_gpu:
        pytest.skip("it takes the GPU that is there: the next test")
    if name in NEED_TORCH:
        pytest.importorskip("torch", reason="torch is not installed")
    check(run(name, "--plot", tmp_path / "figure.png"), name, tmp_path)


@pytest.mark.long
@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_measures_saves_and_draws_with_a_gpu(run, name, tmp_path):
    if name in NEED_TORCH and with_gpu("torch") is None:
        pytest.skip("torch is not installed, or finds no GPU")
    if name == "netcdf" and with_gpu("cupy") is None:
        pytest.skip("CuPy is not installed, or finds no GPU")
    check(run(name, "--plot", tmp_path / "figure.svg"), name, tmp_path)


def check(result, name, folder):
    assert result["benchmark"] == name
    assert {"cores", "cpu", "kernel", "file_system", "date"} <= set(result["environment"])
    assert result["rows"]
    for row in result["rows"]:
        # Some combinations of memory and mode cannot be.
        assert name == "memory" or not row["error"], row
        assert row["error"] or len(row["seconds"]) == 2
        assert row["error"] or row["value"] > 0
    assert result["tables"]
    figures = list(folder.glob("figure*"))
    assert figures
    assert all(figure.stat().st_size > 8_000 for figure in figures)


def column(table, name):
    at = table["columns"].index(name)
    return [row[at] for row in table["rows"]]


def test_hdf5_read_counts_bytes_and_names_what_it_left_out(run, numbers):
    result = run("hdf5-read")
    with h5py.File(numbers) as file:
        nbytes = file["a"].nbytes + file["g/b"].nbytes
    (table,) = result["tables"]
    assert column(table, "Total Data Read (bytes)") == [nbytes] * 2
    for rate, seconds in zip(
        column(table, "Throughput (MB/s)"), column(table, "Turnaround (s)"), strict=True
    ):
        assert rate == pytest.approx(nbytes / seconds / 1e6)
    assert f"Total Data Read: {nbytes}" in result["words"]
    assert any("words" in sentence for sentence in result["words"])


def test_ranks_add_up_what_they_read(run, numbers):
    alone, both = run("hdf5-read"), run("hdf5-read", "--n_rank", "2")
    assert both["ranks"] == 2
    amounts = [result["rows"][0]["amount"] for result in (alone, both)]
    assert amounts[1] == 2 * amounts[0]


def test_a_rank_that_fails_ends_all_of_them(penstock, tmp_path):
    done = penstock("bench", "hdf5-read", tmp_path / "none.h5", "--n_rank", "3", status=2)
    assert done.stderr.count("is not a file") == 1


def test_hdf5_write_has_the_best_line_and_a_row_for_each_size_and_type(run):
    (table,) = run("hdf5-write", "--peers", "none")["tables"]
    sizes = list(zip(column(table, "Size"), column(table, "Type"), strict=True))
    assert sizes == [(n, kind) for n in (10_000, 50_000) for kind in ("float32", "int16")]
    assert column(table, "MB") == [0.04, 0.02, 0.2, 0.1]
    best = max(column(table, "Throughput (MB/s)"))
    assert table["notes"][0].startswith(f"Best throughput: {best:.2f} MB/s")


def test_lists_may_have_spaces_as_with_argparse(run):
    result = run("hdf5-write", "--sizes", "1000", "2000", "--dtypes", "int8", "int16")
    assert [row["amount"] for row in result["rows"] if row["name"] == "Penstock"] == [
        1000,
        2000,
        2000,
        4000,
    ]


def test_hdf5_write_leaves_its_files_if_told_and_replaces_them_only_if_told(penstock, tmp_path):
    arguments = ["bench", "hdf5-write", "--sizes", "1000", "--dtypes", "float32", "-i", "1"]
    arguments += ["--output-dir", tmp_path, "--keep"]
    penstock(*arguments)
    (path,) = tmp_path.iterdir()
    with h5py.File(path) as file:
        assert file["data"].shape == (1000,)
    assert "--overwrite" in penstock(*arguments, status=2).stderr
    penstock(*arguments, "--overwrite")


def test_memory_names_what_cannot_be_by_its_error_number(run):
    (table,) = run("memory", "--memory", "malloc,mmap", "-a", "POSIX")["tables"]
    rows = zip(column(table, "mem"), column(table, "open"), column(table, "bw(MiB/s)"), strict=True)
    for memory, opened, rate in rows:
        if (memory, opened) == ("malloc", "direct"):
            assert rate == "NA(EINVAL)"
        else:
            assert rate > 0


def test_memory_advises_by_its_own_figures_and_prints_the_same_by_other_programs(run):
    result = run("memory", "--memory", "malloc,mmap", "-a", "POSIX,PENSTOCK")
    advice = [sentence for sentence in result["words"] if sentence.startswith("Advice")]
    for kind in ("writes", "cached reads", "cold reads"):
        assert any(f"{kind} of host memory" in sentence for sentence in advice)
    assert any(sentence.startswith("Same by IOR: ior ") for sentence in result["words"])
    assert any("gdsio" in sentence for sentence in result["words"])


@pytest.mark.gpu
def test_device_memory_cannot_be_read_into_by_pread(run):
    (table,) = run("memory", "--memory", "cudaMalloc", "-a", "POSIX,PENSTOCK")["tables"]
    by_pread = [row for row in table["rows"] if "POSIX" in row]
    assert by_pread
    assert all("NA(EFAULT)" in row for row in by_pread)


@pytest.mark.gpu
def test_cufile_with_an_invalid_configuration_is_not_measured(penstock, folder, tmp_path):
    if not penstock.json("report")["cufile"]["starts"]:
        pytest.skip("needs cuFile")
    broken = tmp_path / "cufile.json"
    broken.write_text("{")
    words = ["memory", *ARGUMENTS["memory"], "-a", "CUFILE", "--dir", folder]
    done = penstock("bench", *words, status=2, CUFILE_ENV_PATH_JSON=str(broken))
    assert f"CUFILE cannot be measured here: {broken} is invalid" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.long
@pytest.mark.gpu
def test_gpus_at_once_are_compared_with_one(run):
    result = run("scaling", "--n_rank", "2", CUDASIM_DEVICES="2")
    (table,) = result["tables"]
    assert set(column(table, "GPUs")) == {1, 2}
    amounts = {row["amount"] for row in result["rows"]}
    assert amounts == {1 << 20, 2 << 20}
    whats = {what.rpartition(", ")[0] for what in column(table, "What")}
    assert whats == {
        "write, a file each",
        "write, one shared file",
        "read, a file each",
        "read, one shared file",
        "read, all of one file each",
    }


@pytest.mark.long
@pytest.mark.gpu
def test_gpus_are_compared_with_a_grid_of_threads_and_blocks(run):
    result = run("scaling", "--kinds", "read", "--grid", "--n_rank", "2", CUDASIM_DEVICES="2")
    (table,) = result["tables"]
    assert {"Penstock", "grid 8 x 1 MiB", "grid 16 x 8 MiB"} < set(column(table, "Contestant"))
    assert sum("of the best of the grid" in sentence for sentence in result["words"]) == 2


@pytest.mark.long
@pytest.mark.gpu
def test_gpus_that_get_the_same_bytes_are_compared_with_each_reading_all(run):
    words = ["--kinds", "replicated", "--cache", "both", "--size", "3MiB"]
    result = run("scaling", *words, "--n_rank", "3", CUDASIM_DEVICES="3")
    (table,) = result["tables"]
    states = {what.rpartition(", ")[2] for what in column(table, "What")}
    assert states == {"warm", "cold"}
    assert set(column(table, "GPUs")) == {1, 3}
    told = zip(*(column(table, name) for name in ("GPUs", "Contestant", "Detail")), strict=True)
    ways = {(count, name): detail for count, name, detail in told}
    assert "nothing to exchange" in ways[1, "Penstock, replicated"]
    assert "3 rank(s), shares exchanged" in ways[3, "Penstock, replicated"]
    assert (3, "each reads all") in ways
    assert (3, "Penstock, replicated by NCCL") in ways or "NCCL" in str(result["absent"])


@pytest.mark.gpu
def test_ranks_write_parts_of_one_file_without_hdf5(run):
    words = ["--kinds", "shared-write", "--no-fsync", "--options", "threads=2;block=256KiB"]
    result = run("scaling", *words, "--n_rank", "2", CUDASIM_DEVICES="2")
    (table,) = result["tables"]
    assert set(column(table, "What")) == {"write, one shared file, call returned"}
    assert set(column(table, "Contestant")) == {"Penstock", "POSIX"}
    assert "threads=2;block=256KiB" in column(table, "Setting")


def test_a_peer_that_is_not_there_is_named_and_not_estimated(run):
    result = run("small", "--sizes", "4KiB", "--depths", "1", PATH="/nowhere")
    assert "not installed" in result["absent"]["fio"]
    assert not any(row["name"] == "fio" for row in result["rows"])


def test_a_peer_that_is_there_is_measured(run, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    program = tools / "fio"
    program.write_text(
        f"#!{sys.executable}\n"
        'print(\'{"jobs": [{"read": {"runtime": 4, "iops": 2, "total_ios": 8}}]}\')\n'
    )
    program.chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    result = run("small", "--sizes", "4KiB", "--depths", "1", PATH=path)
    (row,) = [row for row in result["rows"] if row["name"] == "fio"]
    assert row["value"] == 2.0
    assert row["seconds"] == pytest.approx([row["amount"] / 2000] * 2)


def test_memory_keeps_the_file_that_is_named_if_told(penstock, folder, tmp_path):
    kept = tmp_path / "kept.bin"
    words = ["-t", "64KiB", "-b", "128KiB", "-s", "2", "--memory", "mmap", "-a", "POSIX", "-i", "1"]
    penstock("bench", "memory", *words, "-o", kept, "--dir", folder)
    assert not kept.exists()
    penstock("bench", "memory", *words, "-o", kept, "-k", "--dir", folder)
    assert kept.stat().st_size == 256 << 10


def test_a_peer_that_is_not_asked_for_is_not_mentioned(run):
    result = run("hdf5-read", "--peers", "none")
    assert [row["name"] for row in result["rows"]] == ["Penstock"]
    assert result["absent"] == {}


BAD = {
    "is not a folder": ["tensor", "--dir", "{file}"],
    "does not exist": ["tensor", "--dir", "{folder}/none"],
    "is not a file": ["hdf5-read", "{folder}/none.h5"],
    "cannot be read as HDF5": ["hdf5-read", "{file}"],
    "is not a list of sizes": ["small", "--sizes", "0"],
    "there is no peer": ["tensor", "--peers", "nobody"],
    "there is no memory": ["memory", "--memory", "core"],
    "is not a multiple": ["memory", "-t", "3000", "-b", "4096"],
    "there is no filter": ["decode", "--filters", "zip"],
    "there is no cache": ["small", "--cache", "hot"],
    "must end in one of": ["tensor", "--plot", "{folder}/figure.txt"],
    "must be at least 1": ["tensor", "-i", "0"],
    "there is no device": ["hdf5-write", "--device", "tpu"],
    "is not a type of numbers": ["hdf5-write", "--dtypes", "words"],
    "are needed": ["tensor", "--mb_size", "100000000"],
    "0 is not in the range x>=1": ["tensor", "--mb_size", "0"],
    "No such option": ["small", "--size", "3"],
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_line_and_exit_status_2(folder, tmp_path, message):
    file = tmp_path / "file.bin"
    file.write_bytes(b"x")
    words = [word.format(file=file, folder=folder) for word in BAD[message]]
    if "--dir" not in words and words[0] != "hdf5-read":
        words += ["--dir", folder]
    done = CliRunner().invoke(app, ["bench", *map(str, words)])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "words", [["memory", "--memory", "cudaMalloc"], ["vfd"], ["hdf5-write", "--device", "cuda"]]
)
def test_what_needs_a_gpu_says_so_where_there_is_none(penstock, folder, words, on_gpu):
    if on_gpu:
        pytest.skip("there is a GPU")
    done = penstock("bench", *words, "--dir", folder, status=2)
    assert "there is no GPU" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.long
@pytest.mark.parametrize("ranks", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_benchmark_that_is_interrupted_leaves_nothing(folder, number, ranks):
    command = [sys.executable, "-m", "penstock_command", "bench", "tensor", "--dir", str(folder)]
    running = subprocess.Popen(
        [*command, "--mb_size", "16", "--loop", "100000", "--n_rank", ranks],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob("*/*/*.bin")) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode not in (0, None)
    assert "Traceback" not in said
    assert list(folder.iterdir()) == []


FAULT = """
import sys
from penstock.bench import libhdf5, native, shared
import penstock as ps
from penstock.memory import copy_bytes
import numpy as np

def flip(address):
    byte = np.empty(1, np.uint8)
    copy_bytes(byte.ctypes.data, address, 1)
    byte ^= 1
    copy_bytes(address, byte.ctypes.data, 1)

def flip_file(path, at=0):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))

def wrong_array(call):
    def changed(*arguments, **options):
        out = call(*arguments, **options)
        array = options.get("out") if options.get("out") is not None else out
        address = array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr
        flip(int(address() if callable(address) else address))
        return out
    return changed

def wrong_file(call):
    def changed(path, *arguments, **options):
        call(path, *arguments, **options)
        flip_file(path)
    return changed

def wrong_read(call):
    def changed(self, address, *arguments):
        call(self, address, *arguments)
        flip(address)
    return changed

def wrong_ranges(call):
    def changed(self, ranges):
        call(self, ranges)
        from penstock._native import ffi
        flip(int(ffi.cast("uintptr_t", ranges[0].buffer)))
    return changed

ps.load, ps.read = wrong_array(ps.load), wrong_array(ps.read)
ps.Dataset.read = wrong_array(ps.Dataset.read)
ps.save = wrong_file(ps.save)
native.OpenFile.read = wrong_read(native.OpenFile.read)
native.OpenFile.read_ranges = wrong_ranges(native.OpenFile.read_ranges)
libhdf5.OpenFile.read = wrong_read(libhdf5.OpenFile.read)

def wrong_create(call):
    def changed(self, name, *arguments, **options):
        made = call(self, name, *arguments, **options)
        self.h5py.flush()
        flip_file(self.h5py.filename, made.h5py.id.get_offset())
        return made
    return changed

ps.File.create = wrong_create(ps.File.create)

def wrong_write(call):
    def changed(self, address):
        call(self, address)
        self.flush()
        flip_file(self.path, self.offset)
    return changed

libhdf5.OpenFile.write = wrong_write(libhdf5.OpenFile.write)

def wrong_elements(call):
    def changed(stored, file, ranges, view, options):
        flip(view.pointer)
        call(stored, file, ranges, view, options)
        flip(view.pointer)
    return changed

shared.load_replicated = wrong_array(shared.load_replicated)
shared.transfers.write = wrong_elements(shared.transfers.write)

from penstock.cli import main
sys.argv = ["penstock", *sys.argv[1:]]
main()
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["hdf5-read", "hdf5-write", "tensor", "decode", "small", "memory"])
def test_wrong_bytes_end_a_benchmark_with_status_1_and_where(run_wrong, name):
    assert "WrongBytesError" in run_wrong(name)


@pytest.mark.long
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["vfd", "scaling", "tensor", "memory"])
def test_wrong_bytes_of_a_gpu_end_a_benchmark_with_status_1_and_where(run_wrong, name):
    assert "WrongBytesError" in run_wrong(name)


@pytest.mark.long
@pytest.mark.gpu
def test_wrong_bytes_are_found_in_each_way_that_ranks_share_a_file(run_wrong):
    wrong = [line for line in run_wrong("scaling").splitlines() if "WrongBytesError" in line]
    for what in ("write, a file each", "write, one shared file", "read, a file each"):
        assert any(what in line and "Penstock" in line for line in wrong), wrong
    for what in ("read, one shared file", "read, all of one file each"):
        assert any(what in line and "Penstock" in line for line in wrong), wrong


@pytest.fixture
def run_wrong(folder, numbers, tmp_path):
    """Runs a benchmark of a Penstock that changes a byte of whatever it moves."""
    program = tmp_path / "wrong.py"
    program.write_text(FAULT)

    def run(name):
        place = [] if name == "hdf5-read" else ["--dir", str(folder)]
        words = [str(numbers) if word == "FILE" else word for word in ARGUMENTS[name]]
        command = [sys.executable, str(program), "bench", name, *words, "-i", "1", *place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    return run


@pytest.mark.parametrize("place", ["/dev/shm", "tmp"])
def test_holes_of_a_file_need_no_pages_in_the_cache(penstock, folder, tmp_path, place):
    home = folder if place == "tmp" else Path(place)
    path = home / f"penstock-test-{os.getpid()}.h5"
    try:
        with h5py.File(path, "w", userblock_size=65536) as file:
            file["x"] = np.arange(100_000, dtype="f4")
        penstock("bench", "hdf5-read", path, "-i", 1, "--peers", "none", "--dir", tmp_path)
    finally:
        path.unlink()
