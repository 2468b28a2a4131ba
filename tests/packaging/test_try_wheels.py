"""`scripts/try-wheels` selects its trials by name, and reports their steps."""

from __future__ import annotations

import platform
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def script():
    loader = SourceFileLoader("try_wheels", str(Path(__file__).parents[2] / "scripts/try-wheels"))
    spec = spec_from_loader(loader.name, loader)
    module = sys.modules[loader.name] = module_from_spec(spec)  # dataclasses look for it there
    loader.exec_module(module)
    return module


def record(script, *failed: str, pages: tuple[int, ...] = (4096,), **changes):
    def steps(*names: str):
        return [{"name": name, "ok": name not in failed, "seconds": len(name)} for name in names]

    runs = [{"page_size": page, "steps": steps("penstock demo", "smoke tests")} for page in pages]
    return {
        "release": "trixie",
        "architecture": "x86_64",
        "emulated": False,
        "glibc": "2.41",
        "python": "3.13.5",
        "steps": steps("venv", "pip install", "CMake"),
        "runs": runs,
    } | changes


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("trixie", True),
        ("trixie-arm64", True),
        ("trixie-arm6", False),
        ("trixie-amd64", False),
        ("sid", False),
    ],
)
def test_a_trial_is_selected_by_the_parts_of_its_name(script, name, is_named):
    assert script.Trial("trixie", "arm64").is_named([name]) == is_named


def test_the_table_has_the_seconds_of_each_step(script):
    row = script.table([record(script)]).splitlines()[-1]
    assert row == "| trixie | 2.41 | 3.13.5 | x86_64 | 4 KiB | 11 s | 13 s | 11 s | 5 s | 24 s |"


def test_the_table_has_a_line_for_each_page_size(script):
    rows = script.table([record(script, pages=(4096, 65536))]).splitlines()[2:]
    assert [row.split("|")[5].strip() for row in rows] == ["4 KiB", "64 KiB"]


def test_a_step_that_failed_has_no_time_in_the_table(script):
    row = script.table([record(script, "penstock demo")]).splitlines()[-1]
    assert row == (
        "| trixie | 2.41 | 3.13.5 | x86_64 | 4 KiB | 11 s | **failed** | 11 s | 5 s |  |"
    )


def test_a_trial_that_cannot_be_made_has_its_reason_in_the_table(script):
    lines = script.table(
        [record(script, pages=(), steps=[], not_possible="no Python")]
    ).splitlines()
    assert "| not possible: no Python |" in lines[-1]
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ({}, 0),
        ({"failed": "CMake"}, 1),
        ({"failed": "smoke tests"}, 1),
        ({"pages": (), "steps": [], "not_possible": "no Python"}, 1),
        ({"runs": [{"page_size": 65536, "steps": [], "not_possible": "no such pages"}]}, 1),
    ],
    ids=["passed", "failed step", "failed run", "no trial", "no run"],
)
def test_the_status_is_0_only_if_all_was_tried_and_passed(
    script, tmp_path, monkeypatch, found, status
):
    changes = dict(found)
    failed = [changes.pop("failed")] if "failed" in found else []
    monkeypatch.setattr(script, "attempt", lambda *_: record(script, *failed, **changes))
    assert run(script, tmp_path, monkeypatch) == status


@pytest.mark.parametrize(
    ("other", "status", "counts"),
    [
        ((), 0, "1 passed, 0 failed, 1 skipped"),
        (("CMake",), 1, "0 passed, 1 failed, 1 skipped"),
        (None, 1, "0 passed, 0 failed, 2 skipped"),
    ],
    ids=["passed", "failed", "all skipped"],
)
def test_a_release_that_is_not_served_is_skipped_and_counted(
    script, tmp_path, monkeypatch, capsys, other, status, counts
):
    skipped = record(script, pages=(), steps=[], skipped="not served")
    records = [skipped, skipped if other is None else record(script, *other)]
    monkeypatch.setattr(script, "attempt", lambda *_: records.pop())
    (here,) = (name for name, known in script.MACHINES.items() if known == platform.machine())
    more = ["--only", f"buster-{here}"]
    assert run(script, tmp_path, monkeypatch, more=more) == status
    found = capsys.readouterr()
    assert counts in found.out
    assert "skipped: not served" in found.out
    assert f"buster-{here}: begins" in found.err


def test_a_release_that_the_mirror_does_not_serve_is_asked_for_once(script, tmp_path, monkeypatch):
    said = "E: Failed getting release file http://mirror/dists/buster/Release"
    calls = []

    def debootstrap(command, **_):
        calls.append(command)
        return script.subprocess.CompletedProcess(command, 1, "", said)

    monkeypatch.setattr(script.subprocess, "run", debootstrap)
    chroots = script.Chroots(tmp_path)
    for _ in range(2):
        with pytest.raises(script.SkippedError, match="does not serve"):
            chroots.made("buster", "amd64")
    assert len(calls) == 1


def test_a_missing_wheel_is_an_error(script, tmp_path, monkeypatch, capsys):
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
    assert run(script, tmp_path, monkeypatch, machine=other) == 1
    assert f"not possible: no wheel for {platform.machine()}" in capsys.readouterr().out


def run(script, tmp_path, monkeypatch, machine="x86_64", more=()) -> int:
    """The status of a run with a wheel for a machine, in the trial on this one and in more."""
    (tmp_path / f"penstock-0.1.0-cp310-abi3-manylinux_2_28_{machine}.whl").touch()
    (here,) = (name for name, known in script.MACHINES.items() if known == platform.machine())
    words = [str(tmp_path), "--only", f"trixie-{here}", "--chroots", str(tmp_path / "chroots")]
    monkeypatch.setattr(script.os, "geteuid", lambda: 0)
    monkeypatch.setattr(script.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["try-wheels", *words, *more])
    return script.main()


def test_a_folder_is_removed_with_its_files(script, tmp_path):
    (tmp_path / "trial/upper").mkdir(parents=True)
    script.remove(tmp_path / "trial")
    assert not (tmp_path / "trial").exists()


@pytest.mark.parametrize("options", [[], ["--only", "zzz"]], ids=["no wheel", "no trial"])
def test_a_run_that_tries_nothing_is_an_error(script, tmp_path, monkeypatch, options):
    monkeypatch.setattr(script.os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["try-wheels", str(tmp_path), *options])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
