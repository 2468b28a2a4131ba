"""The modules of a crate depend on each other in one direction.

The graph is read from the sources: every path that starts with `crate::` or `super::` is an arrow
from the file's top-level module to another. Re-exports in `lib.rs` are followed. Tests are left
out, since they stand above what they test.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

CRATES = Path(__file__).parents[2] / "crates"
Graph = dict[str, dict[str, set[str]]]

# Cycles that stay, with their reason. Each is one idea in several files.
ALLOWED: dict[str, list[set[str]]] = {
    # The simulated GPU: a device, and the memory, streams, events and modules that live on it.
    "cudasim": [{"capture", "device", "event", "memory", "module", "region", "stream", "kernel"}],
}


def code(text: str) -> str:
    """A file without comments, strings and the tests at its end."""
    text = re.split(r"#\[cfg\((?:test|all\(test\b)", text)[0]
    return re.sub(r'//[^\n]*|"(?:\\.|[^"\\])*"', " ", text)


def paths(text: str) -> Iterator[list[str]]:
    """Each path in some code that starts with `crate` or `super`, one a member of a group."""
    for found in re.finditer(r"\b(?:crate|super)(?:::\w+)*(?:::(?=\{))?", text):
        if not found.group().endswith("::"):
            yield found.group().split("::")
            continue
        prefix = found.group().removesuffix("::").split("::")
        for member in members(text, found.end()):
            yield [*prefix, *member.split(" ")[0].split("::")]


def members(text: str, start: int) -> Iterator[str]:
    """The first path of each member of the group in braces that begins at `start`."""
    depth, member = 0, ""
    for letter in text[start:]:
        depth += (letter == "{") - (letter == "}")
        if depth == 0 or (letter == "," and depth == 1):
            if member.strip():
                yield member.strip().removesuffix("::")
            member = ""
        elif depth == 1 and letter != "{":
            member += letter
        if depth == 0:
            return


def module_of(file: Path, source: Path) -> list[str]:
    parts = list(file.relative_to(source).with_suffix("").parts)
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def reexports(source: Path) -> dict[str, str]:
    """What `lib.rs` re-exports, with the module that it comes from."""
    text = code((source / "lib.rs").read_text())
    origin = {}
    for path, group, name in re.findall(
        r"pub(?:\([^)]*\))? use ([\w:]+?)(?:::\{([^}]*)\}|::(\w+));", text
    ):
        for exported in (group or name).split(","):
            if exported.strip():
                origin[exported.split()[-1].split("::")[-1]] = path.split("::")[0]
    return origin


def graph(source: Path) -> Graph:
    """Arrows between top-level modules, each with the files that contain it."""
    origin = reexports(source)
    modules = {
        module_of(file, source)[0] for file in source.rglob("*.rs") if module_of(file, source)
    }
    arrows: Graph = defaultdict(lambda: defaultdict(set))
    for file in sorted(source.rglob("*.rs")):
        here = module_of(file, source)
        if not here or "tests" in here:
            continue
        for path in paths(code(file.read_text())):
            place = [] if path[0] == "crate" else here
            for step in path:
                place = (
                    place[:-1] if step == "super" else place if step == "crate" else [*place, step]
                )
            target = origin.get(place[0], place[0]) if place else here[0]
            if target in modules and target != here[0]:
                arrows[here[0]][target].add(str(file.relative_to(source)))
    return arrows


def cycles(arrows: Graph) -> list[set[str]]:
    """The strongly connected components of more than one module."""

    def reachable(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            new = set(arrows.get(todo.pop(), ())) - seen
            seen |= new
            todo += new
        return seen

    reach = {module: reachable(module) for module in arrows}
    found = []
    for module in sorted(arrows):
        cycle = {other for other in reach[module] if module in reach.get(other, ())}
        if len(cycle) > 1 and cycle not in found:
            found.append(cycle)
    return found


def shown(crate: str, cycle: set[str], arrows: Graph) -> str:
    """A cycle of a crate as text: its arrows, each with what makes it."""
    inside = [
        f"  {start} -> {target}  ({', '.join(sorted(causes))})"
        for start in sorted(cycle)
        for target, causes in sorted(arrows[start].items())
        if target in cycle
    ]
    return f"crates/{crate} has a cycle of {sorted(cycle)}:\n" + "\n".join(inside)


MANIFESTS = sorted(CRATES.glob("*/Cargo.toml"))


@pytest.mark.parametrize("crate", [m.parent for m in MANIFESTS], ids=lambda crate: crate.name)
def test_no_modules_of_a_crate_depend_on_each_other_in_a_cycle(crate):
    arrows = graph(crate / "src")
    allowed = ALLOWED.get(crate.name, [])
    for cycle in cycles(arrows):
        assert any(cycle <= idea for idea in allowed), shown(crate.name, cycle, arrows)


def write_sources(folder: Path, files: dict[str, str]) -> None:
    """Write the texts of source files, by their names in a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def test_a_cycle_is_found_through_groups_parents_and_reexports(tmp_path):
    files = {
        "lib.rs": "mod low;\nmod high;\npub use high::{Top, other};\n",
        "low.rs": "// crate::high in a comment\nuse crate::{high::Top as T, low::x};\n",
        "high/mod.rs": "mod deep;\n",
        "high/deep.rs": "use super::super::low;\nuse super::Top;\n#[cfg(test)]\nmod tests {}\n",
        "tests.rs": "use crate::high::Top;\n",
    }
    write_sources(tmp_path, files)
    assert cycles(graph(tmp_path)) == [{"high", "low"}]
    (tmp_path / "low.rs").write_text("pub fn x() {}\n#[cfg(test)]\nmod tests { use crate::Top; }\n")
    assert cycles(graph(tmp_path)) == []
    (tmp_path / "low.rs").write_text("fn x(_: crate::Top) {}\n")
    assert cycles(graph(tmp_path)) == [{"high", "low"}]
