"""The benchmarks of this repository.

They use the package ``penstock.bench`` of this checkout, whichever build of Penstock is measured,
so that two builds are measured in the same way.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1] / "python" / "penstock" / "bench"
_spec = importlib.util.spec_from_file_location(
    "penstock.bench", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
)
assert _spec is not None
assert _spec.loader is not None
sys.modules["penstock.bench"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["penstock.bench"])
