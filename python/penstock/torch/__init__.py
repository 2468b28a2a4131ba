"""Penstock for programs that use torch: batches from HDF5, weights, checkpoints.

>>> import penstock.torch as pt
>>> state = pt.load_file("model.safetensors", device="cuda")
>>> batches = pt.Batches(pt.HDF5Dataset("train.h5", ["image", "label"], device="cuda"), 256)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.torch.checkpoint import (
        CheckpointFileError,
        PenstockHuggingFaceReader,
        PenstockHuggingFaceWriter,
        PenstockReader,
        PenstockWriter,
        load,
        save,
    )
    from penstock.torch.data import Batches, HDF5Dataset
    from penstock.torch.safetensors import (
        PrefetchLoader,
        SafeSlice,
        SafetensorError,
        iter_weights,
        load_file,
        load_model,
        safe_open,
        save_file,
        save_model,
    )

_NAMES = {
    "checkpoint": "CheckpointFileError PenstockHuggingFaceReader PenstockHuggingFaceWriter "
    "PenstockReader PenstockWriter load save",
    "data": "Batches HDF5Dataset",
    "safetensors": "PrefetchLoader SafeSlice SafetensorError iter_weights load_file load_model "
    "safe_open save_file save_model",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
"""The module of each name, imported when it is first used."""

__all__ = [
    "Batches",
    "CheckpointFileError",
    "HDF5Dataset",
    "PenstockHuggingFaceReader",
    "PenstockHuggingFaceWriter",
    "PenstockReader",
    "PenstockWriter",
    "PrefetchLoader",
    "SafeSlice",
    "SafetensorError",
    "iter_weights",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
