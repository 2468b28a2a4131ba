"""The exceptions of checkpoints."""

from __future__ import annotations

from penstock.errors import InvalidError


class CheckpointFileError(InvalidError, RuntimeError):
    """A file of a checkpoint is damaged. ``torch.load`` raises a ``RuntimeError`` for it."""


REMEDY = "the file is cut off or damaged: load an older checkpoint"


def damaged(
    path: object, cause: str, remedy: str = REMEDY, *, about: str = ""
) -> CheckpointFileError:
    """Return the error of a file, or of what the message names before the cause."""
    return CheckpointFileError(
        f"{path}: {about}{cause}", path=str(path), cause=cause, remedy=remedy
    )
