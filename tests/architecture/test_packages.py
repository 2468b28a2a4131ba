"""Modules of the package: none imports one that imports it, at any time but for types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2] / "python"


def imports(node: ast.AST) -> Iterator[str]:
    """Return what a module imports: names of modules, and of what may be a module in a package."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (one.name for one in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield from (f"{child.module}.{one.name}" for one in child.names)
            yield child.module
        else:
            yield from imports(child)


def cycle_below(root: Path) -> list[str]:
    """Return the modules of a cycle; none if there is no cycle."""
    modules = {
        ".".join(file.relative_to(root).with_suffix("").parts): file
        for file in root.rglob("*.py")
        if file.name != "__init__.py"
    }
    used = {
        name: modules.keys() & set(imports(ast.parse(file.read_text())))
        for name, file in modules.items()
    }
    try:
        TopologicalSorter(used).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_modules_of_the_package_import_each_other_in_a_cycle():
    assert not cycle_below(ROOT)


def test_a_cycle_is_found_within_functions_and_not_for_types(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text("def f():\n    from p import b\n")
    (tmp_path / "p" / "b.py").write_text("if TYPE_CHECKING:\n    import p.a\n")
    assert not cycle_below(tmp_path)
    (tmp_path / "p" / "b.py").write_text("from p.a import f\n")
    assert set(cycle_below(tmp_path)) == {"p.a", "p.b"}
