"""Lightning's plug-in for checkpoints, of the packages lightning and pytorch_lightning."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.torch.checkpoint.state import load, save

if TYPE_CHECKING:
    CheckpointIO: Any = object
else:
    try:
        CheckpointIO = import_module("lightning.fabric.plugins").CheckpointIO
    except ImportError:
        CheckpointIO = import_module("lightning_fabric.plugins").CheckpointIO


class PenstockCheckpointIO(CheckpointIO):  # type: ignore[misc, unused-ignore]
    """Saves and loads checkpoints by :func:`save` and :func:`load`, in local files.

    >>> Trainer(plugins=[PenstockCheckpointIO()])
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Save a checkpoint; make its folder if necessary.

        Raises:
            TypeError: There are storage options.
        """
        if storage_options is not None:
            raise TypeError("PenstockCheckpointIO takes no storage_options: leave them out")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save(checkpoint, path)

    def load_checkpoint(
        self, path: Any, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint, by default to the CPU.

        Args:
            path: The file.
            map_location: As for :func:`load`.
            weights_only: As for :func:`load`. ``None`` is its default, ``True``.
        """
        restricted = weights_only is not False
        loaded: dict[str, Any] = load(path, map_location, weights_only=restricted)
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        """Remove the file or folder of a checkpoint, if it is there."""
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)
