"""Tables on terminals of any width."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from tests.machines import Machine

from penstock.cli import output, report, tune
from penstock.tuning.profiles import Slot
from penstock.tuning.rows import ROWS
from penstock.tuning.search import Duel, Outcome, Trial
from penstock.tuning.tuner import Found


@pytest.fixture(params=[1, 20, 79, 200])
def terminal(request, monkeypatch):
    """A terminal with a number of columns."""
    monkeypatch.setattr(output, "results", Console(width=request.param))


@pytest.mark.usefixtures("terminal")
def test_no_word_of_the_report_is_left_out(tmp_path, capsys):
    lines = Machine(tmp_path).lines()
    report._show(lines, "title")
    shown = capsys.readouterr().out
    assert "…" not in shown
    for line in lines:
        for word in line.found.split():
            assert word[:8] in shown


@pytest.mark.usefixtures("terminal")
def test_no_word_of_the_tuners_tables_is_left_out(capsys):
    best = (("direct", "yes"), ("io", "uring"), ("queue_depth", "16"), ("threads", "12"))
    outcome = Outcome(best, Duel(91.5e9, 98.4e9, 0.0754, 0.004, 20), [Trial(best)] * 163)
    output.print_table(tune._table([Found(row, outcome) for row in ROWS], "host memory", 60))
    row = {"operation": "read", "size": "large", "place": "storage", "default_gbps": 91.5123}
    slot = Slot(-1, None, Path("/folder/ext4-cecd2e11b0b12457-host.json"), "used", "")
    output.print_table(tune._shown(slot, {"made": "today", "rows": [row]}))
    shown = capsys.readouterr().out
    assert "…" not in shown
    for word in ("large read, not cached", "+7.5%", "threads", "91.5123", "storage"):
        assert word in shown


@pytest.mark.parametrize("command", [["verify"], ["bench", "vfd"]])
def test_the_paragraphs_of_a_help_text_have_the_width_of_the_terminal(penstock, command):
    shown = penstock(*command, "--help", COLUMNS="300").stdout
    lines = [line.strip() for line in shown.partition("╭")[0].splitlines()]
    assert all(not (above and below) for above, below in pairwise(lines)), shown
