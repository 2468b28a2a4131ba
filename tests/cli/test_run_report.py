"""The report of `penstock run` at the end of a command, from the accounts of its processes."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest

MIB = 1 << 20


def counts(calls: int, size: int, ns: int) -> dict[str, int]:
    return {"calls": calls, "bytes": size, "ns": ns}


def opened(number: int, path: str) -> dict[str, object]:
    return {"event": "opened", "file": number, "path": path, "driver": "penstock", "mode": "auto"}


def closed(number: int, path: str, **counted: object) -> dict[str, object]:
    return opened(number, path) | {"event": "closed", "open_ns": 5} | counted


@pytest.fixture
def report(penstock, tmp_path):
    """Return a function that runs a command and returns penstock's report, parsed from JSON.

    The command writes the given accounts, by process id.
    """

    def run(accounts: dict[int, list[object]], *options: str, **keywords: int):
        lines = {
            f"{pid}.jsonl": "".join(
                line if isinstance(line, str) else json.dumps(line) + "\n" for line in written
            )
            for pid, written in accounts.items()
        }
        script = (
            "import os, pathlib\n"
            "folder = pathlib.Path(os.environ['PENSTOCK_REPORT_DIR'])\n"
            f"for name, text in {lines!r}.items(): (folder / name).write_text(text)\n"
        )
        out = tmp_path / "report.json"
        shown = penstock("run", *options, "--report-to", out, sys.executable, "-c", script)
        return json.loads(out.read_text()), shown.stderr

    return run


def test_calls_bytes_and_time_are_summed_by_file_and_path(report):
    first = {"mapped": counts(2, 4 * MIB, 1000), "metadata": counts(9, 900, 90)}
    second = {"mapped": counts(1, 2 * MIB, 500)}
    result, _ = report(
        {
            11: [opened(1, "a.h5"), closed(1, "a.h5", read=first)],
            12: [
                opened(1, "a.h5"),
                opened(2, "b.h5"),
                closed(1, "a.h5", read=second),
                closed(2, "b.h5", write=second, copies=counts(3, 30, 300)),
            ],
        }
    )
    flows = {(flow["file"], flow["operation"], flow["path"]): flow for flow in result["flows"]}
    assert set(flows) == {
        ("a.h5", "read", "mapped"),
        ("a.h5", "read", "metadata"),
        ("b.h5", "write", "mapped"),
        ("b.h5", "copy", "between memories"),
    }
    found = flows["a.h5", "read", "mapped"]
    assert (found["calls"], found["bytes"], found["ns"]) == (3, 6 * MIB, 1500)
    assert result["status"] == 0
    assert result["command"][0] == sys.executable
    assert [process["pid"] for process in result["processes"]] == [11, 12]


def test_table_has_a_row_for_each_path_with_its_rate(report):
    read = {"staged_direct": counts(8, 2 * 10**9, 10**9)}
    _, shown = report({11: [opened(1, "a.h5"), closed(1, "a.h5", read=read)]}, "--report")
    row = next(line for line in shown.splitlines() if "│" in line and "staged_direct" in line)
    for cell in ("a.h5", "read", "8", "1.9 GiB", "1,000.00 ms", "2 GB/s"):
        assert cell in row
    assert "1 process(es)" in shown


def test_a_file_that_was_not_closed_is_named(report):
    result, shown = report({11: [opened(1, "whole.h5"), opened(2, "lost.h5")]}, "--report")
    assert any("lost.h5" in note and "not closed" in note for note in result["notes"])
    assert "lost.h5" in shown


def test_files_of_a_program_that_the_process_became_are_apart(report):
    result, _ = report({11: [opened(1, "before.h5"), opened(1, "after.h5"), closed(1, "after.h5")]})
    lost = [event["path"] for event in result["processes"][0]["lost"]]
    assert lost == ["before.h5"]


def test_a_line_that_was_cut_short_is_reported(report):
    result, _ = report({11: [opened(1, "a.h5"), closed(1, "a.h5"), '{"event":"ope']})
    assert result["processes"][0]["damaged"] == 1
    assert any("11" in note and "malformed" in note for note in result["notes"])


def test_notes_of_the_driver_are_shown_once(report):
    account = [opened(1, "a.h5"), closed(1, "a.h5", notes=["no stripes"])]
    _, shown = report({11: account, 12: account}, "--report")
    assert shown.count("no stripes") == 1


@pytest.mark.parametrize(
    ("paths", "mode"),
    [
        ({}, "POSIX"),
        ({"metadata": 10, "host_buffered": 999}, "POSIX"),
        ({"staged_buffered": 5, "staged_direct": 5, "mapped": 9, "host_buffered": 99}, "STAGED"),
        ({"mapped": 10, "staged_direct": 9}, "MAPPED"),
        ({"gds_p2p": 6, "gds_nvfs": 5, "gds_posix": 10}, "GDS"),
        ({"gds_posix": 1}, "GDS (compatibility mode)"),
        ({"gds_unproven": 1}, "GDS (compatibility mode)"),
        ({"pageable": 6, "pinned": 6, "mapped": 10}, "POSIX"),
    ],
)
def test_the_mode_is_the_way_of_most_gpu_bytes(report, paths, mode):
    read = {path: counts(1, size, 1) for path, size in paths.items()}
    _, shown = report({11: [opened(1, "a.h5"), closed(1, "a.h5", read=read)]}, "--verbose")
    assert shown == f"IO MODE : {mode}\n"


def test_each_process_with_files_has_a_line_with_its_mode(report):
    accounts = {pid: [opened(1, "a.h5"), closed(1, "a.h5")] for pid in (11, 12, 13)}
    _, shown = report(accounts, "--verbose")
    assert shown == "IO MODE : POSIX\n" * 3


def test_a_file_that_a_child_got_by_fork_is_not_counted_twice(penstock, tmp_path):
    name, out = str(tmp_path / "a.h5"), tmp_path / "report.json"
    script = (
        "import h5py, numpy, os\n"
        f"file = h5py.File({name!r}, 'w'); file['x'] = numpy.ones(125); file.flush()\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "file.close()\n"
    )
    penstock("run", "--report-to", out, sys.executable, "-c", script)
    result = json.loads(out.read_text())
    written = [
        f for f in result["flows"] if (f["operation"], f["path"]) == ("write", "host_buffered")
    ]
    assert [flow["bytes"] for flow in written] == [1000]
    assert any("fork" in note for note in result["notes"])


PROGRAM = """
    import multiprocessing, sys
    import h5py, numpy

    def write(name):
        with h5py.File(name, "w") as file:
            file["x"] = numpy.arange(1 << 18)
        with h5py.File(name) as file:
            assert (file["x"][::3] == numpy.arange(0, 1 << 18, 3)).all()

    if __name__ == "__main__":
        others = [multiprocessing.get_context("spawn").Process(target=write, args=[name])
                  for name in sys.argv[1:]]
        for other in others: other.start()
        for other in others: other.join()
        sys.exit(sum(other.exitcode for other in others))
