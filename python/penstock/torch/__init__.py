"""Penstock for programs that use torch: weights from and to safetensors files.

>>> import penstock.torch as pt
>>> state = pt.load_file("model.safetensors", device="cuda")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.torch.safetensors import (
        SafetensorError,
        load_file,
        load_model,
        safe_open,
        save_file,
        save_model,
    )

_MODULES = {
    "SafetensorError": "safetensors",
    "load_file": "safetensors",
    "load_model": "safetensors",
    "safe_open": "safetensors",
    "save_file": "safetensors",
    "save_model": "safetensors",
}
"""The module of each name, imported when it is first used."""

__all__ = [
    "SafetensorError",
    "load_file",
    "load_model",
    "safe_open",
    "save_file",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
