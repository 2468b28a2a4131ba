"""The recipes for conda and Spack need what the package needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
CONDA = ROOT / "packaging/conda/recipe.yaml"
SPACK = ROOT / "packaging/spack/package.py"


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def workspace():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]


def requirements(words):
    """The names with their versions as tuples of numbers, of pip, conda or Spack."""
    found = (re.match(r"([a-z0-9-]+?)(?:\[.*\])? ?(?:>=|@|$)([\d.]*)", word) for word in words)
    return {it[1].removeprefix("py-"): numbers(it[2]) for it in found}


def numbers(version):
    """Without zeros at the end: 13.0 is 13."""
    parts = [int(part) for part in version.strip(".").split(".") if part]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def wanted(project):
    return requirements(project["project"]["dependencies"]), requirements(
        project["build-system"]["requires"]
    )


def test_conda_has_the_requirements(project):
    run, build = wanted(project)
    recipe = yaml.safe_load(re.sub(r"\$\{\{.*?\}\}", "x", CONDA.read_text()))["requirements"]
    python = {"python": numbers(project["project"]["requires-python"].removeprefix(">="))}
    assert requirements(recipe["run"]) == run | python
    assert requirements(recipe["host"]) == build | python | {"pip": (), "python-abi3": ()}


def test_spack_has_the_requirements(project, workspace):
    run, build = wanted(project)
    words = re.findall(r'^ +depends_on\("([^"]+)"(?:, type="build")?\)$', SPACK.read_text(), re.M)
    python = {"python": numbers(project["project"]["requires-python"].removeprefix(">="))}
    rust = {"rust": numbers(workspace["rust-version"])}
    of_spack = {"c": (), "cxx": (), "hdf5": (1, 14)}
    assert requirements(words) == run | build | python | rust | of_spack


@pytest.mark.parametrize(("file", "name"), [(CONDA, "run_constraints"), (SPACK, "variants")])
def test_optional_packages_have_the_versions_of_the_extras(project, file, name):
    extras = project["project"]["optional-dependencies"]
    wanted = requirements(word for extra in extras if extra != "test" for word in extras[extra])
    if file == CONDA:
        recipe = yaml.safe_load(re.sub(r"\$\{\{.*?\}\}", "x", file.read_text()))
        found = requirements(recipe["requirements"][name])
    else:
        found = requirements(re.findall(r'depends_on\("(\S+?)[ "].*, when=', file.read_text()))
    names = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
    found = {names.get(name, name): version for name, version in found.items()}
    assert found
    assert found.items() <= wanted.items()


def test_conda_makes_the_command_of_the_package(project):
    command = project["project"]["scripts"]["penstock"]
    assert f"- penstock = {command}\n" in CONDA.read_text()
