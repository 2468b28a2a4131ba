"""Weights of modules of torch, some of whose tensors may share memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._options import OptionKeys
from penstock.files import Path
from penstock.torch.safetensors.load import load_file
from penstock.torch.safetensors.save import save_file
from penstock.torch.safetensors.shared import remove_duplicate_names

if TYPE_CHECKING:
    from typing_extensions import Unpack


def save_model(
    model: Any,
    filename: Path,
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
    **options: Unpack[OptionKeys],
) -> None:
    """Save the state of a module as ``safetensors.torch.save_model`` does.

    Of tensors that share memory, one is saved; ``metadata`` says under which name.

    Args:
        model: A ``torch.nn.Module``.
        filename: The file.
        metadata: Text to add.
        force_contiguous: Whether tensors of another layout are saved as contiguous copies.
        **options: As for :func:`save_file`.

    Raises:
        RuntimeError: Of tensors that share memory, none has all of it.
        ValueError: A tensor is not contiguous, or sparse.
        WeightsIOError: The file cannot be written: a ``SafetensorError`` and an ``OSError``.
    """
    state = model.state_dict()
    metadata = None if metadata is None else dict(metadata)
    for kept, others in remove_duplicate_names(state).items():
        for other in others:
            metadata = metadata or {}
            metadata.setdefault(other, kept)
            del state[other]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        save_file(state, filename, metadata, **options)
    except ValueError as error:
        if "non contiguous" not in str(error):
            raise
        raise ValueError(f"{error} Or use save_model(..., force_contiguous=True).") from None


def load_model(
    model: Any,
    filename: Path,
    strict: bool = True,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    group: Any = None,
    **options: Unpack[OptionKeys],
) -> tuple[list[str], list[str]]:
    """Fill a module from a file of :func:`save_model`, an index or a folder.

    Args:
        model: A ``torch.nn.Module``. Its tensors keep their memory and device.
        filename: As for :func:`load_file`.
        strict: Whether missing and unexpected names are an error.
        device: Where the tensors are loaded before they are copied into the model.
        backend: As for :func:`load_file`.
        group: As for :func:`load_file`.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        The names of the model that the file does not have, and those of the file that the model
        does not have.

    Raises:
        RuntimeError: ``strict`` is set, and there are such names; or a shape differs.
    """
    state = load_file(filename, device, backend=backend, group=group, **options)
    removed = remove_duplicate_names(model.state_dict(), preferred_names=state)
    missing, unexpected = model.load_state_dict(state, strict=False)
    absent = set(missing)
    for others in removed.values():
        for other in others:
            if other in absent:
                absent.remove(other)
            else:
                unexpected.append(other)
    if strict and (absent or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, names in (("Missing", absent), ("Unexpected", unexpected)):
            if names:
                shown = ", ".join(f'"{name}"' for name in sorted(names))
                lines.append(f"    {what} key(s) in state_dict: {shown}")
        raise RuntimeError("\n".join(lines))
    return sorted(absent), list(unexpected)
