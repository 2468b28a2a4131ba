"""Loading many pieces of a file as one request."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import arrays, report, request, transfer
from penstock._keys import ArrayKeys
from penstock._native import CData, lib, new_report
from penstock._options import OptionKeys, Unpack, resolve
from penstock.dtypes import ElementType, element_type
from penstock.errors import EndOfFileError, Error, IncompatibleError, InvalidError, check
from penstock.files import READ, NativeFile, Path
from penstock.placement import Device, Library, allocate, place
from penstock.request import Request
from penstock.sequences import described, listed
from penstock.shapes import lengths_of
from penstock.stacks import Wanted, allocate_stacks
from penstock.streams import one_stream, stream_handle

_FORM = "(offset, out) or (offset, shape, dtype)"


def load_many(path: Path, pieces: Iterable[Any], **keys: Unpack[ArrayKeys]) -> list[Any]:
    """Read many arrays from the plain bytes of a file, as one request.

    Pieces that are close together in the file are read together, whatever their order.

    Args:
        path: The file.
        pieces: Pairs ``(offset, out)`` of bytes of the file to skip and an array to fill, as for
            :func:`load`; or ``(offset, shape, dtype)`` for a new array. The arrays must not
            overlap, the pieces may. Arrays may be in different memories.
        device: Where new arrays go, as for :func:`load`. They share one allocation, which is freed
            with the last of them.
        stream: A CUDA stream, as for :func:`load`.
        like: The library of new arrays, as there.
        pin: Whether new arrays in host memory are page-locked, as there.
        **keys: The arguments above from ``device`` on, and those of :class:`penstock.OptionKeys`.

    Returns:
        The arrays, in the order of the pieces.

    Raises:
        NotFoundError: The file does not exist.
        EndOfFileError: The file ends before a piece does.
        InvalidError: An array is read-only, requires grad or overlaps another one, or an offset is
            negative.
        IncompatibleError: A piece has another form; a ``TypeError`` that names its number.

    >>> ps.load_many("weights.bin", [(0, embedding), (1 << 20, head)])
    >>> a, b = ps.load_many("w.bin", [(0, (64, 64), "f4"), (1 << 20, 8, "i8")], device="cuda")
    """
    given = _arguments(**keys)
    with NativeFile(path, READ) as file:
        loading = _Loading(pieces, given.device, given.after, blocking=True)
        if loading.stream is None and loading.nbytes <= transfer.AT_ONCE:
            done = new_report()
            ranges = transfer.native_ranges(loading.ranges)
            check(lib.penstock_readv(file.handle, ranges, len(loading.ranges), given.options, done))
            report.remember(done)
        else:
            transfer.finish(loading.submit(file, given.options))
    loading.complete()
    return loading.arrays


def load_many_async(
    path: Path, pieces: Iterable[Any], **keys: Unpack[ArrayKeys]
) -> Request[list[Any]]:
    """Start what :func:`load_many` does, and return at once.

    With a ``stream``, the transfer starts after the work queued there, and later work on that
    stream starts after the transfer. Arrays that are given must be C-contiguous.

    >>> r = ps.load_many_async("weights.bin", [(0, embedding), (1 << 20, head)])
    >>> embedding, head = r.wait()
    """
    given = _arguments(**keys)
    file = NativeFile(path, READ)
    loading = _Loading(pieces, given.device, given.after, blocking=False)
    made = loading.submit(file, given.options, flags=0, explicit=given.after is not None)
    loading.complete()
    return made


class _Arguments(NamedTuple):
    """The keyword arguments of a call, resolved."""

    device: Device
    after: int | None
    """The handle of the caller's stream."""
    options: CData


def _arguments(
    *,
    device: Device = None,
    stream: Any = None,
    like: Library | None = None,
    pin: bool = False,
    **options: Unpack[OptionKeys],
) -> _Arguments:
    after, native_options = stream_handle(stream), resolve(options)
    return _Arguments(place(device, like, pin), after, native_options)


