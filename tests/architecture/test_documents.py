"""The documents lead to files and headings that exist, and name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for folder in ("", "docs/**/", "crates/**/", "examples/**/", "packaging/**/", ".github/**/")
    for path in ROOT.glob(f"{folder}*.md")
)
ISSUES = ROOT / "docs" / "correctness_issues.md"


def text_of(document: Path) -> str:
    """The text of a document without its code."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", text_of(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_somewhere(document):
    text = text_of(document)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    for link in links:
        path, _, anchor = link.partition("#")
        if path.startswith("http"):
            continue
        target = document.parent / path if path else document
        assert target.exists(), f"{link} leads to no file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link} leads to no heading"


def test_tests_that_the_correctness_issues_name_exist():
    named = re.findall(r"`((?:tests|crates)/[\w./-]+)(?:::(\w+))?`", ISSUES.read_text())
    assert len(named) > 100
    for path, test in named:
        file = ROOT / path
        assert file.exists(), path
        assert test in file.read_text(), f"{path}::{test}"


def test_every_raw_table_is_linked_from_the_page_on_performance():
    page = (ROOT / "docs" / "performance.md").read_text()
    for table in (ROOT / "docs" / "performance").glob("*.md"):
        assert f"](performance/{table.name})" in page, table.name


def test_the_navigation_of_the_site_has_every_page_and_no_other():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"(?:- |: )(\S+\.md)$", navigation, re.MULTILINE)
    # The documents outside docs that scripts/site lays beside the pages.
    outside = (ROOT / "scripts" / "site" / "__main__.py").read_text().partition("\nPAGES = ")[2]
    made = set(ast.literal_eval(outside.partition('"""')[0]).values())
    pages = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    assert len(named) == len(set(named))
    assert set(named) == pages | made
