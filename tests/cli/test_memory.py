"""The memory that a command can still have, and the refusal of what does not fit into it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from penstock.cli import app, memory

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path):
    """Return a function that describes a machine with 1000 MiB left, and returns what is left."""

    def left(groups, files):
        for name, text in ({"proc/self/cgroup": groups} | files).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "proc/meminfo").write_text(f"MemFree: 1 kB\nMemAvailable: {1000 << 10} kB\n")
        return memory.left(tmp_path / "proc", tmp_path / "groups") // MIB

    return left


def second(folder, limit, used, reclaimable):
    return {
        f"groups/{folder}/memory.max": f"{limit}\n",
        f"groups/{folder}/memory.current": f"{used * MIB}\n",
        f"groups/{folder}/memory.stat": f"anon 5\ninactive_file {reclaimable * MIB}\n",
    }


def test_the_machine_is_the_limit_without_another(machine):
    assert machine("", {}) == 1000
    assert machine("0::/\n", {}) == 1000
    assert machine("0::/a\n", second("a", "max", 100, 0)) == 1000


def test_a_group_and_those_above_it_are_limits(machine):
    assert machine("0::/a/b\n", second("a/b", 300 * MIB, 100, 10)) == 210
    assert machine("0::/a/b\n", second("a", 200 * MIB, 150, 20)) == 70


def test_the_root_is_the_group_of_a_container(machine):
    files = {
        "groups/memory/memory.limit_in_bytes": f"{100 * MIB}\n",
        "groups/memory/memory.usage_in_bytes": f"{60 * MIB}\n",
        "groups/memory/memory.stat": f"total_inactive_file {5 * MIB}\n",
    }
    assert machine("4:cpu,memory:/docker/of-the-host\n1:pids:/\n0::/\n", files) == 45


def test_files_that_would_not_fit_into_memory_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "left", lambda: 100 * MIB)
    done = CliRunner().invoke(app, ["demo", "--size", "128MiB", "--dir", str(tmp_path)])
    assert done.exit_code == 2
    said = " ".join(done.output.replace("│", " ").split())
    assert "128.0 MiB of files need as much memory, and 100.0 MiB are left" in said
    assert list(tmp_path.iterdir()) == []
