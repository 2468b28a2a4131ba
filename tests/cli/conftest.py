from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Command:
    """Runs `penstock ...` in a process of its own, as a shell does."""

    words = (sys.executable, "-m", "penstock.cli")

    def __call__(
        self, *arguments: object, status: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.words, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=240,
            env=os.environ | environment,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def json(self, *arguments: object) -> Any:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.hookimpl(tryfirst=True)  # before items are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "on_gpu" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.either)


@pytest.fixture(scope="session")
def penstock() -> Command:
    return Command()


@pytest.fixture(scope="session")
def on_gpu(penstock: Command) -> bool:
    return bool(penstock.json("report")["cuda"]["devices"])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """What is measured; it is as empty afterwards as before."""
    made = tmp_path / "measured"
    made.mkdir()
    yield made
    assert list(made.iterdir()) == []
