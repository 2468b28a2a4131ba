"""`penstock tune` in seconds, on the machine as it is and on the stand-in GPU."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock._options import resolve
from penstock.cli import app
from penstock.cli.tune import _ordinals
from penstock.tuning import cufile, files, measure, tuner
from penstock.tuning.profiles import Slot, Store
from penstock.tuning.rows import ROWS as ROWS_IN_ORDER

BUDGET = "3s"
ROWS = {
    (operation, size, place)
    for operation in ("read", "write")
    for size in ("small", "large")
    for place in ("cache", "storage")
}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where profiles are kept; they count."""
    folder = tmp_path / "profiles"
    monkeypatch.setenv("PENSTOCK_PROFILE_DIR", str(folder))
    monkeypatch.setenv("PENSTOCK_PROFILE", "on")
    return folder


@pytest.fixture
def place(tmp_path):
    """The folder that is tuned for."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def profiles(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def has_processes(group):
    """Whether a process group has any that has not ended."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, found = status.read_text().rpartition(")")[2].split()[:3]
            if int(found) == group and state != "Z":
                return True
    return False


def assert_refused(done, *words):
    """One clear line, and nothing else."""
    lines = (done.stderr + done.stdout).splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("penstock: ")
    for word in words:
        assert word in lines[0]


def test_a_profile_with_every_row_is_kept_and_no_file_is_left(penstock, kept, place, on_gpu):
    found = penstock.json("tune", place, "--budget", BUDGET)
    rows = {(row["operation"], row["size"], row["place"]): row for row in found["rows"]}
    assert set(rows) == ROWS
    for row in rows.values():
        if row["why_not"]:
            assert row["place"] == "storage", row["why_not"]  # a file system in memory
            continue
        assert row["default_gbps"] > 0
        assert row["tuned_gbps"] > 0
        assert row["runs"] >= 2
        resolve(dict(item.split("=") for item in row["options"].split(";") if item))
        assert any(trial["options"] == "" and trial["gbps"] for trial in row["trials"])
    (profile,) = profiles(kept)
    assert found["devices"] == [0 if on_gpu else -1]
    assert (profile["gpu"] is not None) == on_gpu
    assert profile["format"] == 1
    assert profile["file_system"]["type"]
    assert list(place.iterdir()) == []


@pytest.mark.long
def test_the_table_has_the_settings_tried_and_the_gain(penstock, kept, place):
    shown = penstock("tune", place, "--budget", BUDGET, "--device", "cpu:0").stdout
    for word in ("Tried", "Default", "Tuned", "Gain", "large read, cached", "GB/s", "settings"):
        assert word in shown
    (path,) = kept.glob("*.json")
    assert path.name in shown.replace("\n", "")


def test_what_is_kept_counts_in_the_next_process(penstock, kept, place):
    penstock("tune", place, "--budget", "1s", "--device", "cpu")
    (path,) = kept.glob("*.json")
    profile = json.loads(path.read_text())
    for row in profile["rows"]:
        row["options"] = "threads=3" if row["size"] == "large" else ""
    path.write_text(json.dumps(profile))
    target = place / "target.bin"
    target.write_bytes(bytes(64 << 20))
    report = penstock.json("read", target, "--device", "cpu")
    assert report["tuned"] == "threads=3"
    assert report["threads"] <= 3
    (shown,) = penstock.json("tune", place, "--show")["profiles"]
    assert shown["state"] == "used"
    assert shown["profile"] == profile


@pytest.mark.long
def test_clear_removes_what_was_kept_and_show_says_so(penstock, kept, place):
    penstock("tune", place, "--budget", "1s", "--device", "cpu")
    assert "host memory" in penstock("tune", place, "--show").stdout
    assert len(penstock.json("tune", place, "--clear")["removed"]) == 1
    assert profiles(kept) == []
    assert "There is no profile" in penstock("tune", place, "--show").stdout
    assert "There is no profile" in penstock("tune", place, "--clear").stdout


