"""Each benchmark runs at a small size, and what it reads and writes is right."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.bench import machine

pytestmark = pytest.mark.long

_ROOT = Path(__file__).resolve().parents[2]
_BENCHMARKS = runpy.run_path(str(_ROOT / "benches" / "names.py"))["NAMES"]


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=240)


@pytest.mark.gpu
@pytest.mark.parametrize("benchmark", _BENCHMARKS)
def test_a_benchmark_runs_and_none_of_its_penstock_rows_fails(
    benchmark: str, tmp_path: Path
) -> None:
    saved = tmp_path / "result.json"
    arguments = ("--quick", "--dir", tmp_path / "files", "--json", saved)
    done = _run("benches", benchmark, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(saved.read_text())
    assert result["benchmark"] == benchmark
    assert result["rows"]
    assert all(row["value"] > 0 for row in result["rows"] if row["name"].startswith("Penstock"))


def test_each_benchmark_is_named_with_the_module_that_defines_it() -> None:
    defined = (
        "from importlib import import_module\n"
        "from benches import names, run\n"
        "for module in names.MODULES: import_module(f'benches.{module}')\n"
        "print(*run.BENCHMARKS)"
    )
    done = subprocess.run(
        [sys.executable, "-c", defined], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == sorted(_BENCHMARKS)


def test_an_unknown_benchmark_is_refused_with_the_names_of_all() -> None:
    done = _run("benches", "no_such")
    assert done.returncode == 2
    assert "there is no benchmark no_such" in done.stderr


@pytest.mark.parametrize(
    ("unit", "before", "after", "is_worse"),
    [
        ("GB/s", [10, 11, 12], [9, 9.1, 9.2], True),
        ("GB/s", [10, 11, 12], [9, 9.1, 10], False),
        ("GB/s", [10, 10, 10], [9.8, 9.8, 9.8], False),
        ("us", [10, 11, 12], [13, 14, 15], True),
        ("us", [10, 11, 12], [8, 9, 9], False),
    ],
)
def test_a_build_is_worse_where_none_of_its_turns_is_as_good(
    unit: str, before: list[float], after: list[float], is_worse: bool
) -> None:
    row = f"Compared({unit!r}, {before}, {after})"
    judge = f"from benches.compare import Compared; print({row}.is_worse)"
    done = subprocess.run(
        [sys.executable, "-c", judge], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(is_worse)]


@pytest.mark.gpu
def test_two_builds_take_turns_at_a_benchmark(tmp_path: Path) -> None:
    import penstock

    build = Path(penstock.__file__).parents[1]
    saved = tmp_path / "compared.json"
    arguments = ("--before", build, "--after", build, "--turns", 1, "--dir", tmp_path)
    done = _run("benches.compare", "overhead", *arguments, "--size", "16MiB", "--json", saved)
    rows = json.loads(saved.read_text())
    assert len(rows) == 2, done.stdout + done.stderr
    assert all(len(row[2]["before"]) == len(row[2]["after"]) == 1 for row in rows)


@pytest.mark.gpu
def test_the_table_replaces_only_the_marked_part_of_a_document(tmp_path: Path) -> None:
    saved, document = tmp_path / "result.json", tmp_path / "performance.md"
    assert _run("benches", "link", "--quick", "--dir", tmp_path, "--json", saved).returncode == 0
    document.write_text(
        "before\n<!-- results: begin -->\noutdated figures\n<!-- results: end -->\nafter\n"
    )
    done = _run("benches.documents", saved, "--into", document)
    assert done.returncode == 0, done.stderr
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "outdated figures" not in text
    assert "| link, to GPU |" in text


def test_a_benchmark_draws_its_figure_at_once_or_from_its_result(tmp_path: Path) -> None:
    saved, drawn = tmp_path / "result.json", tmp_path / "drawn.svg"
    arguments = ("--quick", "--size", "4KiB", "--dir", tmp_path, "--json", saved, "--plot", drawn)
    done = _run("benches", "hdf5_sizes", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    figures, data = tmp_path / "figures", tmp_path / "data"
    done = _run("benches.documents", saved, "--figures", figures, "--data", data)
    assert done.returncode == 0, done.stderr
    again = figures / "hdf5-sizes-slices.svg"
    first = again.read_text()
    for text in (first, drawn.read_text()):
        assert ">Penstock, gzip</text>" in text
        assert ">h5py, gzip</text>" in text
    done = _run("benches.documents", data / "hdf5-sizes.json", "--figures", figures)
    assert done.returncode == 0, done.stderr
    assert ">python -m benches hdf5_sizes;" in first
    assert ">python -m benches hdf5_sizes;" in again.read_text()


def test_a_figure_of_another_form_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    done = _run("benches", "hdf5_sizes", "--quick", "--dir", tmp_path, "--plot", tmp_path / "x.txt")
    assert done.returncode == 2
    assert "must end in one of .png, .svg, .pdf" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_result_becomes_a_page_with_its_tables_and_figures(tmp_path: Path) -> None:
    saved, pages, drawn = tmp_path / "r.json", tmp_path / "docs" / "pages", tmp_path / "figures"
    pages.mkdir(parents=True)
    (pages / "tensor.md").write_text("of another day\n")
    (pages / "small.md").write_text("as it was\n")
    words = ("bench", "tensor", "--mb_size", "1", "-i", "1", "--dir", tmp_path, "--json", saved)
    assert _run("penstock_command", *words).returncode == 0
    done = _run("benches.documents", saved, "--into", pages, "--figures", drawn)
    assert done.returncode == 0, done.stderr
    text = (pages / "tensor.md").read_text()
    assert text.startswith("# `penstock bench tensor`\n")
    assert "| Variant | GB/sec |" in text
    assert "![Tensors from and to files](../../figures/tensor-tensor.svg)" in text
    assert "of another day" not in text
    assert (drawn / "tensor-tensor.svg").stat().st_size > 5_000
    assert (pages / "small.md").read_text() == "as it was\n"


def test_a_benchmark_has_a_page_for_each_of_its_options(tmp_path: Path) -> None:
    parts = {"tables": [], "figures": [], "words": [], "absent": {}}
    environment = machine.environment(tmp_path)
    saved = []
    for name in ("plotfile --shared", "plotfile"):
        saved.append(tmp_path / f"{len(saved)}.json")
        saved[-1].write_text(json.dumps({"benchmark": name, "environment": environment, **parts}))
    pages = tmp_path / "pages"
    done = _run("benches.documents", *saved, "--into", pages, "--figures", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    assert sorted(page.name for page in pages.iterdir()) == ["plotfile-shared.md", "plotfile.md"]
    assert (pages / "plotfile-shared.md").read_text().startswith("# `penstock bench plotfile --s")
