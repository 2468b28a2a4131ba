"""Saves of tensors, straight from the memory in which they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from penstock import arrays, frameworks, request, transfer
from penstock._native import NULL, ffi, lib
from penstock._options import OptionKeys, Unpack, resolve
from penstock.dtypes import element_type
from penstock.errors import Error
from penstock.files import WRITE, NativeFile, Path, path_of_new
from penstock.replacement import Replacement
from penstock.staging import to_host
from penstock.streams import one_stream
from penstock.torch.safetensors.dtypes import format_name, stored_shape
from penstock.torch.safetensors.errors import WeightsTypeError, of_save
from penstock.torch.safetensors.header import Entry, encode_header
from penstock.torch.safetensors.shared import find_shared_tensors

_SHARED = "https://huggingface.co/docs/safetensors/torch_shared_tensors"


def save_file(
    tensors: dict[str, Any],
    filename: Path,
    metadata: dict[str, str] | None = None,
    **options: Unpack[OptionKeys],
) -> None:
    """Save tensors of torch as ``safetensors.torch.save_file`` does: the same bytes.

    The file is written under a temporary name and then renamed: a reader sees the old file or the
    new one, and after an error the old one is still there. Tensors in GPU memory are written from
    there. They must not change meanwhile.

    Args:
        tensors: Dense contiguous tensors, of which no two share memory.
        filename: The file.
        metadata: Text to add.
        **options: See :class:`penstock.OptionKeys`. With ``durable=True``, the new file survives a
            power failure.

    Raises:
        ValueError: A tensor is sparse, nested or not contiguous, or it is none.
        RuntimeError: Tensors share memory: save a model with :func:`save_model`. Or one is on the
            device ``meta``.
        WeightsError: The format does not have the data type: a ``SafetensorError``.
        WeightsTypeError: A name or metadata is not text: a ``SafetensorError`` and a ``TypeError``.
        WeightsIOError: The file cannot be written: a ``SafetensorError`` and an ``OSError``.
    """
    check_tensors(tensors)
    write_file(tensors, filename, metadata, options)


def save(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Return the bytes of a file with tensors of torch, as ``safetensors.torch.save`` does.

    Raises:
        ValueError, RuntimeError, WeightsError: As for :func:`save_file`.
    """
    check_tensors(tensors)
    return encode(tensors, metadata)


def check_tensors(tensors: Any) -> None:
    """Raise an error if a file cannot have these tensors of torch."""
    torch = frameworks.torch_module()
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    sparse = []
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}"
            )
        if tensor.is_nested:
            raise ValueError(
                f"You are trying to save a nested tensor: `{name}` which the format does not have. "
                "Save the tensors of its `.unbind()`, or `.to_padded_tensor(0)`."
            )
        if tensor.layout != torch.strided:
            sparse.append(name)
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not "
            "support. You can make it a dense tensor before saving with `.to_dense()` but be aware "
            "this might make a much larger file than needed."
        )
    check_memory(tensors)
    shared = [names for names in find_shared_tensors(tensors) if len(names) > 1]
    if shared:
        raise RuntimeError(
            f"Some tensors share memory, this will lead to duplicate memory on disk and potential "
            f"differences when loading them again: {shared}. Save the model with `save_model`, or "
            f"clones of the tensors. See {_SHARED}"
        )
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. "
                "Call `.contiguous()` on it before saving; of tensors that are parts of one, save "
                "that one."
            )


def check_memory(tensors: Mapping[str, Any]) -> None:
    """Raise an error if a tensor of torch has no memory, or less than it needs."""
    torch = frameworks.torch_module()
    for name, tensor in tensors.items():
        if tensor.device.type == "meta":
            raise NotImplementedError(
                f"tensor {name!r} is on the device meta, where tensors have no data: save it after "
                "its data are there, as after `.to_empty()` and a load of the module"
            )
        if tensor.layout == torch.strided and tensor.device.type in ("cpu", "cuda"):
            try:
                frameworks.address(tensor)
            except Error as error:
                raise error.about(f"tensor {name!r}") from None