"""


def test_a_program_of_several_processes_is_accounted_for(penstock, tmp_path):
    program, out = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text(textwrap.dedent(PROGRAM))
    names = [str(tmp_path / name) for name in ("one.h5", "two.h5")]
    shown = penstock("run", "--report", "--report-to", out, sys.executable, program, *names)
    result = json.loads(out.read_text())
    assert len(result["processes"]) == 2
    for name in names:
        flows = {(f["operation"], f["path"]): f for f in result["flows"] if f["file"] == name}
        assert flows["write", "host_buffered"]["bytes"] == 8 << 18
        assert flows["read", "host_buffered"]["bytes"] > 0
        assert flows["write", "metadata"]["calls"] > 0
    assert result["notes"] == []
    assert "host_buffered" in shown.stderr


def test_a_report_that_cannot_be_written_is_an_error_before_anything_runs(penstock, tmp_path):
    out = tmp_path / "missing" / "report.json"
    shown = penstock("run", "--report-to", out, "echo", "ran", status=1)
    assert str(out) in shown.stderr
    assert shown.stdout == ""


def test_a_file_lost_to_a_crash_is_named(penstock, tmp_path):
    name = str(tmp_path / "lost.h5")
    script = f"import h5py, os; f = h5py.File({name!r}, 'w'); f['x'] = range(9); os._exit(3)"
    shown = penstock("run", "--report", sys.executable, "-c", script, status=3)
    assert "lost.h5" in shown.stderr
    assert "not closed" in shown.stderr


def test_a_report_never_replaces_a_file_that_the_command_names(penstock, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("print(1)")
    penstock("run", "--report-to", program, sys.executable, program, status=2)
    assert program.read_text() == "print(1)"
