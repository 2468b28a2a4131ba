"""Penstock for programs that use torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.torch.data import Batches, HDF5Dataset

_MODULES = {"Batches": "data", "HDF5Dataset": "data"}

__all__ = ["Batches", "HDF5Dataset"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