def write_file(
    tensors: Mapping[str, Any],
    filename: Path,
    metadata: Mapping[str, str] | None,
    options: OptionKeys,
) -> None:
    """Save arrays of any library, which are C-contiguous or are copied."""
    native = resolve(options)
    durable = native != NULL and native.durable == lib.PENSTOCK_CHOICE_YES
    start, entries, views = _described(tensors, metadata)
    path = path_of_new(filename)
    try:
        with Replacement(FilePath(path), durable=durable) as descriptor:
            _write(descriptor, start, entries, views, native)
    except OSError as error:
        raise of_save(error, str(path)) from None


def encode(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None) -> bytes:
    """Return the bytes of a file with arrays of any library."""
    start, entries, views = _described(tensors, metadata)
    parts: list[Any] = [start]
    on_host = [_on_host(views[name]) for name in entries]  # keeps the memory of the parts
    parts += [ffi.buffer(ffi.cast("char *", view.pointer), view.nbytes) for view in on_host]
    return b"".join(parts)


def _on_host(view: arrays.View) -> arrays.View:
    if view.device < 0:
        return view
    plain = replace(view, shape=(view.nbytes,), dtype=element_type("uint8"))
    return arrays.view(to_host(plain))


def _described(
    tensors: Mapping[str, Any], metadata: Mapping[str, str] | None
) -> tuple[bytes, dict[str, Entry], dict[str, arrays.View]]:
    """Return the header of a file, its entries, and the memory of each."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict of text, not a {type(metadata).__name__}")
    views: dict[str, arrays.View] = {}
    described: dict[str, tuple[str, Sequence[int]]] = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise WeightsTypeError(f"the name {name!r} is not text")
        try:
            views[name], dtype, shape = _memory(tensor)
        except Error as error:
            raise error.about(f"tensor {name!r}") from None
        described[name] = dtype, shape
    start, entries = encode_header(described, metadata)
    return start, entries, views


def _memory(tensor: Any) -> tuple[arrays.View, str, tuple[int, ...]]:
    """Return the memory of an array that can be written to a file, its data type and its shape."""
    torch: Any = frameworks.loaded("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        view = arrays.source(tensor)
        if view.dtype.numpy is not None and not view.dtype.numpy.isnative:
            native = view.dtype.numpy.newbyteorder("=")
            view = arrays.source(np.asarray(view.array).astype(native))
        return view, format_name(view.dtype.name), view.shape
    if tensor.is_quantized:
        raise WeightsTypeError(
            f"the format has no quantized types such as {tensor.dtype}",
            remedy="save dequantize(), or int_repr() with scale and zero point",
        )
    dtype = format_name(str(tensor.dtype).removeprefix("torch."))
    plain = tensor if tensor.device.type in ("cpu", "cuda") else tensor.detach().to("cpu")
    return arrays.source(plain), dtype, stored_shape(dtype, tuple(tensor.shape))


def _write(
    descriptor: int,
    start: bytes,
    entries: Mapping[str, Entry],
    views: Mapping[str, arrays.View],
    options: Any,
) -> None:
    head = np.frombuffer(start, np.uint8)
    ranges = np.empty(len(entries) + 1, transfer.RANGE)
    ranges[0] = 0, len(start), head.__array_interface__["data"][0]
    ranges["offset"][1:] = [entry.begin for entry in entries.values()]
    ranges["length"][1:] = [entry.nbytes for entry in entries.values()]
    ranges["buffer"][1:] = [views[name].pointer for name in entries]
    # A tensor without elements may have no address.
    ranges = ranges[ranges["length"] > 0]
    with NativeFile(descriptor, WRITE) as file:
        stream = one_stream((view.stream, view.device) for view in views.values())
        keep = head, views
        transfer.finish(
            transfer.start(file, request.WRITE, ranges, options, stream=stream, keep=keep)
        )
