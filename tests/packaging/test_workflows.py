"""A release is published only if its tag, its tests and its wheels are in order."""

from __future__ import annotations

from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

FOLDER = Path(__file__).parents[2] / ".github/workflows"
if not FOLDER.exists():
    pytest.skip("a source distribution has no workflows", allow_module_level=True)


def jobs(name):
    return yaml.safe_load((FOLDER / name).read_text())["jobs"]


def commands(job):
    return "\n".join(step.get("run", "") for step in job["steps"])


def needed(known, name):
    """The jobs without which a job does not begin."""
    needs = known[name].get("needs", [])
    needs = {needs} if isinstance(needs, str) else set(needs)
    return needs.union(*(needed(known, other) for other in needs))


def test_publishing_needs_the_checks_of_the_tag_and_all_of_ci():
    release = jobs("release.yml")
    before = needed(release, "publish")
    assert "./.github/workflows/ci.yml" in {release[name].get("uses") for name in before}
    check = '--only-versions --tag "$GITHUB_REF_NAME"'
    assert any(check in commands(release[name]) for name in before if "steps" in release[name])


def test_ci_tests_lints_and_builds_wheels():
    ci = jobs("ci.yml")
    assert ".ci/run" in commands(ci["test"])
    assert "lint-release --strict" in commands(ci["release-files"])
    assert ci["wheels"]["uses"] == "./.github/workflows/wheels.yml"


@pytest.mark.parametrize("name", ["try", "try-oldest"])
def test_built_wheels_run_the_smoke_tests_on_both_architectures(name):
    job = jobs("wheels.yml")[name]
    assert needed(jobs("wheels.yml"), name) == {"build"}
    assert "pytest" in commands(job)
    assert "tests/packaging/test_smoke.py" in commands(job)
    assert job["strategy"]["matrix"]["runner"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
