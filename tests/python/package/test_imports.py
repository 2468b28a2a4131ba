"""The modules of the package import each other in one direction.

A module is a file. A package is a folder in ``penstock``, or a single module there.
``from package import module`` is an import of the module, not of the ``__init__`` of the packages
in which it lies, although Python runs them. Imports under ``if TYPE_CHECKING`` do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import penstock as ps

ROOT = Path(ps.__file__).parent
Graph = dict[str, set[str]]


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): file for file in sorted(ROOT.rglob("*.py"))}


def statements(body: Iterable[ast.AST], *, in_functions: bool) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from statements(node.orelse, in_functions=in_functions)
        elif in_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from statements(ast.iter_child_nodes(node), in_functions=in_functions)


def imports(module: str, text: str, *, in_functions: bool) -> set[str]:
    """The modules of the package that a module imports."""
    own = module.split(".")
    if MODULES[module].name != "__init__.py":
        own.pop()
    found = set()
    for node in statements(ast.parse(text).body, in_functions=in_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = own[: len(own) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else source for name in names}
    return (found & set(MODULES)) - {module}


def graph(*, in_functions: bool) -> Graph:
    return {
        module: imports(module, file.read_text(encoding="utf-8"), in_functions=in_functions)
        for module, file in MODULES.items()
    }


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def of_packages(modules: Graph) -> Graph:
    packages: Graph = {}
    for module, imported in modules.items():
        package = package_of(module)
        packages.setdefault(package, set()).update(set(map(package_of, imported)) - {package})
    return packages


def circle(of: Graph) -> list[str]:
    """A circle of imports, or nothing."""
    try:
        TopologicalSorter(of).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_import_each_other_in_no_circle():
    assert circle(graph(in_functions=False)) == []


def test_packages_import_each_other_in_no_circle_even_within_functions():
    assert circle(of_packages(graph(in_functions=True))) == []


def test_only_the_command_line_imports_the_command_line():
    importers = {
        module
        for module, imported in graph(in_functions=True).items()
        if "penstock.cli" in map(package_of, imported)
    }
    assert {package_of(module) for module in importers} == {"penstock.cli"}


@pytest.mark.parametrize(
    ("text", "in_functions", "expected"),
    [
        ("import penstock.request", False, {"penstock.request"}),
        ("from penstock import request, arrays", False, {"penstock.request", "penstock.arrays"}),
        ("from penstock.request import Request", False, {"penstock.request"}),
        ("from . import small", False, {"penstock.hdf5.small"}),
        ("from .small import LIMIT", False, {"penstock.hdf5.small"}),
        ("from .. import request", False, {"penstock.request"}),
        ("from penstock import load, request", False, {"penstock", "penstock.request"}),
        ("class A:\n    import penstock.request", False, {"penstock.request"}),
        ("if TYPE_CHECKING:\n    import penstock.request", False, set()),
        ("def f():\n    import penstock.request", False, set()),
        ("def f():\n    import penstock.request", True, {"penstock.request"}),
        ("import numpy", False, set()),
    ],
)
def test_each_form_of_an_import_is_seen(text, in_functions, expected):
    assert imports("penstock.hdf5.submit", text, in_functions=in_functions) == expected


def test_a_circle_is_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
