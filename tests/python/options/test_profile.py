"""The tuned profile as a level of options: what it decides, what it leaves alone, what it says.

A process reads a profile once, so each case has a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NBYTES = 64 << 20
READ = f"""
import json, sys
import penstock as ps
options, device, path = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
call = options.pop("call", {{}})
with open(path, "rb") as file:
    file.read()  # so that it is cached, whatever the machine has done meanwhile
with ps.options(**options):
    array = ps.load(path, dtype="uint8", shape=({NBYTES},), device=device, **call)
report = ps.last_report()
print(json.dumps([report.tuned, report.threads, report.block, report.note]))
"""


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A file, in the page cache."""
    path = tmp_path_factory.mktemp("profile") / "data.bin"
    path.write_bytes(os.urandom(1 << 20) * (NBYTES >> 20))
    path.read_bytes()
    return path


class Kept:
    """A profile in a folder of its own, and processes that use it."""

    def __init__(self, folder, path, device):
        self.folder = folder
        self.path = path
        self.device = device
        self.environment = {"PENSTOCK_PROFILE_DIR": str(folder), "PENSTOCK_PROFILE": "on"}
        self.slot = self._slot()

    def run(self, *command, **environment):
        done = subprocess.run(
            [sys.executable, "-c", *command],
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | self.environment | environment,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # the library prints nothing
        return json.loads(done.stdout)

    def _describe(self):
        code = "import json, sys, penstock; print(json.dumps(penstock.describe(sys.argv[1])))"
        return self.run(code, str(self.path))["tuning"]

    def _slot(self):
        self.tuning = self._describe()
        ordinal = -1 if self.device == "cpu" else 0
        return next(slot for slot in self.tuning["profiles"] if slot["device"] == ordinal)

    def keep(self, options, **changes):
        profile = {
            "format": 1,
            "made": "2026-01-02T03:04:05Z",
            "machine": self.tuning["machine"],
            "gpu": self.slot["gpu"],
            "rows": [{"operation": "read", "size": "large", "place": "cache", "options": options}],
        }
        with open(self.slot["path"], "w") as file:
            json.dump(profile | changes, file)

    def read(self, options=None, **environment):
        """The options from the profile, threads, block and note of a read."""
        words = (READ, json.dumps(options or {}), self.device, str(self.path))
        return self.run(*words, **environment)

    def state(self):
        slot = self._slot()
        return slot["state"], slot["reason"]


@pytest.fixture
def kept(tmp_path, place, device):
    return Kept(tmp_path, place, device)


def test_a_profile_sets_only_options_that_are_not_set_elsewhere(kept):
    kept.keep("threads=3;block=1MiB")
    tuned, threads, block, note = kept.read()
    assert (tuned, block, note) == ("threads=3;block=1MiB", 1 << 20, "")
    assert threads <= 3  # a worker that comes late finds nothing to do
    assert kept.state() == ("used", None)


@pytest.mark.parametrize(
    "inner",
    [
        {"options": {"call": {"threads": 2}}},
        {"options": {"threads": 2}},
        {"PENSTOCK_OPTIONS": "threads=2"},
    ],
    ids=["call", "block", "environment"],
)
def test_each_inner_level_wins_key_by_key(kept, inner):
    kept.keep("threads=3;block=1MiB")
    tuned, threads, block, note = kept.read(**inner)
    assert (tuned, block, note) == ("block=1MiB", 1 << 20, "")
    assert threads <= 2


def test_a_profile_of_another_kind_of_transfer_decides_nothing(kept):
    for row in (
        {"operation": "write", "size": "large", "place": "cache"},
        {"operation": "read", "size": "small", "place": "cache"},
        {"operation": "read", "size": "large", "place": "storage"},
    ):
        kept.keep("", rows=[{**row, "options": "threads=3"}])
        assert kept.read()[0] == ""


def test_a_profile_that_is_turned_off_is_not_looked_for(kept):
    kept.keep("threads=3")
    tuned, _, _, note = kept.read(PENSTOCK_PROFILE="off")
    assert (tuned, note) == ("", "")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"machine": {"cores": 4096, "page_size": 4096}}, "4096"),
        ({"format": 99}, "format is 99"),
        ({"rows": [{"operation": "read"}]}, "damaged"),
        ({"gpu": {"name": "another", "count": 1}}, "GPU"),
    ],
    ids=["machine", "format", "damaged", "gpu"],
)
def test_a_profile_that_does_not_fit_is_ignored_with_a_word(kept, changes, word):
    kept.keep("threads=3", **changes)
    tuned, _, _, note = kept.read()
    assert tuned == ""
    assert "not used" in note
    assert word in note
    state, reason = kept.state()
    assert state == "ignored"
    assert word in reason


def test_a_profile_that_is_no_json_is_ignored_with_a_word(kept):
    with open(kept.slot["path"], "w") as file:
        file.write("{")
    tuned, _, _, note = kept.read()
    assert tuned == ""
    assert "damaged" in note


def test_a_profile_lies_in_the_configuration_folder_if_no_other_is_named(kept, tmp_path):
    del kept.environment["PENSTOCK_PROFILE_DIR"]
    home = {"HOME": str(tmp_path / "home")}
    named = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), **home}
    folder = "import json, penstock; print(json.dumps(penstock.describe()['tuning']['folder']))"
    assert kept.run(folder, **named) == str(tmp_path / "xdg" / "penstock")
    relative = {"XDG_CONFIG_HOME": "xdg", **home}
    assert kept.run(folder, **relative) == str(tmp_path / "home" / ".config" / "penstock")


def test_what_a_profile_says_of_cufile_and_mapped_pages_leads_only_where_they_serve(kept):
    if kept.device == "cpu":
        kept.keep("route=mapped")
        assert "damaged" in kept.read()[3]  # host memory has one route
        return
    kept.keep("route=mapped;block=4MiB")
    assert kept.read()[0] == "route=mapped;block=4MiB"
    kept.keep("route=gds;block=4MiB")
    absent = {"PENSTOCK_CUFILE_LIBRARY": "/absent/libcufile.so"}
    tuned, *_ = kept.read(**absent)
    assert tuned == ""
