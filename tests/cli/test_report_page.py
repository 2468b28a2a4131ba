"""The page that `penstock report --html` writes."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from html.parser import HTMLParser

import pytest

from penstock.diagnosis import Line, Status, page

WHEN = datetime(2026, 11, 22, 9, 30, tzinfo=timezone.utc)
LINES = [
    Line("GPU", "cuda:0 BAR1", Status.OK, "256.0 GiB", "All of it."),
    Line("GPU", "cuda:0 persistence mode", Status.WARN, "off", "Slow.", "nvidia-smi -pm 1."),
    Line("Path", "File system", Status.NO, "<tmpfs> & co", "", 'Use "ext4".'),
    Line("Path", "Stripes", Status.UNKNOWN, "unknown: no attribute", "", "lfs getstripe."),
]


class Parsed(HTMLParser):
    """Elements with their attributes, and the text of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open and data.strip():
            self.words.append(data.strip())


@pytest.fixture(scope="module")
def parsed():
    return Parsed(page.render(LINES, "Penstock <1>", WHEN))


def test_elements_are_closed_in_order(parsed):
    assert parsed.open == []


def test_page_needs_nothing_else(parsed):
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed"}
    for _, attributes in parsed.elements:
        assert not {"src", "onload", "onclick"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
    text = page.render(LINES, "Penstock", WHEN)
    assert "url(" not in text
    assert "@import" not in text
    assert "http" not in text


def test_each_line_has_word_and_colour(parsed):
    badges = [
        attributes["class"]
        for tag, attributes in parsed.elements
        if tag == "span" and "status" in (attributes.get("class") or "")
    ]
    statuses = ["OK", "WARN", "NO", "unknown"]
    # The counts, what is not OK with the worst first, and the lines.
    assert badges == [f"status {word}" for word in [*statuses, "NO", "WARN", *statuses]]
    for line in LINES:
        for text in (line.name, line.found, line.meaning, line.remedy):
            assert text.replace(" ", "") in "".join(parsed.words).replace(" ", "")
    text = page.render(LINES, "Penstock", WHEN)
    for word in statuses:
        assert f".{word} {{ color:" in text


def test_words_of_the_machine_are_no_markup():
    text = page.render(LINES, "Penstock <1>", WHEN)
    assert "&lt;tmpfs&gt; &amp; co" in text
    assert "<tmpfs>" not in text
    assert "Penstock &lt;1&gt;" in text


def test_what_is_not_ok_is_linked_to(parsed):
    links = [attributes["href"] for tag, attributes in parsed.elements if tag == "a"]
    rows = [attributes.get("id") for tag, attributes in parsed.elements if tag == "tr"]
    assert links == ["#line-2", "#line-1"]
    assert {link[1:] for link in links} < set(rows)


def test_option_of_a_command_is_kept_together():
    text = page.render(LINES, "Penstock", WHEN)
    assert 'nvidia-smi <span class="option">-pm</span> 1.' in text


def test_page_suits_narrow_screens_and_dark_mode():
    text = page.render(LINES, "Penstock", WHEN)
    assert 'name="viewport" content="width=device-width' in text
    assert "prefers-color-scheme: dark" in text
    assert "@media (max-width:" in text


def test_colours_of_text_can_be_read():
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = re.findall(r":root \{(.*?)\}", page._STYLE, re.DOTALL)
    for scheme in (light, dark):
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        pairs = [(name, f"{name}-back") for name in ("ok", "warn", "no", "unknown")]
        for text, back in [*pairs, ("text", "card"), ("soft", "card"), ("soft", "page")]:
            lighter, darker = sorted((luminance(colours[text]), luminance(colours[back])))[::-1]
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, back)
