from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.prepared import Prepared


class Command:
    """Runs `penstock ...` in a process of its own."""

    words = (sys.executable, "-m", "penstock_command")
    """The command for tests that start it themselves, as a shell does."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def __call__(
        self, *arguments: object, status: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = self._run(list(map(str, arguments)), os.environ | environment)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def _run(
        self, arguments: list[str], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        if self._prepared.can_run_in(environment):
            return self._prepared.run(arguments, environment, timeout=240)
        return subprocess.run(
            [*self.words, *arguments], capture_output=True, text=True, timeout=240, env=environment
        )

    def json(self, *arguments: object) -> Any:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.hookimpl(tryfirst=True)  # before items are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "on_gpu" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.either)


@pytest.fixture(scope="session")
def penstock() -> Iterator[Command]:
    with closing(Prepared()) as prepared:
        yield Command(prepared)


@pytest.fixture(scope="session")
def on_gpu(penstock: Command) -> bool:
    return bool(penstock.json("report")["cuda"]["devices"])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a benchmark; it is as empty afterwards as before."""
    made = tmp_path / "measured"
    made.mkdir()
    yield made
    assert list(made.iterdir()) == []
