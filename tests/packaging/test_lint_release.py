"""scripts/lint-release checks what is there, and says what is not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "lint-release"


@pytest.fixture
def tree(tmp_path):
    """A tree without git, whose checkers print their arguments."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    folders = dict(re.findall(r"^(\w+)=\$tools/(\S+)$", SCRIPT.read_text(), re.M))
    tools = tmp_path / "target" / "lint-release"
    bin_folder = tools / folders["python"] / "bin"
    checkers = [bin_folder / "python", bin_folder / "cffconvert"]
    for path in (*checkers, tools / folders["actionlint"] / "actionlint"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#!/bin/sh\necho "$0 $@"\n')
        path.chmod(0o755)
    (bin_folder.parent / "installed").touch()
    return tmp_path


def output_of(tree):
    command = [tree / "scripts" / "lint-release"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_source_distribution_has_no_workflows_to_check(tree):
    assert "only a git checkout has them" in output_of(tree)


def test_workflows_are_checked_without_git(tree):
    (tree / ".github" / "workflows").mkdir(parents=True)
    (tree / ".github" / "workflows" / "ci.yml").touch()
    assert "actionlint .github/workflows/ci.yml" in output_of(tree)
