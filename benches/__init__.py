"""The benchmarks of this repository.

They use the package ``penstock.bench`` of this checkout and what it stands on, whichever build of
Penstock is measured, so that two builds are measured in the same way.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1] / "python" / "penstock"


def _take(name: str) -> None:
    """Import a package of this checkout in place of the one that is installed."""
    folder = _PACKAGE / name
    spec = importlib.util.spec_from_file_location(
        f"penstock.{name}", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


_take("dist")
_take("bench")
