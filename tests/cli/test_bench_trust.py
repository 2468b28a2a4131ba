"""`penstock bench`: what a reader of its figures relies on, whatever the options."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
from tests.mpi_launch import Mpi, missing
from typer.testing import CliRunner

import penstock as ps
from penstock.bench import native
from penstock.bench.figures import Figure, Panel, canvas, draw
from penstock.bench.measure import Contestant, Row, WrongBytesError, race
from penstock.bench.tables import of_rows
from penstock.cli import app
from penstock.signals import ended_by_signals


@pytest.fixture
def bench(folder, tmp_path):
    """Runs a benchmark in this process, and gives its result and what it says of failures."""

    def run(name, *words, status=0):
        saved = tmp_path / "result.json"
        place = [] if name == "hdf5-read" else ["--dir", folder]
        arguments = ["bench", name, *words, *place, "--json", saved]
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == status, done.output
        result = json.loads(saved.read_text()) if saved.exists() else None
        return result, done.stderr

    return run


def column(table, name):
    at = table["columns"].index(name)
    return [row[at] for row in table["rows"]]


@pytest.mark.parametrize("warm_up", [True, False])
def test_the_first_run_is_poisoned_and_checked_with_a_warm_up_and_without(warm_up):
    done = []

    def wrong(_):
        done.append("check")
        raise WrongBytesError("wrong bytes")

    contestant = Contestant(
        "any",
        "",
        1,
        lambda: done.append("run"),
        before=lambda: done.append("before"),
        poison=lambda: done.append("poison"),
        check=wrong,
    )
    (row,) = race([contestant], "GB/s", rounds=2, warm_up=warm_up)
    assert row.is_wrong
    assert done == ["before", "poison", "run", "check"]


MEMORY = ["-t", "64KiB", "-b", "128KiB", "--memory", "mmap", "-a", "POSIX", "--open", "buffered"]


@pytest.mark.parametrize("options", [(), ("--no-verify",), ("--no-warm-up",)])
def test_memory_counts_the_timed_runs_and_no_warm_up(bench, monkeypatch, options):
    from penstock.bench import cells

    kept = {}
    keep = cells.Measurement.keep

    def spy(seen, count):
        before = len(seen.moving)
        keep(seen, count)
        kept[seen.cell] = before, len(seen.moving)

    monkeypatch.setattr(cells.Measurement, "keep", spy)
    bench("memory", *MEMORY, "-w", "-i", "3", "--peers", "none", *options)
    runs = 3 if "--no-warm-up" in options else 4
    assert list(kept.values()) == [(runs, 3)]


@pytest.fixture
def odd(tmp_path):
    """A file with datasets of all sorts."""
    path = tmp_path / "odd.h5"
    (tmp_path / "ext.bin").write_bytes(bytes(40))
    with h5py.File(path, "w") as file:
        file["scalar"] = 3.5
        file["big-endian"] = np.arange(1_000, dtype=">f8")
        file["one byte"] = np.array([7], np.uint8)
        file["empty"] = h5py.Empty("f4")
        file["nothing"] = np.zeros((0, 3))
        file["words"] = ["a", "b"]
        file["missing"] = h5py.ExternalLink("none.h5", "/x")
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, space)
        file.create_dataset("outside", (10,), "i4", external=[(tmp_path / "ext.bin", 0, 40)])
    return path


def test_hdf5_read_takes_every_dataset_of_numbers_and_names_the_others(bench, odd):
    result, _ = bench("hdf5-read", odd, "-i", "1")
    nbytes = 8 + 8_000 + 1 + 40
    assert column(result["tables"][0], "Total Data Read (bytes)") == [nbytes] * 2
    left_out, outside = [words for words in result["words"] if words.endswith(").")]
    assert "empty, nothing, time, words (4)" in left_out
    assert "other files" in outside
    assert "outside (1)" in outside


@pytest.mark.parametrize(
    "words",
    [
        ["small", "--cache", "cold"],
        ["small", "--cache", "both"],
        ["memory", "-b", "16MiB", "-r", "--open", "direct"],
        ["memory", "-b", "16MiB", "-r", "--open", "buffered", "--cache", "cold"],
        ["hdf5-read", "FILE", "--cache", "cold"],
    ],
)
def test_a_file_system_that_keeps_all_pages_has_no_cold_reads(bench, odd, monkeypatch, words):
    from penstock.bench import files

    monkeypatch.setattr(files, "residency", lambda _: (1, 1))
    _, said = bench(*[odd if word == "FILE" else word for word in words], status=2)
    assert "the page cache keeps all of" in said
    assert "--cache warm" in said
    assert len(said.splitlines()) == 1


def test_memory_writes_a_new_file_in_each_run(bench, monkeypatch):
    from penstock.bench import cells

    opened, once = [], cells.Cells._once

    def noting(self, cell, memory, seen):
        opened.append(self._extent.path.exists())
        once(self, cell, memory, seen)

    monkeypatch.setattr(cells.Cells, "_once", noting)
    bench("memory", *MEMORY, "-w", "-i", "3", "--peers", "none")
    assert len(opened) == 4
    assert not any(opened)


def test_hdf5_read_refuses_a_dataset_that_is_larger_than_memory(bench, tmp_path):
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("huge", (1 << 50,), "u1", chunks=(1 << 20,))
    _, said = bench("hdf5-read", path, status=2)
    assert said.startswith("penstock: huge of ")
    assert len(said.splitlines()) == 1


def test_hdf5_read_tells_the_file_system_of_the_file(bench, odd, monkeypatch):
    from penstock.bench import machine

    asked = []
    environment = machine.environment
    monkeypatch.setattr(machine, "environment", lambda at: asked.append(at) or environment(at))
    bench("hdf5-read", odd, "-i", "1")
    assert asked == [odd]


def start(folder, *words, **environment):
    """Three ranks, each with a file in the folder, that go on for a long time."""
    command = [sys.executable, "-m", "penstock_command", "bench", "tensor", "--dir", str(folder)]
    running = subprocess.Popen(
        [*command, "--mb_size", "2", "--loop", "100000", "--n_rank", "3", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*/*/*.bin"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    return running


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_is_killed_ends_the_others_which_remove_the_files(folder, rank):
    running = start(folder)
    ranks = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    os.kill(int(ranks[rank]), signal.SIGKILL)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 1
    assert f"rank {rank} was killed by SIGKILL" in said
    assert "Traceback" not in said


@pytest.mark.long
def test_a_terminal_that_closes_leaves_nothing(folder):
    running = start(folder)
    running.send_signal(signal.SIGHUP)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGHUP
    assert "Traceback" not in said


class ArrivesInNumPy:
    """A path at which a signal arrives while NumPy asks for its class, where NumPy overlooks it."""

    def __init__(self, path, number):
        self.path = path
        self.number = number

    @property
    def __class__(self):
        signal.raise_signal(self.number)
        return type(self)

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize("path", [__file__, "absent"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_numpy_overlooks_ends_the_process_all_the_same(number, path):
    with pytest.raises(SystemExit) as ended, ended_by_signals():
        np.fromfile(ArrivesInNumPy(path, number), np.uint8, 1)
    assert ended.value.code == 128 + number


@pytest.mark.parametrize("path", [__file__, "absent"])
@pytest.mark.parametrize("place", ["before", "once"])
def test_a_signal_that_numpy_overlooks_in_a_run_ends_the_measurement(place, path):
    def interrupted():
        np.fromfile(ArrivesInNumPy(path, signal.SIGINT), np.uint8, 1)

    contestant = Contestant("one", "", 1, lambda: None, before=interrupted)
    if place == "once":
        contestant = Contestant("one", "", 1, interrupted)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        race([contestant], "B/s", rounds=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_a_callback_of_a_weak_reference_overlooks_ends_the_measurement(number):
    runs = []

    def arrives():
        runs.append(1)
        with suppress(BaseException):  # as CPython does there
            signal.raise_signal(number)

    with pytest.raises((SystemExit, KeyboardInterrupt)), ended_by_signals():
        race([Contestant("any", "", 1, arrives)], "GB/s", rounds=3)
    assert len(runs) == 1


def test_a_signal_that_is_overlooked_at_the_end_ends_the_block():
    with pytest.raises(SystemExit), ended_by_signals(), suppress(BaseException):
        signal.raise_signal(signal.SIGTERM)


def test_a_run_that_fails_after_no_signal_is_a_failed_run():
    def failing():
        raise SystemError("of its own")

    with ended_by_signals():
        [row] = race([Contestant("one", "", 1, failing)], "B/s", rounds=1)
    assert "of its own" in row.error


def test_ranks_find_each_other_whatever_the_folder_of_temporary_files_is_called(
    penstock, odd, tmp_path
):
    named = tmp_path / "a folder with spaces" / ("long" * 40)
    named.mkdir(parents=True)
    penstock("bench", "hdf5-read", odd, "-i", "1", "--n_rank", "2", TMPDIR=str(named))
    assert list(named.iterdir()) == []


@pytest.mark.long
@pytest.mark.skipif(missing("openmpi") is not None, reason=str(missing("openmpi")))
@pytest.mark.parametrize("rank", [0, 1])
def test_under_mpirun_a_rank_that_fails_alone_ends_the_others_and_the_files_go(
    folder, tmp_path, rank
):
    program = tmp_path / "alone.py"
    program.write_text(
        "import os, signal, sys\n"
        "from penstock.bench import session\n"
        "from penstock.cli import main\n"
        "def fail(self, _):\n"
        f"    if self.ranks.rank == {rank}:\n"
        "        raise OSError('only here')\n"
        "session.Session.need_space = fail\n"
        "sys.argv = ['penstock', *sys.argv[1:]]\n"
        "main()\n"
    )
    words = ["bench", "tensor", "--mb_size", "1", "-i", "1", "--dir", str(folder)]
    mpi = Mpi("openmpi")
    done = subprocess.run(
        mpi.command(program, *words, ranks=2),
        capture_output=True,
        text=True,
        timeout=60,
        env=mpi.environment,
    )
    assert done.returncode not in (0, None)
    assert "only here" in done.stderr


def test_ranks_of_mpi_without_mpi4py_are_refused_in_one_line(penstock, tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('not here')")
    environment = {"OMPI_COMM_WORLD_SIZE": "2", "PYTHONPATH": str(tmp_path)}
    done = penstock("bench", "tensor", status=2, **environment)
    assert "pip install mpi4py" in done.stderr
    assert len(done.stderr.splitlines()) == 1


BAD = {
    "cannot be made": ["tensor", "--json", "{file}/result.json"],
    "cannot be written": ["tensor", "--plot", "/proc/none/figure.png"],
    "File name too long": ["tensor", "--input_file", "a" * 300],
    "are needed": ["small", "--file-size", "3000TiB"],
    "must be a multiple of it": ["decode", "--size", "300MiB", "--chunks", "1MiB"],
    "must divide it": ["decode", "--size", "256MiB", "--chunks", "96KiB"],
    "bytes left": ["tensor", "--mb_size", "9" * 30],
}


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_prepared_is_one_line_and_exit_status_2(folder, tmp_path, message):
    file = tmp_path / "file.bin"
    file.write_bytes(b"x")
    words = [word.format(file=file) for word in BAD[message]]
    done = CliRunner().invoke(app, ["bench", *words, "--dir", str(folder)])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["tensor", "small", "decode"])
def test_a_file_system_that_becomes_full_is_reported_in_one_line(folder, name):
    program = (
        "import resource, signal, sys; from penstock.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20,) * 2)\n"
        "main()\n"
    )
    words = {
        "tensor": ["--mb_size", "2"],
        "small": ["--file-size", "4MiB"],
        "decode": ["--size", "8MiB", "--filters", "none", "--chunks", "1MiB"],
    }[name]
    command = [sys.executable, "-c", program, "bench", name, "--dir", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_rows_are_compared_with_penstock_and_with_nothing_else():
    rows = [Row(name, "", "any", 1, "GB/s", [1.0]) for name in ("sec2", "direct")]
    assert column(of_rows("", rows).as_json(), "Penstock is (x)") == [None, None]
    rows.append(Row("Penstock", "", "any", 1, "GB/s", [0.5]))
    assert column(of_rows("", rows).as_json(), "Penstock is (x)") == [2.0, 2.0, None]


@pytest.mark.gpu
def test_ranks_that_share_a_gpu_are_not_called_gpus(penstock, folder, tmp_path):
    saved = tmp_path / "result.json"
    words = ["--size", "1MiB", "--kinds", "write", "-i", "1", "--n_rank", "2", "--json", saved]
    penstock("bench", "scaling", *words, "--dir", folder)
    result = json.loads(saved.read_text())
    assert result["tables"][0]["columns"][1] == result["figures"][0]["x"] == "Ranks"


def fio(folder, read):
    """A stand-in for fio, whose answer is known; gives the PATH with it."""
    folder.mkdir()
    program = folder / "fio"
    program.write_text(
        f"#!{sys.executable}\nprint('''{json.dumps({'jobs': [{'read': read}]})}''')\n"
    )
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


SMALL = ["--file-size", "1MiB", "--sizes", "4KiB", "--depths", "1", "--operations", "10", "-i", "1"]


@pytest.mark.long
def test_fio_is_left_out_by_several_ranks(penstock, folder, tmp_path):
    path = fio(tmp_path / "tools", {"runtime": 4, "iops": 2, "total_ios": 8})
    done = penstock("bench", "small", *SMALL, "--dir", folder, "--n_rank", "2", PATH=path)
    assert "Not measured: fio: it runs with one rank only" in done.stdout


def test_fio_that_reads_nothing_is_a_failed_row(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", fio(tmp_path / "tools", {"runtime": 0, "iops": 0, "total_ios": 0}))
    result, _ = bench("small", *SMALL)
    (row,) = [row for row in result["rows"] if row["name"] == "fio"]
    assert row["error"]


def test_memory_never_overwrites_a_file_that_is_there(bench, tmp_path):
    there = tmp_path / "there.bin"
    there.write_bytes(b"dear")
    for words in (["-o", there], ["-o", there, "-k", "-r"]):
        _, said = bench("memory", *MEMORY, *words, status=2)
        assert "would be overwritten" in said
    (tmp_path / "base.00000000").write_bytes(b"dear")
    bench("memory", *MEMORY, "-F", "-o", tmp_path / "base", status=2)
    assert there.read_bytes() == (tmp_path / "base.00000000").read_bytes() == b"dear"


def test_rows_of_memory_are_those_of_its_table_also_where_a_phase_ends_early(bench):
    result, _ = bench("memory", *MEMORY, "-i", "2", "-D", "0.000001", "--peers", "none")
    (table,) = result["tables"]
    shown = [rate * 2**20 / 1e9 for rate in column(table, "bw(MiB/s)")]
    assert [row["value"] for row in result["rows"]] == pytest.approx(shown)
    assert result["settings"]["deadline"] == 0.000001


def test_memory_calls_only_that_impossible_which_the_system_refuses(bench, monkeypatch):
    def broken(*_):
        raise ps.GpuError("the copy failed")

    monkeypatch.setattr(native.OpenFile, "write", broken)
    words = ["-t", "64KiB", "-b", "128KiB", "--memory", "malloc", "-a", "PENSTOCK,POSIX", "-w"]
    result, said = bench("memory", *words, "-i", "1", "--peers", "none", status=1)
    by_penstock, by_posix, directly, directly_by_posix = column(result["tables"][0], "bw(MiB/s)")
    assert by_penstock == directly == "failed: GpuError"
    assert by_posix > 0
    assert directly_by_posix == "NA(EINVAL)"
    lines = said.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "PENSTOCK: GpuError: the copy failed" in line


def test_memory_says_which_of_its_figures_are_extrapolated(bench):
    words = [*MEMORY, "-i", "1", "--peers", "none"]
    result, _ = bench("memory", *words, "-D", "0.000001")
    (note,) = result["tables"][0]["notes"]
    assert note.startswith("-D ended 2 of 2 combinations early")
    assert all(row["detail"] == "extrapolated to all bytes" for row in result["rows"])
    result, _ = bench("memory", *words, "-D", "100")
    assert result["tables"][0]["notes"] == []
    assert not any(row["detail"] for row in result["rows"])


@pytest.mark.parametrize("access", ["read", "write"])
def test_memory_finds_a_wrong_byte_of_a_timed_transfer(bench, monkeypatch, access):
    transfer, calls = getattr(native.OpenFile, access), count(1)

    def wrong(self, address, *arguments):
        byte = ctypes.c_ubyte.from_address(address + 100)
        # The last one of the timed run, after which only transfers of the check follow.
        number = next(calls)
        if access == "write" and number == 2:
            byte.value ^= 1
        transfer(self, address, *arguments)
        if number == 2:
            byte.value ^= 1

    monkeypatch.setattr(native.OpenFile, access, wrong)
    words = [*MEMORY, "-a", "PENSTOCK", f"-{access[0]}", "-i", "1", "--no-warm-up"]
    _, said = bench("memory", *words, "--peers", "none", status=1)
    assert "WrongBytesError" in said


def test_memory_prints_the_letters_that_it_was_given(bench):
    result, _ = bench("memory", *MEMORY, "-r", "-C", "-e", "-D", "9", "-i", "1", "--peers", "none")
    (line,) = [words for words in result["words"] if words.startswith("Same by IOR")]
    assert "-w" not in line.split()
    assert {"-r", "-C", "-e", "-D"} <= set(line.split())


@pytest.mark.parametrize("kind", ["bars", "lines"])
def test_no_panel_of_a_figure_is_cut_and_a_name_has_one_colour(kind):
    pytest.importorskip("matplotlib")
    panels = [
        Panel("low", ["1", "2"], {"a": [1.0, 2.0]}),
        Panel("high", ["1", "2"], {"b": [5.0, 9.0], "a": [3.0, None]}),
    ]
    drawn = canvas(Figure("any", "any", "x", "y", panels, kind))
    colours = {}
    for place in drawn.axes:
        low, high = place.get_xlim() if kind == "bars" else place.get_ylim()
        assert low == 0
        assert high >= 9
        shown = place.patches if kind == "bars" else place.lines
        assert shown
        for handle, name in zip(*place.get_legend_handles_labels(), strict=True):
            artist = handle.patches[0] if kind == "bars" else handle
            colour = artist.get_facecolor() if kind == "bars" else artist.get_color()
            colours.setdefault(name, set()).add(colour)
    assert {name: len(found) for name, found in colours.items()} == {"a": 1, "b": 1}
    assert colours["a"] != colours["b"]


def test_a_panel_has_its_own_scale_where_the_figure_names_no_unit():
    pytest.importorskip("matplotlib")
    panels = [
        Panel("GB/s", ["Penstock", "other"], {"": [1.0, 2.0]}),
        Panel("us", ["Penstock", "other"], {"": [500.0, 900.0]}),
        Panel("not measured", ["Penstock"], {"": [None]}),
    ]
    first, second = canvas(Figure("any", "any", "", "", panels)).axes
    assert 2 < first.get_xlim()[1] < 3
    assert 900 < second.get_xlim()[1] < 1200
    assert [text.get_text() for text in first.texts] == ["1", "2"]


@pytest.mark.parametrize(("kind", "has_legend"), [("bars", False), ("lines", True)])
def test_only_bars_have_their_names_beside_them(kind, has_legend):
    pytest.importorskip("matplotlib")
    panels = [Panel("", ["1"], {"Penstock": [1.0], "other": [2.0]})]
    assert bool(canvas(Figure("any", "any", "x", "y", panels, kind)).legends) == has_legend


def test_an_svg_has_a_dark_form_and_is_the_same_when_drawn_again(tmp_path):
    pytest.importorskip("matplotlib")
    figure = Figure("any", "Title", "x", "y", [Panel("", ["1", "2"], {"Penstock": [1.0, 2.0]})])
    first, again = (draw([figure], tmp_path / f"{it}.svg", "below")[0] for it in range(2))
    assert first.read_bytes() == again.read_bytes()
    text = first.read_text()
    assert "prefers-color-scheme: dark" in text
    assert ">Title</text>" in text
    ElementTree.fromstring(text)


@pytest.mark.parametrize("kind", ["--json", "--csv"])
def test_results_do_not_replace_what_is_measured(folder, odd, kind):
    before = odd.read_bytes()
    done = CliRunner().invoke(app, ["bench", "hdf5-read", str(odd), kind, str(odd), "-i", "1"])
    assert done.exit_code == 2, done.output
    assert f"{odd.name} is an input" in done.stderr
    assert odd.read_bytes() == before


def test_a_fifo_without_a_reader_is_refused_and_not_waited_for(bench, tmp_path):
    os.mkfifo(tmp_path / "result.json")
    arguments = ["bench", "small", "--dir", str(tmp_path), "--json", str(tmp_path / "result.json")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--file-size", "0"), "--file-size is 0"),
        (("--depths", "1000", "--operations", "4"), "--depths has 1000"),
        (("--sizes", "zz"), '"zz" is not a size'),
    ],
)
def test_small_refuses_what_it_cannot_do(bench, words, said):
    _, told = bench("small", *words, status=2)
    assert said in told
    assert len(told.splitlines()) == 1


def test_files_that_hdf5_write_keeps_are_counted_before_it_begins(folder, monkeypatch):
    from penstock.bench import session

    usage = shutil.disk_usage(folder)._replace(free=20_000_000)
    monkeypatch.setattr(session.shutil, "disk_usage", lambda _: usage)
    sizes = ["--sizes", "1500000,2000000", "--dtypes", "float32", "-i", "1", "--peers", "none"]
    command = ["bench", "hdf5-write", "--dir", str(folder), *sizes]
    assert CliRunner().invoke(app, command).exit_code == 0
    done = CliRunner().invoke(app, [*command, "--keep"])
    assert done.exit_code == 2
    assert "are needed" in done.stderr
    assert not list(folder.iterdir())


def test_percentiles_of_small_are_of_all_timed_runs(bench, monkeypatch):
    from penstock.bench.commands import small

    seen = []

    def noting(latencies):
        seen.append(len(latencies))
        return statistics.median(latencies)

    monkeypatch.setattr(small, "statistics", SimpleNamespace(median=noting))
    sizes = ["--sizes", "4KiB", "--depths", "1", "--file-size", "64KiB", "--operations", "8"]
    bench("small", *sizes, "-i", "3", "--peers", "none", "--device", "cpu")
    assert seen[0] == 3 * 8
