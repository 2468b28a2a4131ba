"""How commands end: one sentence and a status, whatever the arguments and the standard streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from penstock.cli import ending


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder with odd files."""
    folder = tmp_path_factory.mktemp("odd")
    with h5py.File(folder / "odd.h5", "w") as file:
        file["x"] = np.arange(10.0)
        file["group/y"] = np.arange(10.0)
        file["loop"] = h5py.SoftLink("/loop")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["outside"] = h5py.ExternalLink("absent.h5", "/x")
        file["type"] = np.dtype("f8")
        file.create_dataset("text", data=["a"])
        file["null"] = h5py.Empty("f8")
        file[b"\xff"] = 1.0
    with h5py.File(folder / "huge.h5", "w") as file:
        file.create_dataset("huge", (1 << 40,), "f8", chunks=(1 << 20,))
    (folder / "raw.bin").write_bytes(b"x" * 1000)
    (folder / "folder").mkdir()
    return folder


def shell(penstock, line, folder, **environment):
    """Run a line of a shell, in which PENSTOCK is the command."""
    script = line.replace("PENSTOCK", " ".join(penstock.words))
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


ODD = [
    ("read odd.h5:loop", 2, "/loop"),
    ("read odd.h5:dangling", 2, "is a link to /nowhere, which does not exist"),
    ("read odd.h5:dangling/below", 2, "is a link to /nowhere, which does not exist"),
    ("read odd.h5:outside", 2, "is a link to /x in absent.h5, which cannot be opened"),
    ("read odd.h5:group", 2, "is a group: name a dataset in it"),
    ("read odd.h5:", 2, "is a group: name a dataset in it"),
    ("read odd.h5:/", 2, "is a group: name a dataset in it"),
    ("read odd.h5:type", 2, "is not a dataset"),
    ("read odd.h5:x/below", 2, "is not a group"),
    ("read odd.h5:nothing", 2, "no object /nothing"),
    ("read huge.h5:huge", 1, "8.00 TiB"),
    ("read odd.h5:text --out out", 1, "object"),
    ("read odd.h5:null --out out", 1, "Empty"),
    ("read raw.bin --length 99999999999999999999", 2, "99999999999999999999"),
    ("read raw.bin --length 9223372036854775807", 1, ""),
    ("read raw.bin --offset 9223372036854775807 --length 5", 1, ""),
    ("read raw.bin --threads 99999999999999999999", 2, "threads"),
    ("read raw.bin --block 5KB --device cuda:x", 2, "cuda:x"),
    ("read raw.bin --device cuda:99999999999999999999", 2, "cuda:99999999999999999999"),
    ("read raw.bin:x", 1, "raw.bin"),
    ("read folder", 1, ""),
    ("read folder:x", 1, ""),
    ("read raw.bin --out folder", 1, "folder"),
    ("read raw.bin --out absent/x", 1, "absent"),
    ("read raw.bin --trace absent/x", 1, "absent"),
    ("read odd.h5:x --out folder/x/y", 1, "folder/x"),
    ("verify raw.bin", 2, "raw.bin"),
    ("verify folder", 2, "folder"),
    ("verify absent", 2, "absent"),
    ("verify odd.h5 --device cuda:99", 2, ""),
    ("verify odd.h5 --device cuda:99999999999999999999", 2, "cuda:99999999999999999999"),
    ("demo --device cuda:99999999999999999999", 2, "cuda:99999999999999999999"),
    ("demo --dir absent", 1, "absent"),
    ("demo --size 1MiB --dir raw.bin", 1, "raw.bin"),
    ("tune raw.bin", 2, "raw.bin"),
    ("tune . --budget 99999999999999999999", 2, "budget"),
    ("tune . --device cuda:99999999999999999999", 2, "cuda:99999999999999999999"),
    ("report absent", 2, "absent"),
    ("report --html folder", 2, "folder"),
    ("bench hdf5-read raw.bin", 2, "raw.bin"),
    ("bench hdf5-read folder", 2, "folder"),
    ("bench small --sizes 5x", 2, "5x"),
    ("run absent-command", 127, "absent-command"),
    ("run ./folder", 126, "folder"),
    ("run --report-to folder true", 1, "folder"),
]


@pytest.mark.parametrize(("arguments", "status", "words"), ODD, ids=[row[0] for row in ODD])
def test_odd_arguments_end_in_a_sentence(penstock, odd, monkeypatch, arguments, status, words):
    monkeypatch.chdir(odd)
    shown = penstock(*arguments.split(), status=status)
    said = " ".join((shown.stdout + shown.stderr).replace("│", " ").split())
    assert words.replace(" ", "") in said.replace(" ", "")
    assert "Traceback" not in said
    assert "unexpected" not in said
    assert shown.stderr


