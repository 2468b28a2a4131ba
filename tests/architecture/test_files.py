"""The files of a crate depend on each other in one direction.

The graph is read from the sources: a file has an arrow to another if it names something that is
defined there, by `crate::`, `super::`, `self::`, a module of its own, or a name that it imports.
Re-exports are followed to the file that defines the name, so a `mod.rs` that only re-exports is
part of no cycle. Tests are left out, since they use what they test.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from .test_modules import MANIFESTS, code, cycles, module_of, shown, write_sources

Module = tuple[str, ...]

# Cycles that stay, by crate: patterns for their files, and the reason.
ALLOWED: dict[str, dict[str, str]] = {
    "array": {"plan/*": "a plan hands out its jobs, and a job finds its places by its plan"},
    "codec": {"filters/*": "each filter uses the helpers of the module that lists all filters"},
    "cudasim": {
        "capture.rs device.rs event.rs kernel/mod.rs memory.rs module.rs region.rs stream.rs": (
            "one simulated device: its memory, streams, events and modules know each other"
        ),
        "cufile/*": "one simulated cuFile: sessions, handles and buffers know each other",
    },
    "engine": {
        "file/*": "opening a file asks the file system, which opens files to find out",
        "gpu/*": "a context releases what its streams and pinned pages hold, and these know it",
        "plan/*": "the builder of a plan fills the plan that calls it",
        "request/*": "a request owns the jobs and tasks that conclude it",
        "routes/*": "each route implements the trait of the module that lists all routes",
        "trace/*": "the writer of a trace stops it when it fails",
    },
    "sys": {
        "cufile/*": "the table of functions names the structures of its parts",
        "hdf5/*": "the table of functions names the structures of its parts",
    },
    "vfd": {"sieve/*": "the sieve and the thread that writes behind it know each other"},
    "vol": {
        "background/dataset_io.rs background/shared_io.rs": "a transfer of a shared file is one"
        " of datasets, which asks for the others first",
        "introspect.rs lib.rs": "HDF5 asks the connector's class for that class",
    },
}


def uses(text: str) -> Iterator[tuple[list[str], str, bool]]:
    """The path of each name that some code imports, the name, and whether it is re-exported."""
    for found in re.finditer(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);", text):
        for path, name in names(found.group(2), []):
            yield path, name, bool(found.group(1))


def names(tree: str, prefix: list[str]) -> Iterator[tuple[list[str], str]]:
    """The path and the local name of each member of a tree of imports."""
    group = re.fullmatch(r"\s*([\w:\s]*)\{(.*)\}\s*", tree, re.DOTALL)
    if not group:
        path, _, alias = tree.partition(" as ")
        steps = [*prefix, *path.replace(" ", "").strip().split("::")]
        steps = steps[:-1] if steps[-1] == "self" else steps
        yield steps, alias.strip() or steps[-1]
        return
    inner = [*prefix, *(step.strip() for step in group.group(1).split("::") if step.strip())]
    depth, member = 0, ""
    for letter in group.group(2) + ",":
        depth += (letter == "{") - (letter == "}")
        if letter != "," or depth:
            member += letter
        elif member.strip():
            yield from names(member, inner)
            member = ""


class Files:
    """The files of a crate, and what each of them imports."""

    def __init__(self, source: Path) -> None:
        self.text: dict[Module, str] = {}
        self.file: dict[Module, str] = {}
        self.imports: dict[Module, dict[str, list[str]]] = defaultdict(dict)
        self.exported: dict[Module, set[str]] = defaultdict(set)
        for file in sorted(source.rglob("*.rs")):
            module = tuple(module_of(file, source))
            if "tests" in module:
                continue
            text = code(file.read_text())
            for path, name, is_exported in uses(text):
                self.imports[module][name] = path
                if is_exported:
                    self.exported[module].add(name)
            self.text[module] = re.sub(r"\buse\s+[^;]+;", ";", text)
            self.file[module] = str(file.relative_to(source))

    def absolute(self, path: list[str], here: Module, depth: int = 0) -> Module | None:
        """A path that is written in a module, from the root of the crate."""
        first, rest = path[0], path[1:]
        if depth > 20:
            return None
        if first in ("crate", "self", "super"):
            base = {"crate": (), "self": here, "super": here[:-1]}[first]
            while rest and rest[0] in ("super", "self"):
                base = base[:-1] if rest[0] == "super" else base
                rest = rest[1:]
            return (*base, *rest)
        if (*here, first) in self.text:
            return (*here, *path)
        imported = self.imports[here].get(first)
        if imported and imported != path:
            found = self.absolute(imported, here, depth + 1)
            return found and (*found, *rest)
        return None

    def target(self, path: Module, depth: int = 0) -> Module | None:
        """The file that defines what a path leads to; `None` for a module itself."""
        end = next(n for n in range(len(path), -1, -1) if path[:n] in self.text)
        module, rest = path[:end], path[end:]
        if not rest:
            return None
        imported = self.imports[module].get(rest[0])
        if imported and depth < 20:
            origin = self.absolute(imported, module)
            return self.target((*origin, *rest[1:]), depth + 1) if origin else None
        return module

    def arrows(self) -> dict[str, dict[str, set[str]]]:
        arrows: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for here, text in self.text.items():
            named = [path.split("::") for path in re.findall(r"\b[a-z]\w*(?:::\w+)+", text)]
            for name, path in self.imports[here].items():
                is_used = re.search(rf"\b{re.escape(name)}\b", text)
                if name not in self.exported[here] or is_used:
                    named.append(path)
            for path in named:
                place = self.absolute(path, here)
                target = self.target(place) if place is not None else None
                if target is not None and target != here:
                    arrows[self.file[here]][self.file[target]].add("::".join(path))
        return arrows


@pytest.mark.parametrize("crate", [m.parent for m in MANIFESTS], ids=lambda crate: crate.name)
def test_no_files_of_a_crate_depend_on_each_other_in_a_cycle(crate):
    arrows = Files(crate / "src").arrows()
    unused = set(ALLOWED.get(crate.name, {}))
    for cycle in cycles(arrows):
        known = {
            files
            for files in ALLOWED.get(crate.name, {})
            if all(any(fnmatch(file, pattern) for pattern in files.split()) for file in cycle)
        }
        assert known, shown(crate.name, cycle, arrows)
        unused -= known
    assert not unused, f"no cycle is left in {sorted(unused)}: remove the exception"


def test_a_cycle_of_files_is_found_through_imports_reexports_and_own_modules(tmp_path):
    files = {
        "lib.rs": "mod room;\npub use room::Top;\n",
        "room/mod.rs": "mod low;\nmod high;\npub use high::Top;\npub(crate) use low::{self, x};\n",
        "room/low.rs": "// super::high in a comment\npub fn x() {}\n",
        "room/high.rs": "use super::low;\nfn y() { low::x() }\n#[cfg(test)]\nmod tests {}\n",
    }
    write_sources(tmp_path, files)
    assert Files(tmp_path).arrows() == {"room/high.rs": {"room/low.rs": {"low::x"}}}
    imports = [
        "use crate::Top;\n",
        "use super::{\n    high::Top as T,\n};\n",
        "fn x(_: crate::room::Top) {}\n",
    ]
    for text in imports:
        (tmp_path / "room/low.rs").write_text(text)
        assert cycles(Files(tmp_path).arrows()) == [{"room/high.rs", "room/low.rs"}]
    # A parent that calls its module, which uses what the parent defines.
    (tmp_path / "room/low.rs").write_text("use super::Own;\npub fn x() {}\n")
    (tmp_path / "room/mod.rs").write_text("mod low;\nmod high;\nstruct Own;\nfn z() { low::x() }\n")
    assert cycles(Files(tmp_path).arrows()) == [{"room/mod.rs", "room/low.rs"}]


def test_the_folders_of_a_transfer_use_only_those_below_them():
    floors = ["execution", "prepare", "cache sinks", "conflicts", "request", "hdf5_state"]
    floor = {folder: level for level, row in enumerate(floors) for folder in row.split()}
    prefix = "transfer/"
    for file, targets in Files(MANIFESTS[0].parents[1] / "hdf5" / "src").arrows().items():
        for target in targets:
            if file.startswith(prefix) and target.startswith(prefix):
                here, there = (path.removeprefix(prefix).split("/")[0] for path in (file, target))
                is_below = here == there or here == "mod.rs" or floor[here] < floor[there]
                assert is_below, f"{file} -> {target}"
