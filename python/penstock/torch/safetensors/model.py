"""Weights of modules of torch, some of whose tensors may share memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from penstock import arrays, frameworks, request, transfer
from penstock._options import OptionKeys, Unpack
from penstock.files import Path
from penstock.streams import one_stream
from penstock.torch.safetensors import dtypes
from penstock.torch.safetensors.frameworks import choose
from penstock.torch.safetensors.header import Entry
from penstock.torch.safetensors.load import load_file
from penstock.torch.safetensors.open import read_plan
from penstock.torch.safetensors.opened import OneSave, WeightsFile
from penstock.torch.safetensors.save import check_memory, save_file
from penstock.torch.safetensors.sharded import files_of
from penstock.torch.safetensors.shared import remove_duplicate_names, storage_ptr


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
    check_memory(state)
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
) -> tuple[set[str], list[str]]:
    """Fill a module from a file of :func:`save_model`, an index or a folder.

    By default, the bytes go straight into the module's tensors, wherever they are. Modules that
    change how they are loaded, by a method or a hook, get all tensors first.

    Args:
        model: A ``torch.nn.Module``. Its tensors keep their memory and device.
        filename: As for :func:`load_file`.
        strict: Whether missing and unexpected names are an error.
        device: Where tensors are loaded that are then copied into the module.
        backend: As for :func:`load_file`.
        group: As for :func:`load_file`.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        The names of the model that the file does not have, a set, and those of the file that the
        model does not have.

    Raises:
        RuntimeError: ``strict`` is set, and there are such names; a shape differs; or of the
            module's tensors that share memory, none has all of it.
        NotFoundError: A file does not exist.
        WeightsError: A header or an index is not valid.

    After these errors, a module that is filled straight from the files is as it was.
    """
    targets = model.state_dict()
    if group is None and device == "cpu" and _is_plain(model, targets):
        with ExitStack() as opened:
            files = _opened(filename, backend, options, opened)
            names = [entry.name for _, entries in files for entry in entries]
            known = set(names)
            missing = [name for name in targets if name not in known]
            unexpected = [name for name in names if name not in targets]
            check_memory({name: targets[name] for name in names if name in targets})
            _check_shapes(model, targets, files)
            found = _differences(model, targets, names, missing, unexpected, strict)
            for file, entries in files:
                _fill(model, targets, file, entries)
        return found
    state = load_file(filename, device, backend=backend, group=group, **options)
    remove_duplicate_names(targets)  # raises before the module is changed
    missing, unexpected = model.load_state_dict(state, strict=False)
    return _differences(model, targets, list(state), missing, unexpected, strict)


def _differences(
    model: Any,
    targets: Mapping[str, Any],
    names: list[str],
    missing: list[str],
    unexpected: list[str],
    strict: bool,
) -> tuple[set[str], list[str]]:
    """Return what :func:`load_model` does, or raise its error of names."""
    removed = remove_duplicate_names(targets, preferred_names=names)
    absent = set(missing)
    for others in removed.values():
        for other in others:
            if other in absent:
                absent.remove(other)
            else:
                unexpected.append(other)
    if strict and (absent or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, few in (("Missing", absent), ("Unexpected", unexpected)):
            if few:
                shown = ", ".join(f'"{name}"' for name in sorted(few))
                lines.append(f"    {what} key(s) in state_dict: {shown}")
        raise RuntimeError("\n".join(lines))
    return absent, list(unexpected)


def _is_plain(model: Any, targets: Mapping[str, Any]) -> bool:
    """Whether a state is loaded by a copy of each tensor, and no more."""
    torch: Any = frameworks.loaded("torch")
    module = torch.nn.Module
    methods = ("load_state_dict", "_load_from_state_dict", "state_dict", "_save_to_state_dict")
    hooks = ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_state_dict_hooks")
    return all(
        type(tensor) is torch.Tensor and tensor.device.type in ("cpu", "cuda")
        for tensor in targets.values()
    ) and all(
        all(getattr(type(one), method) is getattr(module, method) for method in methods)
        and not any(getattr(one, hook, None) for hook in hooks)
        for one in model.modules()
    )


def _opened(
    filename: Path, backend: str, options: OptionKeys, opened: ExitStack
) -> list[tuple[WeightsFile, list[Entry]]]:
    """Return all files of a model, whose headers are valid, each with its tensors."""
    files = []
    save = OneSave()
    for path, names in files_of(filename).items():
        file = WeightsFile(path, backend, options)
        opened.callback(file.close)
        save.add(file, names)
        wanted = file.header.entries if names is None else names
        files.append((file, [file.entry(name) for name in wanted]))
    return files


def _check_shapes(
    model: Any, targets: Mapping[str, Any], files: Sequence[tuple[WeightsFile, list[Entry]]]
) -> None:
    """Have torch raise its error of shapes that differ, before any tensor is changed."""
    torch: Any = frameworks.loaded("torch")
    shapes = {
        entry.name: dtypes.torch_shape(entry.name, entry.dtype, entry.shape)
        for _, entries in files
        for entry in entries
        if entry.name in targets
    }
    wrong = {
        name: torch.empty(shape, device="meta")
        for name, shape in shapes.items()
        if not _is_loaded(shape, tuple(targets[name].shape))
    }
    if wrong:
        model.load_state_dict(wrong, strict=False)


def _is_loaded(stored: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether torch copies a tensor of one shape into one of the other."""
    return stored == shape or (stored == (1,) and shape == ())


def _fill(
    model: Any, targets: Mapping[str, Any], file: WeightsFile, entries: Sequence[Entry]
) -> None:
    """Fill the tensors of a plain model that a file has."""
    wanted = [entry for entry in entries if entry.name in targets]
    users = Counter(storage_ptr(targets[entry.name]) for entry in wanted)
    pieces, others = [], []
    for entry in wanted:
        target = targets[entry.name]
        if _fits(entry, target) and users[storage_ptr(target)] == 1:
            pieces.append((entry.begin, arrays.contiguous_destination(target)))
        else:
            others.append(entry.name)
    _read(file, pieces)
    if others:  # torch converts them, or copies them in its order
        # Not by a mapping, for which the path would be opened again.
        few = read_plan(file, choose("pt", "cpu"), others, copy=True)
        model.load_state_dict(few, strict=False)


def _read(file: WeightsFile, pieces: Sequence[tuple[int, arrays.View]]) -> None:
    """Fill memory from offsets in a file, by one request."""
    if not pieces:
        return
    views = [view for _, view in pieces]
    ranges = [(begin, view.nbytes, view.pointer) for begin, view in pieces]
    stream = one_stream((view.stream, view.device) for view in views)
    where = file.file, request.READ, np.array(ranges, transfer.RANGE), file.options
    transfer.finish(transfer.start(*where, stream=stream, keep=views))
    for view in views:
        arrays.note_write(view)


def _fits(entry: Entry, target: Any) -> bool:
    """Whether the bytes of a file are those of a tensor."""
    name = dtypes.NAMES.get(entry.dtype)
    return (
        tuple(target.shape) == entry.shape
        and str(target.dtype) == f"torch.{name}"
        and bool(target.is_contiguous())
        and not (target.is_conj() or target.is_neg())
        and entry.nbytes > 0
    )
