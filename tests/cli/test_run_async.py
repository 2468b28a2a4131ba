"""`penstock run --async`: the settings of the command's HDF5, and the connector's log."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from penstock.cli import calls

PRINT_ENVIRONMENT = (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
ALONE = "penstock_async under_vol=0;under_info={}"


@pytest.fixture(autouse=True)
def nothing_is_set_already(monkeypatch):
    for name in os.environ:
        if name.startswith(("HDF5_", "CUFILE_", "LEGATE_IO")):
            monkeypatch.delenv(name)


@pytest.fixture
def environment(penstock):
    """Return a function that runs a command with options and returns the variables that it had."""

    def ask(*options: str, **before: str) -> dict[str, str]:
        return json.loads(penstock("run", *options, *PRINT_ENVIRONMENT, **before).stdout)

    return ask


@pytest.fixture
def connector(environment):
    """Return a function that does so with --async, and returns what names the connector."""

    def ask(*options: str, before: str | None = None) -> str:
        variables = {} if before is None else {"HDF5_VOL_CONNECTOR": before}
        return environment("--async", *options, **variables)["HDF5_VOL_CONNECTOR"]

    return ask


def test_hdf5_finds_driver_and_connector(environment):
    variables = environment("--async")
    assert variables["HDF5_VOL_CONNECTOR"] == ALONE
    assert variables["HDF5_DRIVER"] == "penstock"
    folder = Path(variables["HDF5_PLUGIN_PATH"].split(":")[0])
    assert (folder / "libhdf5_vol_penstock_async.so").exists()


def test_without_it_the_connector_of_the_environment_stays(environment):
    assert "HDF5_VOL_CONNECTOR" not in environment()
    assert environment(HDF5_VOL_CONNECTOR="native")["HDF5_VOL_CONNECTOR"] == "native"


def test_options_follow_the_connector_below(connector, tmp_path):
    given = ["--threads", "3", "--async-copy", "never", "--async-max-mem-mb", "64"]
    given += [
        "--async-log",
        f"{tmp_path}/calls",
        "--async-implicit",
        "--async-option",
        "io=threads",
    ]
    expected = f"threads=3;copy=never;max_mem_mb=64;log={tmp_path}/calls;implicit=1;io=threads"
    assert connector(*given) == f"{ALONE};{expected}"


def test_options_of_driver_and_connector_keep_apart(environment):
    variables = environment(
        "--async", "--mode", "posix-mt", "--threads", "2", "--async-copy", "auto"
    )
    assert variables["HDF5_DRIVER_CONFIG"] == "mode=posix-mt;threads=2"
    assert variables["HDF5_VOL_CONNECTOR"] == f"{ALONE};threads=2;copy=auto"


def test_the_log_lies_where_the_user_is_and_not_the_command(connector):
    assert connector("--async-log", "calls") == f"{ALONE};log={os.getcwd()}/calls"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("native", "penstock_async under_vol=native;under_info={}"),
        (
            "pass_through under_vol=0;under_info={};",
            "penstock_async under_vol=pass_through;under_info={under_vol=0;under_info={};}",
        ),
        ("other\tsome words", "penstock_async under_vol=other;under_info={some words}"),
        ("", ALONE),
    ],
)
def test_the_connector_of_the_environment_comes_to_lie_below(connector, before, expected):
    assert connector(before=before) == expected


def test_options_go_before_those_of_the_environment(connector):
    below = "under_vol=512;under_info={under_vol=0;under_info={}}"
    before = f"penstock_async {below};threads=2;copy=never"
    after = connector("--threads", "5", before=before)
    assert after == f"penstock_async {below};threads=5;copy=never"


@pytest.mark.parametrize("before", ["other {", "other }{", "5th", "penstock_async under_info={"])
def test_a_connector_that_cannot_lie_below_is_an_error(penstock, before):
    shown = penstock("run", "--async", "echo", "ran", status=2, HDF5_VOL_CONNECTOR=before)
    assert "HDF5_VOL_CONNECTOR" in shown.stderr
    assert shown.stdout == ""


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("copy", ["--async-copy", "maybe"]),
        ("max_mem_mb", ["--async-max-mem-mb", "-1"]),
        ("colour", ["--async-option", "colour=red"]),
        ("log", ["--async-log", "a;b"]),
        ("under_vol", ["--async-option", "under_vol=x y;"]),
    ],
)
def test_a_bad_option_is_an_error_that_names_it_and_runs_nothing(penstock, key, options):
    shown = penstock("run", "--async", *options, "echo", "ran", status=2)
    assert key in shown.stderr
    assert shown.stdout == ""
    assert "Traceback" not in shown.stderr


def test_the_environment_of_the_command_s_hdf5_does_not_affect_penstock(penstock):
    before = {"HDF5_VOL_CONNECTOR": "no_such_connector", "HDF5_DRIVER": "no_such_driver"}
    said = penstock("run", "--async", "true", **before).stderr
    replaced = "HDF5_DRIVER=no_such_driver of the environment: replaced"
    assert [replaced in line for line in said.splitlines()] == [True]


def test_options_of_the_connector_need_the_connector(penstock):
    assert "--async" in penstock("run", "--async-copy", "never", "true", status=2).stderr


LOG = """\
1.000001 H5Dwrite_async async 100 bytes
2.000001 H5Dwrite_async async 200 bytes
2.000002 H5Dread_async sync 8 bytes: compact dataset
3.000001 H5Fclose_async deferred
no line of a log
4.0000"""


def test_calls_that_went_the_same_way_are_counted_together():
    found = calls.total(LOG.splitlines())
    assert [(c.name, c.manner, c.why, c.count, c.bytes) for c in found] == [
        ("H5Dread_async", "sync", "compact dataset", 1, 8),
        ("H5Dwrite_async", "async", "", 2, 300),
        ("H5Fclose_async", "deferred", "", 1, 0),
    ]


WRITE_LINE = 'echo "1.0 H5Dwrite_async async 100 bytes" >> "${HDF5_VOL_CONNECTOR##*log=}"'


def test_the_report_counts_the_calls_of_the_log(penstock, tmp_path):
    report = tmp_path / "report.json"
    options = ["--async", "--report", "--report-to", report]
    shown = penstock("run", *options, "sh", "-c", WRITE_LINE)
    assert "H5Dwrite_async" in shown.stderr
    (same,) = json.loads(report.read_text())["calls"]
    assert (same["name"], same["count"], same["bytes"]) == ("H5Dwrite_async", 1, 100)


def test_a_log_of_the_user_s_is_added_to_and_only_what_is_new_is_counted(penstock, tmp_path):
    log, report = tmp_path / "log", tmp_path / "report.json"
    for _ in range(2):
        options = ["--async", "--async-log", log, "--report-to", report]
        penstock("run", *options, "sh", "-c", WRITE_LINE)
    assert len(log.read_text().splitlines()) == 2
    assert json.loads(report.read_text())["calls"][0]["count"] == 1
