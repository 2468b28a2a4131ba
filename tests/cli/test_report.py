"""`penstock report` on the machine that runs the tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import h5py
import pytest


@pytest.fixture(scope="module")
def facts(penstock, tmp_path_factory):
    return penstock.json("report", tmp_path_factory.mktemp("folder"))


def test_cores_and_page_size_are_those_of_the_system(facts):
    assert 1 <= facts["cpu"]["cores"] <= (os.cpu_count() or 1)
    assert facts["memory"]["page_size"] == os.sysconf("SC_PAGE_SIZE")


def test_file_system_of_the_path_is_described(facts, tmp_path_factory):
    system = facts["file_system"]
    assert system["path"].startswith(str(tmp_path_factory.getbasetemp()))
    assert int(system["magic"], 16) > 0
    assert system["type"]
    if system["direct_io"] and system["offset_alignment"] is not None:
        alignment = system["offset_alignment"]
        assert alignment > 0
        assert alignment & (alignment - 1) == 0


def test_no_path_means_no_file_system(penstock):
    assert penstock.json("report")["file_system"] is None


def test_h5py_and_its_hdf5_are_named(facts):
    assert facts["python"]["h5py"] == h5py.version.version
    assert facts["python"]["hdf5"] == h5py.version.hdf5_version


def test_what_is_missing_comes_with_a_reason(facts):
    for library in ("cuda", "cufile", "io_uring"):
        assert facts[library]["available"] or facts[library]["reason"]
    assert (
        not facts["cufile"]["available"] or facts["cufile"]["starts"] or facts["cufile"]["reason"]
    )


def test_table_says_what_each_fact_means_and_what_to_do(penstock, tmp_path):
    shown = penstock("report", tmp_path).stdout
    for what in ("CPU", "io_uring", "CUDA driver", "cuFile", "File system", "Direct I/O", "h5py"):
        assert what in shown
    assert "What this means, and what to do" in shown
    assert re.search(r"\d+ OK, \d+ WARN, \d+ NO, \d+ unknown", shown)


def test_checks_are_lines_with_a_status_and_a_remedy(facts):
    assert {check["section"] for check in facts["checks"]} >= {"GPU", "Host", "Path", "HDF5"}
    for check in facts["checks"]:
        assert check["status"] in ("OK", "WARN", "NO", "unknown")
        assert check["found"]
        assert check["status"] == "OK" or check["remedy"]


def test_plugins_load_into_h5pys_hdf5(facts):
    (library,) = [found for found in facts["hdf5"] if found["found"].startswith("h5py")]
    assert library["driver"]["loads"]
    assert library["connector"]["loads"]


def test_path_that_does_not_exist_is_one_line_and_status_2(penstock, tmp_path):
    done = penstock("report", tmp_path / "absent", status=2)
    assert done.stdout == ""
    assert done.stderr == f"penstock report: {tmp_path / 'absent'} does not exist\n"


def test_an_empty_path_is_not_the_working_folder(penstock):
    done = penstock("report", "", status=2)
    assert done.stderr == "penstock report: the path is empty\n"


def test_page_that_cannot_be_written_is_one_line_and_status_2(penstock, tmp_path):
    page = tmp_path / "absent" / "page.html"
    done = penstock("report", "--html", page, status=2)
    assert done.stderr == f"penstock report: {page} cannot be written: No such file or directory\n"


def test_page_that_cannot_be_finished_leaves_the_old_one(penstock, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    limited = ("sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *penstock.words)
    done = subprocess.run(
        [*limited, "report", "--html", page], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == f"penstock report: {page} cannot be written: File too large\n"
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_page_is_written_beside_json(penstock, tmp_path):
    done = penstock("report", tmp_path, "--html", tmp_path / "page.html", "--json")
    checks = json.loads(done.stdout)["checks"]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<tr id=") == len(checks)


def test_name_that_is_no_utf_8_is_shown_with_its_bytes(penstock, tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    shown = penstock("report", os.fsdecode(folder), "--html", tmp_path / "page.html")
    assert "Written" in shown.stderr
    assert "\\udcff" in (tmp_path / "page.html").read_text()
    assert "OK" in penstock("report", os.fsdecode(folder)).stdout


def test_name_with_brackets_and_colons_is_shown_as_it_is(penstock, tmp_path):
    folder = tmp_path / "[/b][red]:warning:"
    folder.mkdir(parents=True)
    assert "[/b][red]:warning:" in penstock("report", folder).stdout


def test_name_that_is_too_long_is_one_line_and_status_2(penstock):
    done = penstock("report", "n" * 300, status=2)
    assert done.stderr == f"penstock report: {'n' * 300}: File name too long\n"


def test_broken_cufile_json_is_a_line_and_no_failure(penstock, tmp_path):
    broken = tmp_path / "cufile.json"
    broken.write_text('{ "execution": }')
    done = penstock("report", "--json", CUFILE_ENV_PATH_JSON=str(broken))
    (line,) = [
        check
        for check in json.loads(done.stdout)["checks"]
        if (check["section"], check["name"]) == ("cufile.json", "File")
    ]
    assert line["status"] == "NO"
    assert "line 1, column 16" in line["found"]


def test_links_are_measured_where_there_are_gpus(penstock, on_gpu):
    facts = json.loads(penstock("report", "--measure", "--json").stdout)
    assert len(facts["link_rates"]) == len(facts["cuda"]["devices"])
    for rates in facts["link_rates"].values():
        assert rates["reason"] or min(rates["to_gpu"], rates["from_gpu"]) > 0
    shown = [check["name"] for check in facts["checks"]]
    assert ("cuda:0 link rate" in shown) is on_gpu


def test_nothing_heavy_is_imported(tmp_path):
    script = (
        "import sys; from penstock.cli import app\n"
        f"try: app(['report', {str(tmp_path)!r}])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'cupy', 'jax', 'deepspeed', 'kvikio'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_file_system_of_nothing_but_the_path_is_touched(penstock, tmp_path):
    (tmp_path / "file").write_bytes(b"data")
    penstock("report", tmp_path)
    penstock("report", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"data"


def test_a_page_never_replaces_the_file_of_the_report(penstock, tmp_path):
    path, other = tmp_path / "data.h5", tmp_path / "other"
    path.write_bytes(b"data")
    other.hardlink_to(path)
    for page in (path, other):
        assert "is an input" in penstock("report", path, "--html", page, status=2).stderr
    assert path.read_bytes() == b"data"
