"""The figures of the manual."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benches import documents

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = [json.loads(path.read_text()) for path in sorted(DOCS.glob("figures/data/*.json"))]
NAMES = sorted(documents.figure_name(it, figure) for it in RESULTS for figure in it["figures"])


def test_every_figure_can_be_drawn_again():
    drawn = {path.name for path in DOCS.glob("figures/*.svg") if "Matplotlib" in path.read_text()}
    assert set(NAMES) == drawn


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_small_has_a_dark_form_and_is_shown(name):
    text = (DOCS / "figures" / name).read_text()
    assert len(text) < 100_000
    assert "prefers-color-scheme: dark" in text
    assert any(f"figures/{name})" in page.read_text() for page in DOCS.rglob("*.md"))