PRINTING = ["read odd.h5:x", "verify odd.h5", "report --json", "--version", "bench --help"]


@pytest.mark.parametrize("arguments", PRINTING)
def test_output_that_cannot_be_written_is_an_error(penstock, odd, arguments):
    for redirection, why in (
        (">&-", "Bad file descriptor"),
        (">/dev/full", "No space left on device"),
    ):
        shown = shell(penstock, f"PENSTOCK {arguments} {redirection}", odd)
        assert shown.stderr == f"penstock: cannot write standard output: {why}\n"
        assert shown.returncode == (2 if arguments.startswith("verify") else 1)


@pytest.mark.parametrize("arguments", PRINTING)
def test_standard_error_may_be_closed(penstock, odd, arguments):
    assert shell(penstock, f"PENSTOCK {arguments} <&- 2>&-", odd).returncode == 0


@pytest.mark.parametrize("arguments", PRINTING)
def test_a_pipe_without_a_reader_ends_a_command_as_other_tools(penstock, odd, arguments):
    shown = shell(penstock, f"PENSTOCK {arguments} | false; echo ${{PIPESTATUS[0]}}", odd)
    assert shown.stderr == ""
    assert shown.stdout.strip() == str(128 + signal.SIGPIPE)


def test_a_closed_stream_never_becomes_a_file_that_is_written(penstock, odd, tmp_path):
    out = tmp_path / "out"
    shown = shell(penstock, f"PENSTOCK read raw.bin --out {out} >&- 2>&- <&-", odd)
    assert shown.returncode == 1  # the report is lost
    assert out.read_bytes() == b"x" * 1000


def test_an_unexpected_exception_names_itself_in_one_line(capsys):
    with pytest.raises(SystemExit) as ended, ending.in_one_sentence(7):
        raise IndexError("list index\nout of range")
    assert ended.value.code == 7
    said = capsys.readouterr().err
    assert said.startswith("penstock: unexpected IndexError: list index out of range;")
    assert said.count("\n") == 1


COMMAND = [sys.executable, "-m", "penstock_command"]


@pytest.mark.parametrize("arguments", ["--version", "report", "run -- true"])
def test_a_library_that_cannot_be_opened_is_an_error_in_one_line(tmp_path, arguments):
    absent = str(tmp_path / "absent.so")
    done = subprocess.run(
        [*COMMAND, *arguments.split()],
        env=os.environ | {"PENSTOCK_LIBRARY": absent},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"penstock: penstock cannot open its native library {absent}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["numpy", "h5py", "rich", "typer"])
def test_a_missing_package_is_an_error_that_names_command_and_remedy(tmp_path, module):
    absent = f"raise ModuleNotFoundError('No module named {module}', name='{module}')\n"
    (tmp_path / f"{module}.py").write_text(absent)
    done = subprocess.run(
        [*COMMAND, "report"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    remedy = f"{module}, which is not installed: pip install -U {module}"
    assert (done.returncode, done.stderr) == (1, f"penstock: penstock report needs {remedy}\n")


@pytest.mark.parametrize("name", ["penstock.absent", "_ctypes", None])
def test_a_missing_module_that_pip_cannot_install_is_unexpected(name):
    error = ModuleNotFoundError(f"No module named {name}", name=name)
    assert ending.sentence(error).startswith("unexpected ModuleNotFoundError")


@pytest.mark.parametrize("module", ["numpy", "h5py", "rich", "typer"])
def test_ctrl_c_while_modules_are_imported_ends_a_command_without_a_traceback(tmp_path, module):
    (tmp_path / f"{module}.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    done = subprocess.run(
        [*COMMAND, "report"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "")


LATE = """
import os, signal, sys, weakref
from penstock.signals import ended_by_signals

class Kept: pass
with ended_by_signals():
    kept = Kept()
    watch = weakref.ref(kept, lambda _: os.kill(os.getpid(), int(sys.argv[1])))
    del kept
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_callback_of_a_weak_reference_ends_the_program_without_a_traceback(number):
    command = [sys.executable, "-c", LATE, str(int(number))]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (128 + number, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_demo_removes_its_files_when_a_signal_ends_it(penstock, folder, number):
    command = [*penstock.words, "demo", "--dir", str(folder), "--size", "512MiB"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 60
        while not list(folder.rglob("*.h5")) and time.monotonic() < deadline:
            time.sleep(0.01)
        running.send_signal(number)
        said = running.stderr.read()
        assert running.wait(timeout=60) == 128 + number
    assert b"Traceback" not in said