@pytest.mark.long
def test_a_damaged_profile_is_shown_as_ignored_and_can_be_cleared(penstock, kept, place):
    penstock("tune", place, "--budget", "1s", "--device", "cpu")
    (path,) = kept.glob("*.json")
    path.write_text("{")
    (shown,) = penstock.json("tune", place, "--show")["profiles"]
    assert shown["state"] == "ignored"
    assert "damaged" in shown["reason"]
    assert "ignored" in penstock("tune", place, "--show").stdout
    penstock("tune", place, "--clear")
    assert profiles(kept) == []


@pytest.mark.parametrize("budget", ["0", "0s", "-1s", "soon", "", "1h", "1e3"])
def test_a_budget_that_is_no_time_is_refused(kept, place, budget):
    done = CliRunner().invoke(app, ["tune", str(place), f"--budget={budget}"])
    assert done.exit_code == 2
    assert_refused(done, "--budget", repr(budget))


def test_a_path_that_is_no_folder_is_refused(penstock, kept, place):
    file = place / "file"
    file.write_bytes(b"")
    assert_refused(penstock("tune", file, status=2), str(file), "not a folder")
    absent = place / "absent"
    assert_refused(penstock("tune", absent, status=2), str(absent), "does not exist")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(penstock, kept, place):
    place.chmod(0o500)
    done = penstock("tune", place, "--budget", "1s", status=2)
    assert_refused(done, str(place))
    assert profiles(kept) == []


def test_a_folder_in_which_no_file_can_be_made_is_refused(penstock, kept):
    done = penstock("tune", "/proc", "--budget", "1s", "--device", "cpu", status=2)
    assert_refused(done, "/proc")
    assert profiles(kept) == []


def test_profiles_that_could_not_be_kept_are_refused_before_anything_is_measured(
    penstock, place, tmp_path
):
    file = tmp_path / "file"
    file.write_bytes(b"")
    done = penstock("tune", place, status=2, PENSTOCK_PROFILE_DIR=str(file))
    assert_refused(done, f"{file}: it is not a folder", "set PENSTOCK_PROFILE_DIR")
    done = penstock("tune", place, status=2, PENSTOCK_PROFILE_DIR=str(file / "x"))
    assert_refused(done, f"{file / 'x'}: Not a directory", "set PENSTOCK_PROFILE_DIR")
    assert list(place.iterdir()) == []


def test_a_file_system_without_room_is_refused(penstock, kept, place):
    # To fill one would disturb all others, so it only says that it is full.
    code = (
        "import shutil, collections, penstock.cli\n"
        "usage = collections.namedtuple('usage', 'total used free')\n"
        "shutil.disk_usage = lambda _: usage(10**9, 10**9 - 5, 5)\n"
        f"import sys; sys.argv = ['penstock', 'tune', {str(place)!r}, '--device', 'cpu']\n"
        "penstock.cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert_refused(done, str(place), "5 bytes left")
    assert profiles(kept) == []
    assert list(place.iterdir()) == []


def test_gpus_that_are_not_there_are_refused(penstock, kept, place):
    assert_refused(penstock("tune", place, "--device", "99", status=2), "no GPU 99; GPUs here: ")
    assert_refused(penstock("tune", place, "--devices", "0,x", status=2), "'x' is not a device")
    assert_refused(penstock("tune", place, "--devices", "cpu,0", status=2), "without the host")
    done = penstock("tune", place, "--device", "0", "--devices", "0,1", status=2)
    assert_refused(done, "--device")


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "cpu:1"])
def test_the_host_has_the_names_of_other_commands(name):
    assert _ordinals(name, None) == _ordinals(None, name) == [-1]


def test_show_and_clear_exclude_each_other(penstock, kept, place):
    assert_refused(penstock("tune", place, "--show", "--clear", status=2), "--show", "--clear")


def test_without_cufile_its_keys_are_refused(penstock, kept, place, tmp_path):
    out = tmp_path / "cufile.json"
    done = penstock("tune", place, "--device", "cpu", "--cufile", out, status=2)
    assert_refused(done, "GPU")
    assert not out.exists()


