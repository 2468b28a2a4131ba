"""The file ``.metadata`` of a distributed checkpoint."""

from __future__ import annotations

import dataclasses
import pickle
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata

from penstock.torch.checkpoint import unpickling
from penstock.torch.checkpoint.errors import damaged


def unpickled(path: Path, content: bytes, *, weights_only: bool = True) -> Metadata:
    """Return the metadata that a file holds; ``path`` is what messages call it.

    Args:
        path: The file.
        content: Its bytes.
        weights_only: Whether it may hold only what a checkpoint needs and what
            ``torch.serialization.add_safe_globals`` allows.

    Raises:
        pickle.UnpicklingError: ``weights_only`` does not allow an object.
        CheckpointFileError: The file is cut off or damaged.
    """
    try:
        if weights_only:
            metadata: Metadata = unpickling.load(content, _allowed)
        else:
            metadata = pickle.loads(content)
        return metadata
    except unpickling.Refused as error:
        raise pickle.UnpicklingError(f"{path}: {error}") from None
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        IndexError,
        KeyError,
        AttributeError,
        TypeError,
    ) as error:
        raise damaged(path, str(error)) from error


def data_files(metadata: Metadata) -> set[str]:
    """Return the names of the files with the data of a checkpoint."""
    stored = (metadata.storage_data or {}).values()
    return {info.relative_path for info in stored if hasattr(info, "relative_path")}


_SAFE = {
    ("builtins", "frozenset"),
    ("builtins", "set"),
    ("collections", "OrderedDict"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
}
_PATHS = {"PosixPath", "PurePosixPath", "PureWindowsPath"}


def _allowed(module: str, name: str) -> Any:
    """Return a class or function that only makes objects, and has no other effects."""
    try:
        return _found(module, name)
    except ImportError as error:
        raise unpickling.Refused(f"the metadata names {module}.{name}: {error}") from error


def _found(module: str, name: str) -> Any:
    if (module, name) in _SAFE or (module.partition(".")[0] == "pathlib" and name in _PATHS):
        return getattr(import_module(module), name)
    if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
        return getattr(torch, name)
    if module.startswith("torch.distributed.checkpoint."):
        found = getattr(import_module(module), name, None)
        if isinstance(found, type) and (dataclasses.is_dataclass(found) or issubclass(found, Enum)):
            return found
    for allowed in torch.serialization.get_safe_globals():
        known, path = allowed if isinstance(allowed, tuple) else (allowed, None)
        if path in (None, f"{module}.{name}") and (
            path or (known.__module__, known.__qualname__) == (module, name)
        ):
            return known
    raise unpickling.Refused(
        f"the metadata names {module}.{name}, which weights_only does not allow; if you trust "
        "the checkpoint, call torch.serialization.add_safe_globals or pass weights_only=False"
    )
