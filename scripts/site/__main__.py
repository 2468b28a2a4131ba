"""Lays out the pages of the manual for the programs that build the site: see `make site`.

The pages in docs are read on the forge, too, so they have neither the syntax of one builder nor
text that is generated. This program copies them, and on the way

- leads a link to a file outside docs to that file's page, and one to a crate to its
  documentation, if they are on the site, or else to the repository;
- shows the figure for the chosen palette, where the forge follows that of the system;
- puts the reference of a header where its page says `<!-- penstock.h: First section -->`;
- writes an empty line before each list, which Python-Markdown needs and the forge does not.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from pathlib import Path

import header

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HEADERS = ROOT / "crates" / "capi" / "include"
PAGES = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
}
"""The documents outside docs that have a page on the site."""

_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r'(\]\(|src="|srcset=")([^)\s"#]+)')
_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img alt="([^"]+)" src="([^"]+)">\s*</picture>'
)
_HEADER = re.compile(r"<!-- (penstock\w*\.h): (.+) -->")
_BEFORE_LIST = re.compile(r"^(?![-*] |\d+\. |\s|\||#)(.+\n)(?=(?:[-*]|\d+\.) )", re.MULTILINE)


class Site:
    """Where the pages of the site are, and what lies elsewhere."""

    def __init__(self, into: Path, rust: Path | None) -> None:
        self.into = into
        configuration = (ROOT / "mkdocs.yml").read_text()
        self.repository = configuration.partition("\nrepo_url: ")[2].partition("\n")[0]
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(DOCS, into)
        if rust is not None:
            shutil.copytree(rust, into / "rust", ignore=shutil.ignore_patterns("*.md"))

    def write(self, source: Path) -> None:
        """Write the page of a document."""
        page = self.into / self.page(source)
        page.parent.mkdir(parents=True, exist_ok=True)
        parts, end = [], 0
        text = source.read_text()
        for code in _CODE.finditer(text):
            parts += [self._rewritten(text[end : code.start()], source), code[0]]
            end = code.end()
        page.write_text("".join([*parts, self._rewritten(text[end:], source)]))

    def page(self, source: Path) -> str:
        """The place on the site of a file, which is in docs or has a page."""
        path = os.path.relpath(source, ROOT)
        return PAGES.get(path) or os.path.relpath(source, DOCS)

    def _rewritten(self, text: str, source: Path) -> str:
        text = _BEFORE_LIST.sub(r"\1\n", text)
        text = _LINK.sub(lambda link: link[1] + self._target(link[2], source), text)
        # The figures as they are named for one palette; mkdocs.yml has the rest.
        text = _PICTURE.sub(r"![\2](\3#only-light) ![\2](\1#only-dark)", text)
        return _HEADER.sub(
            lambda found: header.page((HEADERS / found[1]).read_text(), found[2]), text
        )

    def _target(self, link: str, source: Path) -> str:
        """Where a link of a document leads from its page."""
        if "://" in link or link.startswith("mailto:"):
            return link
        target = Path(os.path.normpath(source.parent / link))
        if (target / "README.md").exists():
            target /= "README.md"
        path = os.path.relpath(target, ROOT)
        rust = f"rust/penstock_{target.name.replace('-', '_')}/index.html"
        if target.parent == ROOT / "crates" and (self.into / rust).exists():
            to = rust
        elif path in PAGES or (DOCS in target.parents and not target.is_dir()):
            to = self.page(target)
        else:
            return f"{self.repository}/{'tree' if target.is_dir() else 'blob'}/main/{path}"
        return os.path.relpath(to, os.path.dirname(self.page(source)) or ".")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("into", type=Path, help="the folder for the pages, which is replaced")
    parser.add_argument("--rust", type=Path, help="the folder that `cargo doc` has written")
    arguments = parser.parse_args()
    site = Site(arguments.into, arguments.rust)
    for source in [*DOCS.rglob("*.md"), *(ROOT / name for name in PAGES)]:
        site.write(source)


if __name__ == "__main__":
    main()
