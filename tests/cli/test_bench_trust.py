"""`penstock bench`: what a reader of its figures relies on, whatever the options."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from penstock.bench.measure import Contestant, WrongBytesError, race
from penstock.cli import app


@pytest.fixture
def folder(tmp_path):
    """What is measured; it is as empty afterwards as before."""
    made = tmp_path / "measured"
    made.mkdir()
    yield made
    assert list(made.iterdir()) == []


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
        "any", "", 1, lambda: done.append("run"), poison=lambda: done.append("poison"), check=wrong
    )
    (row,) = race([contestant], "GB/s", rounds=2, warm_up=warm_up)
    assert row.is_wrong
    assert done == ["poison", "run", "check"]


MEMORY = ["-t", "64KiB", "-b", "128KiB", "--memory", "mmap", "-a", "POSIX", "--open", "buffered"]


@pytest.mark.parametrize("options", [(), ("--no-verify",), ("--no-warm-up",)])
def test_memory_counts_the_timed_runs_and_no_warm_up(bench, monkeypatch, options):
    from penstock.bench import cells

    kept = {}
    keep = cells.Seen.keep

    def spy(seen, count):
        before = len(seen.moving)
        keep(seen, count)
        kept[seen.cell] = before, len(seen.moving)

    monkeypatch.setattr(cells.Seen, "keep", spy)
    bench("memory", *MEMORY, "-w", "-i", "3", "--peers", "none", *options)
    runs = 3 if "--no-warm-up" in options else 4
    assert list(kept.values()) == [(runs, 3)]
