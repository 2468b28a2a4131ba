"""What needs no Legate of the functions for it; `make test-legate` runs the others."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_without_legate_the_import_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "penstock.dist.legate", raising=False)
    monkeypatch.setitem(sys.modules, "legate", None)
    with pytest.raises(ImportError, match=r"pip install penstock\[legate\]") as raised:
        importlib.import_module("penstock.dist.legate")
    assert raised.value.name == "legate"
