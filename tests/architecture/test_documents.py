"""The documents lead to files and headings that exist, and name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ISSUES = ROOT / "docs" / "correctness_issues.md"


def anchors(document: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_somewhere(document):
    text = document.read_text()
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
