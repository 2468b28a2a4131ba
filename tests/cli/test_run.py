"""`penstock run`: what the command gets, and what becomes of its signals and its exit status."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as installed
from penstock.cli.linked import NEEDED

PRINT_ENVIRONMENT = (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
OURS = ("HDF5_PLUGIN_PATH", "HDF5_DRIVER", "HDF5_DRIVER_CONFIG", "LEGATE_IO_USE_VFD_GDS")


@pytest.fixture(autouse=True)
def nothing_is_set_already(monkeypatch):
    for name in os.environ:
        if name in OURS or name.startswith("CUFILE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def environment(penstock):
    """Return a function that runs a command with options and returns the variables that it had."""

    def ask(*options: str, **before: str) -> dict[str, str]:
        return json.loads(penstock("run", *options, *PRINT_ENVIRONMENT, **before).stdout)

    return ask


@pytest.fixture
def plugin_dir(penstock):
    return penstock("--plugin-dir").stdout.strip()


# Without a report the command takes the place of penstock; with one, penstock waits for it.
BOTH_WAYS = pytest.mark.parametrize("options", [(), ("--report",)], ids=["replaced", "watched"])


def test_hdf5_finds_the_driver(environment, plugin_dir):
    variables = environment()
    assert variables["HDF5_DRIVER"] == "penstock"
    assert variables["HDF5_PLUGIN_PATH"].split(":")[0] == plugin_dir
    assert "HDF5_DRIVER_CONFIG" not in variables


def test_plugin_folders_of_the_user_come_after(environment, plugin_dir):
    found = environment(HDF5_PLUGIN_PATH="/one:/two")["HDF5_PLUGIN_PATH"]
    assert found == f"{plugin_dir}:/one:/two"


def test_plugins_that_are_forbidden_are_an_error(penstock):
    shown = penstock("run", "true", status=2, HDF5_PLUGIN_PRELOAD="::")
    assert "HDF5_PLUGIN_PRELOAD" in shown.stderr


def test_options_become_the_driver_s_configuration(environment):
    given = ["--mode", "posix-mt", "--threads", "3", "--block", "2MiB", "--route", "staged"]
    given += ["--direct", "no", "--option", "stripe_count=4", "--option", "io=threads"]
    assert environment(*given)["HDF5_DRIVER_CONFIG"].split(";") == [
        "mode=posix-mt",
        "threads=3",
        "block=2MiB",
        "route=staged",
        "direct=no",
        "stripe_count=4",
        "io=threads",
    ]


def test_options_go_before_those_of_the_environment(environment):
    before = {"HDF5_DRIVER": "penstock", "HDF5_DRIVER_CONFIG": "threads=2;block=1MiB"}
    variables = environment("--threads", "5", **before)
    assert set(variables["HDF5_DRIVER_CONFIG"].split(";")) == {"threads=5", "block=1MiB"}


def test_options_without_a_driver_are_penstock_s(environment):
    assert environment(HDF5_DRIVER_CONFIG="threads=2")["HDF5_DRIVER_CONFIG"] == "threads=2"
    options = environment("--block", "1MiB", HDF5_DRIVER_CONFIG="threads=2", HDF5_DRIVER="")
    assert set(options["HDF5_DRIVER_CONFIG"].split(";")) == {"threads=2", "block=1MiB"}


def test_another_driver_and_its_options_are_left_out_and_named(penstock):
    before = {"HDF5_DRIVER": "core", "HDF5_DRIVER_CONFIG": "anything"}
    shown = penstock("run", *PRINT_ENVIRONMENT, **before)
    assert "HDF5_DRIVER_CONFIG" not in json.loads(shown.stdout)
    assert "HDF5_DRIVER=core and HDF5_DRIVER_CONFIG=anything" in shown.stderr
    assert "replaced" in shown.stderr


def test_nothing_is_said_where_nothing_is_replaced(penstock):
    before = {"HDF5_DRIVER": "penstock", "HDF5_DRIVER_CONFIG": "threads=2"}
    assert penstock("run", "true", **before).stderr == ""
    assert penstock("run", "true").stderr == ""


def compiled(
    folder: Path, name: str, *options: str, version: str = "", is_whole: bool = False
) -> Path:
    """Compile a program or, with ``-shared``, a library; with what an HDF5 of a version has."""
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    source = folder / f"{name}.c"
    text = "int H5open(void);\n"
    if version:
        text = f'const char info[] = "HDF5 library version: {version}";\n'
        text += "int H5open(void) { return info[0] == 0; }\n"
        if is_whole:
            needed = (name.decode() for name in NEEDED if name != b"H5open")
            text += "".join(f"int {name}(void) {{ return 0; }}\n" for name in needed)
    if "-shared" not in options:
        text += "char *getenv(const char *);\n"
        text += 'int main(void) { return H5open() || getenv("HDF5_VOL_CONNECTOR"); }\n'
    source.write_text(text)
    output = folder / name
    command = ["cc", source, "-o", output, *options]
    subprocess.run(command, check=True)
    return output


def linked(folder: Path, version: str) -> Path:
    """A program that is linked with a library of HDF5."""
    where = f"-L{folder}"
    soname = ("-shared", "-fPIC", "-Wl,-soname,libhdf5.so.103")
    compiled(folder, "libhdf5.so.103", *soname, version=version)
    return compiled(folder, "program", where, "-l:libhdf5.so.103", f"-Wl,-rpath,{folder}")


@BOTH_WAYS
def test_a_note_names_a_program_on_an_old_hdf5(penstock, tmp_path, options):
    program = linked(tmp_path, "1.10.4")
    shown = penstock("run", *options, "env", program)
    assert f"{program} uses HDF5 1.10.4" in shown.stderr
    assert "1.14" in shown.stderr


def test_a_program_on_an_old_hdf5_runs_without_the_connector(penstock, tmp_path):
    [line] = penstock("run", "--async", linked(tmp_path, "1.12.2")).stderr.splitlines()
    assert "too old" in line


@BOTH_WAYS
def test_a_note_names_a_program_with_a_static_hdf5(penstock, tmp_path, options):
    for version in ("1.12.1", "1.14.4-3"):
        program = compiled(tmp_path, "static", version=version)
        shown = penstock("run", *options, program)
        assert f"contains HDF5 {version[:6]}" in shown.stderr


def test_no_note_names_a_program_that_the_driver_can_serve(penstock, tmp_path):
    assert penstock("run", linked(tmp_path, "1.14.4-3")).stderr == ""
    exporting = compiled(tmp_path, "static", "-rdynamic", version="2.0.0", is_whole=True)
    assert penstock("run", exporting).stderr == ""


def test_a_note_names_a_static_hdf5_without_the_functions_of_the_driver(penstock, tmp_path):
    exporting = compiled(tmp_path, "static", "-rdynamic", version="2.0.0")
    assert "-Wl,--whole-archive" in penstock("run", exporting).stderr


def test_a_report_without_files_says_that_nothing_was_done(penstock):
    assert "no process opened an HDF5 file" in penstock("run", "--report", "true").stderr


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("threads", ["--threads", "0"]),
        ("block", ["--block", "many"]),
        ("mode", ["--mode", "fast"]),
        ("stripe_size", ["--option", "stripe_size=1"]),
        ("colour", ["--option", "colour=red"]),
    ],
)
def test_a_bad_option_is_an_error_that_names_it_and_runs_nothing(penstock, key, options):
    shown = penstock("run", *options, "echo", "ran", status=2)
    assert key in shown.stderr
    assert shown.stdout == ""
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    ("options", "before", "mode"),
    [
        (["--io-use-vfd-gds"], {}, "mode=auto"),
        (["--no-io-use-vfd-gds"], {}, "mode=posix-mt"),
        ([], {"LEGATE_IO_USE_VFD_GDS": "1"}, "mode=auto"),
        ([], {"LEGATE_IO_USE_VFD_GDS": "0"}, "mode=posix-mt"),
        (["--io-use-vfd-gds"], {"LEGATE_IO_USE_VFD_GDS": "0"}, "mode=auto"),
        (["--mode", "sec2"], {"LEGATE_IO_USE_VFD_GDS": "1"}, "mode=sec2"),
    ],
)
def test_the_switch_of_legate_chooses_the_mode(environment, options, before, mode):
    assert environment(*options, **before)["HDF5_DRIVER_CONFIG"] == mode


def test_the_switch_of_legate_and_a_mode_exclude_each_other(penstock):
    penstock("run", "--io-use-vfd-gds", "--mode", "auto", "true", status=2)


def test_legate_calls_the_library_that_is_preloaded(environment):
    variables = environment("--legate")
    assert variables["LD_PRELOAD"].split(":")[0].endswith("libpenstock_legate.so")
    assert variables["LEGATE_IO_USE_VFD_GDS"] == "1"


def test_a_library_that_the_loader_would_not_find_is_an_error(penstock, tmp_path):
    """LD_PRELOAD separates names by spaces and colons, and has no way to quote them."""
    elsewhere = tmp_path / "with spaces"
    shutil.copytree(Path(installed.__file__).parent, elsewhere / "penstock")
    shown = penstock("run", "--legate", "true", status=2, PYTHONPATH=str(elsewhere))
    assert "spaces" in shown.stderr


def test_cufile_may_work_in_compatibility_mode(environment):
    assert environment()["CUFILE_ALLOW_COMPAT_MODE"] == "true"


def test_what_the_user_has_set_for_cufile_stays(environment):
    before = {"CUFILE_ALLOW_COMPAT_MODE": "false"}
    assert environment(**before)["CUFILE_ALLOW_COMPAT_MODE"] == "false"
    assert "CUFILE_ALLOW_COMPAT_MODE" not in environment(CUFILE_ENV_PATH_JSON="/own.json")


@BOTH_WAYS
def test_exit_status_is_passed_on(penstock, options):
    penstock("run", *options, "sh", "-c", "exit 42", status=42)


@BOTH_WAYS
def test_a_command_that_is_not_there_is_status_127(penstock, options):
    shown = penstock("run", *options, "no-such-command", status=127)
    assert "no-such-command" in shown.stderr


@BOTH_WAYS
def test_a_command_without_a_name_is_refused(penstock, options):
    assert (
        "the name of the program is empty" in penstock("run", *options, "--", "", status=2).stderr
    )


@BOTH_WAYS
def test_a_command_that_cannot_be_executed_is_status_126(penstock, options, tmp_path):
    program = tmp_path / "program"
    program.write_text("no program")
    assert str(program) in penstock("run", *options, program, status=126).stderr


def test_without_a_report_the_command_takes_penstock_s_place(penstock):
    with subprocess.Popen(
        [*penstock.words, "run", "sh", "-c", "echo $$"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert int(process.stdout.read()) == process.pid


@BOTH_WAYS
def test_a_signal_ends_the_command_as_it_would_alone(penstock, options):
    command = [*penstock.words, "run", *options, "sh", "-c", "kill -PIPE $$; echo alive"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == (128 + signal.SIGPIPE if options else -signal.SIGPIPE)
    assert done.stdout == ""


@BOTH_WAYS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(penstock, options, number):
    script = f"trap 'exit 42' {number - 0}; echo ready; while :; do sleep 0.02; done"
    with subprocess.Popen(
        [*penstock.words, "run", *options, "sh", "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(60) == 42


def test_no_thread_is_left_that_could_die_of_a_signal_to_the_command(penstock):
    """A thread that a library has started does not block what is to be passed on."""
    count = "import os; print(len(os.listdir(f'/proc/{os.getppid()}/task')))"
    assert penstock("run", "--report", sys.executable, "-c", count).stdout.startswith("1\n")


@BOTH_WAYS
def test_the_end_of_the_command_is_seen_where_ends_are_ignored(penstock, options):
    """What ignores SIGCHLD passes that on to what it starts."""
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [*penstock.words, "run", *options, "sh", "-c", "exit 42"]
    assert subprocess.run([sys.executable, "-c", ignore, *words], timeout=60).returncode == 42


def test_a_signal_of_the_terminal_comes_once(penstock):
    """Ctrl-C goes to the whole foreground: passed on, it would reach the command twice."""
    count = (
        "import signal, sys, time\n"
        "caught = []\n"
        "signal.signal(signal.SIGINT, lambda *_: caught.append(1))\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 1\n"
        "while time.monotonic() < end: time.sleep(0.05)\n"
        "sys.exit(len(caught))\n"
    )
    command = [*penstock.words, "run", "--report", sys.executable, "-c", count]
    main, terminal = os.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    with os.fdopen(main, "r+b", buffering=0) as typed, process:
        while b"ready" not in typed.read(100):
            pass
        typed.write(b"\x03")
        assert process.wait(60) == 1


@BOTH_WAYS
def test_input_and_output_are_the_command_s(penstock, options):
    done = subprocess.run(
        [*penstock.words, "run", *options, "cat"], input="text", capture_output=True, text=True
    )
    assert done.stdout == "text"


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_options_after_the_command_are_the_command_s(penstock, separator):
    shown = penstock("run", *separator, "echo", "--report", "--", "-v")
    assert shown.stdout == "--report -- -v\n"
