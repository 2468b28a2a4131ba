"""The pages of reference list what there is: variables, options, fields, commands, functions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
HEADERS = ROOT / "crates" / "capi" / "include"
PACKAGE = ROOT / "python" / "penstock"


def listed(page: str, section: str = "") -> set[str]:
    """The names in the first columns of the tables of a section, or of all."""
    text = (REFERENCE / page).read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_variables_that_the_code_reads_are_on_the_page_and_no_others():
    sources = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("plugins/*/src/*.rs")]
    sources = [path for path in sources if "cudasim" not in path.parts]
    read = set()
    for path in [*sources, *PACKAGE.rglob("*.py")]:
        code = path.read_text().partition("#[cfg(test)]\nmod tests")[0]
        read |= set(re.findall(r'"(PENSTOCK_[A-Z0-9_]+)"', code))
    assert len(read) > 20
    assert read == {name for name in listed("environment.md") if name.startswith("PENSTOCK_")}


@pytest.mark.parametrize(
    ("source", "keys", "section"),
    [
        ("engine/src/options.rs", r'KEYS: &str =\s+"([\w, ]+)"', "Transfers"),
        ("vfd/src/settings.rs", r'parse_with\(text, "([\w, ]+)"', "The driver"),
        ("vol/src/settings.rs", r'KEYS: &str = "([\w, ]+)"', "The connector"),
    ],
)
def test_the_page_has_the_options_that_the_code_takes(source, keys, section):
    known = re.search(keys, (ROOT / "crates" / source).read_text())[1]
    assert listed("options.md", section) == set(known.split(", "))


@pytest.mark.parametrize(("at", "part"), [(0, "vfd"), (1, "vol")])
def test_the_header_has_the_options_that_the_code_takes(at, part):
    lists = (HEADERS / "penstock_hdf5.h").read_text().split(" key=value pairs, ")[1:]
    lines = re.findall(r"^ \*     (\w[^|]*?)(?:   |\||$)", lists[at].partition("*/")[0], re.M)
    found = {word.partition("=")[0] for line in lines for word in re.split("[,;] ?", line)}
    known = set()
    for file, keys in (
        ("engine/src/options.rs", r'KEYS: &str =\s+"([\w, ]+)"'),
        (f"{part}/src/settings.rs", r'(?:KEYS: &str = |parse_with\(text, )"([\w, ]+)"'),
    ):
        known |= set(re.search(keys, (ROOT / "crates" / file).read_text())[1].split(", "))
    # The function uses the connector of the list.
    assert found == known - {"under_vol", "under_info"}


def test_the_page_has_the_fields_of_a_report():
    (report,) = [
        node
        for node in ast.parse((PACKAGE / "report.py").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Report"
    ]
    fields = {node.target.id for node in report.body if isinstance(node, ast.AnnAssign)}
    header = (HEADERS / "penstock.h").read_text()
    struct = re.search(r"typedef struct penstock_report \{(.+?)\} penstock_report;", header, re.S)
    members = set(re.findall(r"^    \w+ (\w+)[;\[]", struct[1], re.MULTILINE))
    page = (REFERENCE / "report-fields.md").read_text().partition("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert named == fields == members - {"struct_size"}


def test_every_public_name_of_the_package_is_on_its_page():
    for package, page in {
        "": "penstock",
        "torch": "torch",
        "anndata": "anndata",
        "dist": "dist",
        "dist/mpi": "dist",
        "deepnvme": "deepnvme",
    }.items():
        names = ast.parse((PACKAGE / package / "__init__.py").read_text())
        (exported,) = [
            ast.literal_eval(node.value)
            for node in names.body
            if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
        ]
        module = ".".join(filter(None, ["penstock", *package.split("/")]))
        shown = (REFERENCE / "api" / f"{page}.md").read_text().splitlines()
        for name in set(exported) - {"__version__"}:
            assert f"::: {module}.{name}" in shown, f"{module}.{name}"


def test_type_checkers_and_the_site_find_every_public_name_of_a_lazy_package():
    lazy = [path for path in PACKAGE.rglob("*.py") if "\ndef __getattr__(" in path.read_text()]
    assert len(lazy) > 2
    for path in lazy:
        module = ast.parse(path.read_text())
        imports = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
        found = {alias.name for node in imports for alias in node.names}
        (exported,) = [
            ast.literal_eval(node.value)
            for node in module.body
            if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
        ]
        assert set(exported) - {"__version__"} <= found, path


@pytest.mark.parametrize("header", ["penstock.h", "penstock_hdf5.h"])
def test_the_reference_of_a_header_has_its_functions_and_links_to_what_it_has(header):
    code = "import header, sys; print(header.page(sys.stdin.read(), 'First'))"
    text = (HEADERS / header).read_text()
    run = subprocess.run(
        [sys.executable, "-c", code],
        input=text,
        cwd=ROOT / "scripts" / "site",
        capture_output=True,
        text=True,
        check=True,
    )
    page = run.stdout
    headings = re.findall(r"^### (.+) \{ #(\w+) \}$", page, re.MULTILINE)
    titles = {name for title, _ in headings for name in re.findall(r"`(\w+)`", title)}
    functions = set(re.findall(r"^PENSTOCK_API[^(;]*?\b(penstock_\w+)\(", text, re.MULTILINE))
    assert functions
    assert functions <= titles
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= {anchor for _, anchor in headings}


def test_the_page_of_the_commands_is_that_of_their_help():
    command = [sys.executable, "-c", "import commands; print(commands.page(), end='')"]
    run = subprocess.run(
        command, cwd=ROOT / "scripts" / "site", capture_output=True, text=True, check=True
    )
    expected = (REFERENCE / "commands.md").read_text()
    assert run.stdout == expected, "run scripts/site/commands.py"
