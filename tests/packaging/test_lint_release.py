"""scripts/lint-release says which checkers it could not install."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/lint-release"


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.fixture
def tree(tmp_path):
    """A tree without Go, in which the packages of Python are installed and find nothing wrong."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    folder = re.search(r"^python=\$tools/(.+)$", SCRIPT.read_text(), re.M)[1]
    for name in ("installed", "bin/cffconvert", "bin/python"):
        program(tmp_path / "target/lint-release" / folder / name)
    program(tmp_path / ".github/workflows/ci.yml")
    for name in ("bash", "dirname"):
        (tmp_path / "path").mkdir(exist_ok=True)
        (tmp_path / "path" / name).symlink_to(shutil.which(name))
    return tmp_path


def lint(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [tree / "scripts/lint-release", *words]
    return subprocess.run(command, env={"PATH": str(tree / "path")}, capture_output=True, text=True)


@pytest.mark.parametrize(("words", "status"), [([], 0), (["--strict"], 1)])
def test_a_check_that_is_skipped_is_counted_and_an_error_if_strict(tree, words, status):
    done = lint(tree, *words)
    assert done.returncode == status, done.stderr
    assert "2 of 3 checks passed; 1 SKIPPED" in done.stderr


def test_all_checks_pass(tree):
    folder = re.search(r"^actionlint=\$tools/(.+)$", SCRIPT.read_text(), re.M)[1]
    program(tree / "target/lint-release" / folder / "actionlint")
    done = lint(tree, "--strict")
    assert done.returncode == 0, done.stderr
    assert "3 of 3 checks passed" in done.stdout


def test_a_source_distribution_has_no_workflows_to_check(tree):
    shutil.rmtree(tree / ".github")
    assert "1 SKIPPED: the workflows, which only a git checkout has" in lint(tree).stderr