class _Loading:
    """The arrays, views and ranges of one call."""

    def __init__(
        self, pieces: Iterable[Any], device: Device, after: int | None, *, blocking: bool
    ) -> None:
        given = listed(pieces, "pieces", _FORM)
        for number, piece in enumerate(given):
            if type(piece) is not tuple or not 2 <= len(piece) <= 3:
                _check(piece, number)
        self.arrays: list[Any] = [piece[1] if len(piece) == 2 else None for piece in given]
        self._copies: list[tuple[arrays.View, Callable[[], None] | None]] = []
        self.ranges = np.zeros(len(given), transfer.RANGE)
        self.ranges["offset"] = [_offset(piece[0], number) for number, piece in enumerate(given)]
        new: dict[Any, list[int]] = {}
        shape = dtype = numbers = None
        for number, piece in enumerate(given):
            if len(piece) == 3:
                # Neighbours often share the objects, which are then checked once.
                if numbers is None or piece[1] is not shape or piece[2] is not dtype:
                    numbers = new.setdefault(_new_array(piece, number), [])
                    shape, dtype = piece[1:]
                numbers.append(number)
                continue
            try:
                if blocking:
                    view, copy_back = arrays.destination(piece[1], after)
                else:
                    view, copy_back = arrays.contiguous_destination(piece[1], after), None
            except Error as error:
                raise error.about(f"piece {number}") from error
            self.ranges["length"][number] = view.nbytes
            self.ranges["buffer"][number] = view.pointer
            self._copies.append((view, copy_back))
        arrays.refuse_overlap(view for view, _ in self._copies)
        self._views = [view for view, _ in self._copies]
        if new:
            self._add_new(new, device, after)
        self.stream = one_stream((view.stream, view.device) for view in self._views)
        self.nbytes = int(self.ranges["length"].sum())

    def _add_new(self, new: dict[Any, list[int]], device: Device, after: int | None) -> None:
        """Make new arrays of the shapes and types, each for some pieces."""
        for (lengths, dtype), numbers in list(new.items()):
            if not lengths:  # a scalar cannot be part of a stack
                del new[lengths, dtype]
                for number in numbers:
                    self._set(number, allocate(lengths, dtype, device, after), after)
        if not new:
            return
        wanted = [Wanted(lengths, dtype, len(numbers)) for (lengths, dtype), numbers in new.items()]
        stacks, memory = allocate_stacks(wanted, device, after)
        self._views.append(arrays.view(memory, after))
        for some, stack, numbers in zip(wanted, stacks, new.values(), strict=True):
            self.ranges["length"][numbers] = math.prod(some.shape) * some.dtype.itemsize
            self.ranges["buffer"][numbers] = stack.address + stack.step * np.arange(len(numbers))
            for number, array in zip(numbers, stack.arrays(), strict=True):
                self.arrays[number] = array

    def _set(self, number: int, array: Any, after: int | None) -> None:
        view = arrays.view(array, after)
        self.arrays[number] = array
        self.ranges["length"][number] = view.nbytes
        self.ranges["buffer"][number] = view.pointer
        self._views.append(view)

    def submit(self, file: NativeFile, options: Any, **keys: Any) -> Request[list[Any]]:
        """Start a request, with other arguments of :func:`penstock.transfer.start`."""
        keys |= {"stream": self.stream, "keep": self._views, "array": self.arrays}
        return transfer.start(file, request.READ, self.ranges, options, **keys)

    def complete(self) -> None:
        """Copy temporaries to the given arrays, and record the writes in their frameworks."""
        for view, copy_back in self._copies:
            transfer.complete(view, copy_back)


def _check(piece: Any, number: int) -> None:
    if not isinstance(piece, (tuple, list)) or len(piece) not in (2, 3):
        raise IncompatibleError(
            f"piece {number}: {described(piece)} is not a piece", remedy=f"give {_FORM}"
        )


def _offset(offset: Any, number: int) -> int:
    if type(offset) is int and 0 <= offset <= transfer.LAST_OFFSET:
        return offset
    if not hasattr(offset, "__index__"):
        raise IncompatibleError(
            f"piece {number}: the offset {offset!r} is not an integer", remedy=f"give {_FORM}"
        )
    try:
        return transfer.offset_of(offset)
    except (InvalidError, EndOfFileError) as error:
        raise error.about(f"piece {number}") from error


def _new_array(piece: Sequence[Any], number: int) -> tuple[tuple[int, ...], ElementType]:
    """Return the shape and the type of a piece that is a new array."""
    try:
        return _lengths(piece[1]), element_type(piece[2])
    except Error as error:
        raise error.about(f"piece {number}") from error
    except (TypeError, ValueError) as error:
        raise IncompatibleError(f"piece {number}: {error}", remedy=f"give {_FORM}") from error


def _lengths(shape: Any) -> tuple[int, ...]:
    lengths = lengths_of(shape)
    if any(length < 0 for length in lengths):
        raise InvalidError(f"shape {shape} has a negative length")
    return lengths
