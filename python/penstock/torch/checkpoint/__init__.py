"""Checkpoints: state dicts in files of torch's own formats, at the rate of the disk.

``save`` and ``load`` replace ``torch.save`` and ``torch.load``; ``PenstockWriter`` and
``PenstockReader`` are for ``torch.distributed.checkpoint``, and ``lightning.PenstockCheckpointIO``
is for Lightning. What they write, torch reads, and the other way round.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.torch.checkpoint.errors import CheckpointFileError
    from penstock.torch.checkpoint.huggingface import (
        PenstockHuggingFaceReader,
        PenstockHuggingFaceWriter,
    )
    from penstock.torch.checkpoint.reader import PenstockReader
    from penstock.torch.checkpoint.state import load, save
    from penstock.torch.checkpoint.writer import PenstockWriter

__all__ = [
    "CheckpointFileError",
    "PenstockHuggingFaceReader",
    "PenstockHuggingFaceWriter",
    "PenstockReader",
    "PenstockWriter",
    "load",
    "save",
]

_MODULES = {
    "CheckpointFileError": "errors",
    "PenstockHuggingFaceReader": "huggingface",
    "PenstockHuggingFaceWriter": "huggingface",
    "PenstockReader": "reader",
    "PenstockWriter": "writer",
    "load": "state",
    "save": "state",
}


def __getattr__(name: str) -> Any:
    # torch.distributed is imported only for what needs it.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