@pytest.mark.gpu
def test_where_cufile_does_not_start_its_keys_are_refused(penstock, kept, place, tmp_path):
    out = tmp_path / "cufile.json"
    absent = {"PENSTOCK_CUFILE_LIBRARY": str(tmp_path / "absent.so")}
    done = penstock("tune", place, "--cufile", out, status=2, **absent)
    assert_refused(done, "cuFile", "absent.so")
    assert not out.exists()
    assert profiles(kept) == []
    assert list(place.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_neither_files_nor_processes_nor_a_profile(kept, place, number):
    command = [sys.executable, "-m", "penstock_command", "tune", str(place), "--device", "cpu"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        end = time.monotonic() + 60
        while not list(place.iterdir()) and time.monotonic() < end:
            time.sleep(0.05)
        assert list(place.iterdir())
        time.sleep(3)  # in the middle of a measurement, most likely
        os.killpg(process.pid, number)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    assert list(place.iterdir()) == []
    assert profiles(kept) == []
    assert not has_processes(process.pid)


@pytest.mark.long
def test_files_of_a_tuner_that_was_killed_are_removed_by_the_next_one(penstock, kept, place):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    orphan = place / f".penstock-tune-{socket.gethostname()}-{gone.pid}-0.bin"
    orphan.write_bytes(b"left")
    other = place / ".penstock-tune-another-host-1-0.bin"
    other.write_bytes(b"in use")
    penstock("tune", place, "--budget", "1s", "--device", "cpu")
    assert list(place.iterdir()) == [other]


def test_a_file_of_an_earlier_process_with_the_same_number_is_removed(place):
    orphan = place / f".penstock-tune-{socket.gethostname()}-{os.getpid()}-0.bin"
    orphan.write_bytes(b"left")
    tuner.remove_orphans(place)
    assert list(place.iterdir()) == []


def test_files_of_a_killed_tuner_that_cannot_be_removed_disturb_no_run(place):
    # A folder, as a file of another user in a folder for all: to remove it fails.
    orphan = place / f".penstock-tune-{socket.gethostname()}-{2**22 + 1}-0.bin"
    orphan.mkdir()
    tuner.remove_orphans(place)
    assert list(place.iterdir()) == [orphan]


def test_a_file_that_cannot_be_made_is_named(place):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="large") as raised:
            files.make(place / "f", 8 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(place / "f")


def test_last_words_of_a_process_may_be_any_bytes(place, tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nprintf 'fault \\377' >&2\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(ps.Error, match="ended: fault"):
        measure.Workers([(place / "f", -1)], 4096).__enter__()


def test_modules_in_the_working_folder_are_not_taken_for_those_of_the_tuner(place, monkeypatch):
    (place / "json.py").write_text("raise SystemExit('the wrong json')")
    (place / "penstock.py").write_text("raise SystemExit('the wrong penstock')")
    monkeypatch.chdir(place)
    files.make(place / "f", 1 << 20)
    with measure.Workers([(place / "f", -1)], 1 << 20) as workers:
        assert len(workers) == 1


def test_a_configuration_folder_that_is_no_utf_8_is_refused(penstock, place, tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    done = penstock("tune", place, "--show", status=2, PENSTOCK_PROFILE_DIR=folder)
    assert_refused(done, "not UTF-8", "PENSTOCK_PROFILE_DIR")


def test_what_was_found_is_shown_even_if_it_cannot_be_kept(kept, place, monkeypatch):
    found = [tuner.Found(ROWS_IN_ORDER[0], why_not="not here")]
    monkeypatch.setattr(tuner, "tune", lambda *_: iter(found))

    def keep(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Store, "keep", keep)
    done = CliRunner().invoke(app, ["tune", str(place), "--device", "cpu", "--budget", "1s"])
    assert done.exit_code == 2
    assert "not measured: not here" in done.stdout
    assert "cannot be written: No space left on device" in done.output


def _profile_of(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        contents = {
            "no number": '{"made": NaN}',
            "no finite number": '{"made": 1e999}',
            "nested": "[" * 100_000,
            "no UTF-8": b"\xff",
            "long": '{"made": "' + "m" * (1 << 20) + '"}',
        }[kind]
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


@pytest.mark.parametrize(
    "kind",
    [
        "pipe",
        "folder",
        "no number",
        "no finite number",
        "nested",
        "no UTF-8",
        "long",
    ],
)
def test_a_profile_that_json_cannot_tell_is_not_shown(tmp_path, kind):
    _profile_of(kind, tmp_path / "f")
    assert Slot(-1, None, tmp_path / "f", "ignored", "why").contents() is None


@pytest.mark.long
@pytest.mark.gpu
def test_two_gpus_are_tuned_together(penstock, kept, place):
    if not os.environ.get("PENSTOCK_CUDA_LIBRARY"):
        pytest.skip("needs the stand-in GPU, of which there can be two")
    done = penstock(
        "tune", place, "--budget", BUDGET, "--devices", "0,1", "--json", CUDASIM_DEVICES="2"
    )
    found = json.loads(done.stdout)
    assert found["devices"] == [0, 1]
    large = next(row for row in found["rows"] if row["size"] == "large")
    assert large["alone"]["best_gbps"] > 0
    first, second = profiles(kept)
    assert first["rows"] == second["rows"]
    assert first["gpu"]["pci_bus_id"] != second["gpu"]["pci_bus_id"]
    assert set(first["together"]) == {p["gpu"]["pci_bus_id"] for p in (first, second)}
    assert first["gpu"]["count"] == 2
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        (b'{"a": "\xff"}', "not UTF-8: byte 7"),
        (b'{ /* two\n lines */ "a": ! }', "line 2, column 16"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 1500 + b"1" + b"}" * 1500, "nested too deeply"),
        (b'{"properties": {"max_direct_io_size_kb": NaN}}', "not JSON compliant"),
        (b'{"properties": 5}', "properties is not an object"),
        (b'{"execution": []}', "execution is not an object"),
        (b"5", "not an object"),
        (None, "not a regular file"),
    ],
)
def test_a_configuration_that_cannot_be_changed_is_refused(tmp_path, monkeypatch, contents, why):
    path = tmp_path / "cufile.json"
    os.mkfifo(path) if contents is None else path.write_bytes(contents)
    monkeypatch.setenv(cufile.VARIABLE, str(path))
    with pytest.raises(ps.InvalidError, match=why) as raised:
        cufile.in_force()
    assert str(path) in str(raised.value)


def test_a_configuration_that_is_named_and_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(cufile.VARIABLE, str(tmp_path / "none.json"))
    with pytest.raises(ps.InvalidError, match="does not exist"):
        cufile.in_force()


@pytest.mark.gpu
def test_a_configuration_that_could_not_be_written_is_refused_before_anything_is_measured(
    penstock, kept, place
):
    if not penstock.json("report", place)["cufile"]["starts"]:
        pytest.skip("needs cuFile")
    done = penstock("tune", place, "--cufile", place, status=2)
    assert_refused(done, str(place), "Is a directory")
    assert profiles(kept) == []
    assert list(place.iterdir()) == []


@pytest.mark.long
@pytest.mark.gpu
def test_a_configuration_of_cufile_is_written_where_cufile_starts(penstock, kept, place, tmp_path):
    if not penstock.json("report", place)["cufile"]["starts"]:
        pytest.skip("needs cuFile")
    base = tmp_path / "base.json"
    base.write_text('{\n // a comment\n "logging": {"level": "ERROR"}, "properties": {}\n}')
    out = tmp_path / "cufile.json"
    done = penstock(
        *("tune", place, "--budget", BUDGET, "--cufile", out, "--json"),
        CUFILE_ENV_PATH_JSON=str(base),
    )
    found = json.loads(done.stdout)["cufile"]
    written = json.loads(out.read_text())
    assert written["logging"] == {"level": "ERROR"}
    for name, value in found["keys"].items():
        section, key = name.split(".")
        assert written[section][key] == value
    assert list(place.iterdir()) == []
