"""DeepSpeed's operator ``async_io``: transfers through host memory."""

from __future__ import annotations

from typing import Any

from penstock import arrays, frameworks
from penstock.deepnvme.handle import Handle
from penstock.deepnvme.operation import Target
from penstock.errors import InvalidError
from penstock.memory import copy_bytes
from penstock.streams import wait_for


class aio_handle(Handle):  # noqa: N801 - DeepSpeed's name
    """Transfers between files and arrays; those on a GPU go through pinned host memory.

    >>> handle = aio_handle(intra_op_parallelism=8)
    >>> handle.async_pread(tensor, "w.bin")
    0
    >>> handle.wait()       # raises if the transfer failed
    1
    """

    def _route(self, view: arrays.View, target: Target) -> tuple[str | None, str]:
        return ("staged" if view.device >= 0 else None), ""


def aio_read(
    buffer: Any,
    filename: Target,
    block_size: int,
    queue_depth: int,
    single_submit: bool,
    overlap_events: bool,
    validate: bool,
) -> int:
    """Call :meth:`aio_handle.read` of a handle with these settings."""
    handle = aio_handle(block_size, queue_depth, single_submit, overlap_events)
    return handle.read(buffer, filename, validate)


def aio_write(
    buffer: Any,
    filename: Target,
    block_size: int,
    queue_depth: int,
    single_submit: bool,
    overlap_events: bool,
    validate: bool,
) -> int:
    """Call :meth:`aio_handle.write` of a handle with these settings."""
    handle = aio_handle(block_size, queue_depth, single_submit, overlap_events)
    return handle.write(buffer, filename, validate)


def deepspeed_memcpy(dest: Any, src: Any) -> int:
    """Copy an array to another one of the same length in bytes, on any device, and return 0."""
    source = arrays.source(src)
    destination = arrays.contiguous_destination(frameworks.detached(dest))
    if source.nbytes != destination.nbytes:
        raise InvalidError(
            f"an array of {source.nbytes} bytes cannot be copied to one of {destination.nbytes}"
        )
    wait_for(source.stream, source.device)
    wait_for(destination.stream, destination.device)
    copy_bytes(destination.pointer, source.pointer, source.nbytes)
    arrays.note_write(destination)
    return 0
