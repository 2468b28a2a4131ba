"""Tables on terminals of any width."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from tests.machines import Machine
from typer.main import get_command

from penstock.cli import app, output, report, tune
from penstock.tuning.profiles import Slot
from penstock.tuning.race import Duel, Outcome, Trial
from penstock.tuning.rows import ROWS
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


@pytest.mark.parametrize("columns", ["40", "80"])
@pytest.mark.parametrize("command", [[], ["run"], ["bench"], ["bench", "vfd"]])
def test_the_help_has_each_name_at_any_width(penstock, command, columns):
    made = get_command(app)
    for name in command:
        made = made.get_command(None, name)
    shown = penstock(*command, "--help", COLUMNS=columns).stdout
    options = [name for parameter in made.params for name in parameter.opts]
    assert [name for name in options if name not in shown] == []
    assert "…" not in shown


@pytest.mark.parametrize("command", [[], ["bench"]])
def test_the_help_has_the_whole_summary_of_each_command(penstock, command):
    shown = " ".join(penstock(*command, "--help", COLUMNS="80").stdout.split())
    made = get_command(app)
    for name in command:
        made = made.get_command(None, name)
    for name in made.list_commands(None):
        summary = made.get_command(None, name).help.partition("\n\n")[0]
        assert f"{name} {' '.join(summary.split())}" in shown
