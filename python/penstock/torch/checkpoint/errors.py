"""The exceptions of checkpoints."""

from __future__ import annotations

from penstock.errors import InvalidError


class CheckpointFileError(InvalidError, RuntimeError):
    """A file of a checkpoint is damaged. ``torch.load`` raises a ``RuntimeError`` for it."""


REMEDY = "the file is cut off or damaged: load an older checkpoint"
