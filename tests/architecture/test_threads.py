"""Every thread is started by the one function that blocks signals in it."""

from __future__ import annotations

import re
from pathlib import Path

from .test_modules import CRATES, code

PYTHON = CRATES.parent / "python" / "penstock"
SPAWNS = re.compile(
    r"(?<!loom::)thread::(?:Builder|spawn)\b|\.spawn(?:_scoped)?\(|pthread_create\b"
)
STARTS = re.compile(r"threading\.Thread\(|ThreadPoolExecutor|start_new_thread|\bThread\(")


def places(folder: Path, suffix: str, pattern: re.Pattern[str]) -> set[str]:
    return {
        str(file.relative_to(folder))
        for file in folder.rglob(f"*{suffix}")
        if "tests" not in (*file.relative_to(folder).parts, file.stem)
        and pattern.search(code(file.read_text()))
    }


def test_only_one_function_of_the_crates_starts_threads():
    # cudasim replaces NVIDIA's driver, whose threads are not Penstock's.
    found = {
        f"{crate.name}/{place}"
        for crate in CRATES.iterdir()
        if crate.name != "cudasim"
        for place in places(crate / "src", ".rs", SPAWNS)
    }
    assert found == {"engine/threads.rs"}


def test_only_one_module_of_python_starts_threads():
    assert places(PYTHON, ".py", STARTS) == {"_threads.py"}


def test_a_thread_that_a_file_starts_is_found(tmp_path):
    (tmp_path / "a.rs").write_text("fn f() { std::thread::Builder::new().spawn(g); }\n")
    (tmp_path / "b.rs").write_text("fn f() { thread::scope(|s| { s.spawn(g); }); }\n")
    (tmp_path / "c.rs").write_text(
        "// thread::spawn\n#[cfg(test)]\nmod tests { thread::spawn(f) }\n"
    )
    assert places(tmp_path, ".rs", SPAWNS) == {"a.rs", "b.rs"}
