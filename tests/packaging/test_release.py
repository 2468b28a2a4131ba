"""scripts/release makes the tag of a commit if all is in order, and says what is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import time
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = "0.1.0"
MODULE = "python/penstock/__init__.py"
TODAY = datetime.now(timezone.utc).date().isoformat()
FILES = {
    "CHANGELOG.md": f"# Changelog\n\n## {VERSION} - {TODAY}\n\n### Added\n\n- All.\n",
    "CITATION.cff": f"version: {VERSION}\ndate-released: '{TODAY}'\n",
    "Cargo.lock": f'[[package]]\nname = "penstock-capi"\nversion = "{VERSION}"\n',
    "Cargo.toml": f'[workspace.package]\nversion = "{VERSION}"\n',
    "crates/capi/include/penstock.h": "".join(
        f"#define PENSTOCK_VERSION_{part} {number}\n"
        for part, number in zip(("MAJOR", "MINOR", "PATCH"), VERSION.split("."), strict=True)
    ),
    "packaging/conda/recipe.yaml": f'context:\n  version: "{VERSION}"\n',
    "packaging/spack/package.py": f'    version("{VERSION}")\n',
    "Makefile": (
        "SECONDS := 60\ntest-long: export LONG_SECONDS ?= $(SECONDS)\ntest-long: export WHO :=\n"
    ),
    "scripts/lint-release": "#!/bin/sh\necho 3 of 3 checks passed.\n",
    MODULE: "answer = 42\n",
    ".gitignore": "/dist/\n/target/\n",
}
IN_WHEEL = {
    "crates/capi/include/penstock.h": "penstock/include/penstock.h",
    "crates/capi/include/penstock_hdf5.h": "penstock/include/penstock_hdf5.h",
    "packaging/libpenstock.so": "penstock/lib/libpenstock.so",
    "packaging/penstock-config.cmake": "penstock/lib/cmake/penstock/penstock-config.cmake",
}
FILES |= {name: "the same in the wheel\n" for name in IN_WHEEL if name not in FILES}
LONG = {"LONG_SECONDS": "60", "WHO": "", "MAKEFLAGS": " -j2 --jobserver-auth=3,4 -- LANES=2"}
"""What `make test-long` sets."""


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        for name, text in FILES.items():
            self.write(name, text)
        shutil.copy(ROOT / "scripts/release", self.path / "scripts")
        (self.path / "scripts/lint-release").chmod(0o755)
        (self.path / "link").symlink_to("packaging/spack/package.py")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words: str) -> str:
        names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
        environment = os.environ | dict.fromkeys(names, "test") | {"GIT_CONFIG_GLOBAL": "/dev/null"}
        return subprocess.run(
            ["git", *words],
            cwd=self.path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def commit(self) -> None:
        """Commit all files; the tests pass, and the wheels are made."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=all")
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.test()
        self.make_dist()

    def test(self, change=lambda: None, **environment: str) -> str:
        """Pass `make test-long`, while something may change; return what it says."""
        begun = self.release("--begin", "test-long", **environment)
        change()
        recorded = self.release("--record", "test-long", **environment)
        assert (begun.returncode, recorded.returncode) == (0, 0), begun.stderr + recorded.stderr
        return begun.stdout + recorded.stdout

    def make_dist(self, changed: dict[str, Path | None] | None = None) -> None:
        """Make the files of a release, from other files than the tree's or from none."""
        names = self.git("ls-files").split()
        files = {name: self.path / name for name in names} | (changed or {})
        files = {name: path for name, path in files.items() if path is not None}
        dist = self.path / "dist"
        dist.mkdir(exist_ok=True)
        with tarfile.open(dist / f"penstock-{VERSION}.tar.gz", "w:gz") as archive:
            for name, path in files.items():
                archive.add(path, f"penstock-{VERSION}/{name}")
        for name in ("x86_64", "aarch64"):
            wheel = dist / f"penstock-{VERSION}-cp310-abi3-manylinux_2_28_{name}.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                for file, path in files.items():
                    if file.startswith("python/") or file in IN_WHEEL:
                        archive.write(path, IN_WHEEL.get(file, file.removeprefix("python/")))

    def release(self, *words: str, **others: str) -> subprocess.CompletedProcess[str]:
        environment = (
            os.environ
            | LONG
            | others
            | {
                "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_COMMITTER_NAME": "test",
                "GIT_COMMITTER_EMAIL": "test",
            }
        )
        return subprocess.run(
            [self.path / "scripts/release", *words],
            env=environment,
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module", autouse=True)
def no_options_of_pytest():
    """A run of tests with options does not count for a release."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("repository")
    Repository(path).make()
    return path


@pytest.fixture
def repository(template, tmp_path):
    return Repository(shutil.copytree(template, tmp_path / "repository", symlinks=True))


def test_tag_has_the_section_of_the_changelog(repository):
    done = repository.release()
    assert done.returncode == 0, done.stdout + done.stderr
    text = repository.git("tag", "--list", "--format=%(contents)", f"v{VERSION}")
    assert text.strip() == f"Penstock {VERSION}\n\n### Added\n\n- All."


def test_dry_run_shows_every_check_and_makes_no_tag(repository):
    done = repository.release("--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([line for line in done.stdout.splitlines() if line.startswith("ok ")]) == 8
    assert not repository.git("tag", "--list")


@pytest.mark.parametrize("file", sorted({name for name in FILES if VERSION in FILES[name]}))
def test_another_version_in_a_file_is_refused(repository, file):
    repository.write(file, FILES[file].replace(VERSION, "0.2.0"))
    repository.commit()
    done = repository.release()
    assert done.returncode == 1
    name = "CITATION.cff" if file == "Cargo.toml" else file
    assert f"FAILED  {name}: " in done.stdout
    assert not repository.git("tag", "--list")


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("crates/capi/include/penstock.h", "MINOR 1", "MINOR 2", "penstock.h: has version 0.2.0"),
        ("CHANGELOG.md", TODAY, "unreleased", "0.1.0 is 'unreleased'; write the day"),
        ("CHANGELOG.md", TODAY, "2020-01-31", "has the date 2020-01-31, today is"),
        ("CHANGELOG.md", "\n### Added\n\n- All.\n", "", "the section of 0.1.0 is empty"),
        ("CITATION.cff", TODAY, "2020-01-31", "date-released is 2020-01-31"),
    ],
)
def test_what_files_say_is_compared(repository, file, old, new, words):
    repository.write(file, FILES[file].replace(old, new))
    repository.commit()
    done = repository.release("--dry-run")
    assert done.returncode == 1
    assert words in done.stdout


def test_missing_dates_are_shown_in_one_run_and_once(repository):
    repository.write("CHANGELOG.md", FILES["CHANGELOG.md"].replace(TODAY, "unreleased"))
    repository.write("CITATION.cff", f"version: {VERSION}\n")
    repository.commit()
    done = repository.release("--dry-run")
    assert done.stdout.count("CHANGELOG.md: ") == 1
    assert "CITATION.cff: there is no date-released, CHANGELOG.md has 'unreleased'" in done.stdout


def test_a_changed_tree_is_refused(repository):
    repository.write("new.txt", "new")
    assert "1 files are not committed, such as new.txt" in repository.release("--dry-run").stdout


@pytest.mark.parametrize("address", ["forge" + ".invalid/a", "github.com/OWN" + "ER/penstock"])
def test_a_placeholder_is_refused(repository, address):
    repository.write("mkdocs.yml", f"repo_url: https://{address}\n")
    repository.commit()
    for words in (["--dry-run"], ["--only-versions"]):
        done = repository.release(*words)
        assert done.returncode == 1
        assert "FAILED  mkdocs.yml: has a placeholder" in done.stdout


def test_a_failure_of_git_is_no_success(repository):
    (repository.path / ".git/index").write_text("not an index")
    done = repository.release("--only-versions")
    assert done.returncode == 1
    assert "failed: git grep" in done.stderr


def test_a_linter_that_was_skipped_is_refused(repository):
    repository.write("scripts/lint-release", "#!/bin/sh\necho 1 SKIPPED; [ $1 != --strict ]\n")
    repository.commit()
    assert "lint-release --strict: failed: 1 SKIPPED" in repository.release("--dry-run").stdout


def test_another_branch_is_refused(repository):
    repository.git("checkout", "--quiet", "-b", "other")
    assert "the branch is other; releases are made from main" in repository.release().stdout


def test_tests_of_another_commit_do_not_count(repository):
    repository.git("commit", "--quiet", "--allow-empty", "--message=more")
    assert "`make test-long` passed for" in repository.release().stdout
    (repository.path / "target/passed/test-long").unlink()
    assert "no run of `make test-long` has passed here" in repository.release().stdout


def test_tests_of_a_commit_are_recorded(repository):
    assert repository.test() == ""
    assert "FAILED  tests" not in repository.release("--dry-run").stdout


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda it: it.git("commit", "--quiet", "--allow-empty", "--message=x"), "another commit"),
        (lambda it: it.write(MODULE, "answer = 43\n"), "files have changed meanwhile"),
        (lambda it: it.write("new.txt", ""), "files have changed meanwhile"),
        (lambda it: it.write(MODULE, FILES[MODULE]), "files have changed meanwhile"),
    ],
    ids=["commit", "change", "new file", "restored change"],
)
def test_tests_during_which_something_changes_are_not_recorded(repository, change, reason):
    assert reason in repository.test(lambda: change(repository))
    assert "no run of `make test-long` has passed here" in repository.release("--dry-run").stdout


def test_tests_of_a_changed_tree_are_not_recorded(repository):
    repository.write(MODULE, "answer = 43\n")
    assert "files are not committed" in repository.test()
    assert not (repository.path / "target/passed/test-long").exists()


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"LONG_SECONDS": "1"}, "LONG_SECONDS is '1', and not '60'"),
        ({"WHO": "me"}, "WHO is 'me', and not ''"),
        ({"MAKEFLAGS": "i"}, "make has the flags i"),
        ({"MAKEFLAGS": "ke -j2 -- LANES=2"}, "make has the flags ke"),
        ({"MAKEFLAGS": " -- PARTS=lint"}, "make was called with PARTS"),
        ({"PYTEST_ADDOPTS": "-k none"}, "PYTEST_ADDOPTS is '-k none'"),
    ],
)
def test_tests_that_were_shortened_are_not_recorded(repository, environment, reason):
    assert reason in repository.test(**environment)
    assert "no run of `make test-long` has passed here" in repository.release("--dry-run").stdout


@pytest.mark.parametrize(
    ("word", "said"), [("LANES=3", ""), ("PENSTOCK_FUZZ_SECONDS=1", "PENSTOCK_FUZZ_SECONDS is '1'")]
)
def test_the_values_of_the_makefile_are_those_of_a_release(repository, word, said):
    values = r"^(?:ALL_PARALLEL .*|export .*|test-long: export .*)$"
    lines = re.findall(values, (ROOT / "Makefile").read_text(), re.M)
    recipe = "test-long:\n\t@scripts/release --begin test-long\n"
    repository.write("Makefile", "\n".join([*lines, recipe]))
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message=make")
    unset = {*re.findall(r"export (\w+)", "\n".join(lines)), "MAKEFLAGS"}
    done = subprocess.run(
        ["make", "--silent", "test-long", word],
        cwd=repository.path,
        env={name: value for name, value in os.environ.items() if name not in unset},
        check=True,
        capture_output=True,
        text=True,
    )
    assert bool(done.stdout) == bool(said)
    assert said in done.stdout


def test_a_version_that_is_tagged_is_refused(repository):
    assert repository.release().returncode == 0
    assert "tag v0.1.0 exists; raise the version" in repository.release().stdout


def test_a_lower_version_than_a_tag_is_refused(repository):
    repository.git("tag", "v0.10.0")
    assert "version 0.1.0 is lower than tag v0.10.0" in repository.release().stdout


def test_missing_wheels_are_refused(repository):
    next(repository.path.glob("dist/*aarch64.whl")).unlink()
    assert "manylinux*_aarch64.whl is missing; run `make wheels`" in repository.release().stdout


@pytest.mark.parametrize("name", [MODULE, "crates/capi/include/penstock_hdf5.h"])
def test_archives_of_other_sources_are_refused(repository, tmp_path, name):
    (tmp_path / "other").write_text("other\n")
    repository.make_dist({name: tmp_path / "other"})
    assert repository.release().stdout.count(f"has another {name} than this commit") == 3


@pytest.mark.parametrize(
    ("name", "archives"),
    [("Makefile", 1), ("link", 1), (MODULE, 3), ("crates/capi/include/penstock_hdf5.h", 3)],
)
def test_archives_that_lack_a_file_are_refused(repository, name, archives):
    repository.make_dist({name: None})
    assert repository.release().stdout.count(f"lacks {name}; run `make wheels`") == archives


def test_a_source_distribution_with_another_file_is_refused(repository, tmp_path):
    (tmp_path / "notes.txt").write_text("private")
    repository.make_dist({"docs/notes.txt": tmp_path / "notes.txt"})
    assert "has docs/notes.txt, which git has not; run `make wheels`" in repository.release().stdout


def test_wheels_that_are_older_than_the_commit_are_refused(repository):
    for path in (repository.path / "dist").iterdir():
        os.utime(path, (time.time() - 3600,) * 2)
    assert repository.release().stdout.count("is older than this commit") == 3


def test_the_workflow_compares_the_tag_with_the_files(repository):
    assert repository.release("--only-versions", "--tag", "v0.1.0").returncode == 0
    done = repository.release("--only-versions", "--tag", "v0.1.1")
    assert done.returncode == 1
    assert "it is v0.1.1, but Cargo.toml has version 0.1.0" in done.stdout


def test_the_workflow_refuses_a_commit_that_is_not_on_main(repository):
    repository.git("commit", "--quiet", "--allow-empty", "--message=more")
    done = repository.release("--only-versions")
    assert done.returncode == 1
    assert "origin/main does not contain this commit" in done.stdout


def test_the_notes_of_the_release_are_the_section_of_the_changelog(repository):
    assert repository.release("--notes").stdout == "### Added\n\n- All.\n"
    repository.write("CHANGELOG.md", "# Changelog\n")
    assert repository.release("--notes").returncode == 1


def test_a_source_distribution_is_not_released(repository):
    shutil.rmtree(repository.path / ".git")
    done = repository.release("--dry-run")
    assert done.returncode == 1
    assert done.stderr.startswith("scripts/release: a release is made from a git checkout")
    assert done.stderr.count("\n") == 1
