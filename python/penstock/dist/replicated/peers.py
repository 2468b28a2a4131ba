"""Copies between the GPUs of one host: each rank fetches the shares of all others.

To open an allocation of another process (CUDA's IPC handles) takes 12 to 45 us for each 2 MiB of
it: longer for a whole result than to read the file. So each rank has a small outbox in GPU memory,
which the others open: two slots that it fills in turn with the next part of its share. When all
ranks agree that their slots are full, each copies them into its own result, while the next parts
arrive. A rank that agrees has ended its copies of the part before, so the slot of that part can be
filled again.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock import arrays
from penstock.dist.cuda_driver import Driver
from penstock.dist.gathering import Gathering, in_words
from penstock.errors import UnavailableError

_SLOT = 32 << 20
"""Bytes of a slot, at most."""
_SLOTS = 2
_LAZY_ENABLE_PEER_ACCESS = 1
_NON_BLOCKING = 1
_STEP = "load_replicated (memory of the other GPUs)"
_NEXT = "load_replicated (shares)"


class _Handle(ctypes.Structure):
    """``CUipcMemHandle``, which is passed by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


@dataclass(frozen=True)
class _Exported:
    """The outbox of a rank, as sent to the other ranks."""

    handle: bytes
    why: str
    """Why the other ranks cannot open it; empty if they can."""


class Peers:
    """Copies out of the outboxes of the other ranks, which are open here. :func:`connect` makes it.

    If ranks are missing in a step, nothing is closed: they may still copy out of the outbox.
    """

    words = "shares exchanged by copies between the GPUs"

    def __init__(self, group: Gathering, view: arrays.View) -> None:
        self._group, self._view = group, view
        self._error: Exception | None = None
        self._slot = min(_SLOT, view.nbytes)
        self._slots = itertools.cycle(range(0, _SLOTS * self._slot, self._slot))
        self._others: list[tuple[int, int, ctypes.c_void_p]] = []
        """Each other rank, the address of its outbox here, and the stream of the copies from it."""
        self._opened, self._own = ExitStack(), ExitStack()
        self._driver = Driver(view.device)
        self._own.callback(self._driver.close)
        self._outbox = ctypes.c_uint64()
        self._stream = ctypes.c_void_p()

    def export(self) -> _Exported:
        """Make the outbox, and return what the other ranks need to open it."""
        handle = _Handle()
        with self._driver.current():
            self._stream = self._new_stream(self._own)
            size = ctypes.c_size_t(_SLOTS * self._slot)
            self._driver.call("cuMemAlloc_v2", ctypes.byref(self._outbox), size)
            self._own.callback(self._driver.call, "cuMemFree_v2", self._outbox)
            self._driver.call("cuIpcGetMemHandle", ctypes.byref(handle), self._outbox)
        return _Exported(bytes(handle.bytes), "")

    def open(self, all_exported: Sequence[_Exported]) -> None:
        """Open the outboxes of all ranks but this one."""
        own, size = self._group.rank, self._group.size
        with self._driver.current():
            # Beginning with the next one, so that not all ranks read from one GPU at a time.
            for rank in (*range(own + 1, size), *range(own)):
                base = ctypes.c_uint64()
                stream = self._new_stream(self._opened)
                handle = _Handle.from_buffer_copy(all_exported[rank].handle)
                flags = _LAZY_ENABLE_PEER_ACCESS
                self._driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(base), handle, flags)
                self._opened.callback(self._driver.call, "cuIpcCloseMemHandle", base)
                self._others.append((rank, base.value, stream))

    def _new_stream(self, owner: ExitStack) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self._driver.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        owner.callback(self._driver.call, "cuStreamDestroy_v2", stream)
        return stream

    def share(self, bounds: Sequence[int]) -> None:
        """Exchange the shares of a round; the last copies may be pending at the end.

        A failure does not keep this rank from the steps that follow; :meth:`finish` raises it.
        """
        ranges = list(itertools.pairwise(bounds))
        longest = max(stop - start for start, stop in ranges)
        for done in range(0, longest, self._slot):
            parts = [(start + done, min(start + done + self._slot, stop)) for start, stop in ranges]
            slot = next(self._slots)
            self._try(self._fill, slot, parts[self._group.rank])
            self._group.agree(_NEXT)
            self._try(self._fetch, slot, parts)

    def _try(self, step: Callable[..., object], *arguments: Any) -> None:
        if self._error is None:
            self._attempt(step, *arguments)

    def _attempt(self, step: Callable[..., object], *arguments: Any) -> None:
        try:
            with self._driver.current():
                step(*arguments)
        except Exception as error:
            self._error = self._error or error

    def _fill(self, slot: int, part: tuple[int, int]) -> None:
        """Copy a part of the own share to a slot, once all earlier parts have been fetched."""
        self._copy(self._outbox.value + slot, self._view.pointer + part[0], part, self._stream)
        for stream in (self._stream, *(stream for *_, stream in self._others)):
            self._driver.call("cuStreamSynchronize", stream)

    def _fetch(self, slot: int, parts: Sequence[tuple[int, int]]) -> None:
        """Start to copy a part of each other share to its place in the result."""
        for rank, outbox, stream in self._others:
            part = parts[rank]
            self._copy(self._view.pointer + part[0], outbox + slot, part, stream)

    def _copy(
        self, target: int, source: int, part: tuple[int, int], stream: ctypes.c_void_p
    ) -> None:
        if part[0] < part[1]:
            places = ctypes.c_uint64(target), ctypes.c_uint64(source)
            length = ctypes.c_size_t(part[1] - part[0])
            self._driver.call("cuMemcpyDtoDAsync_v2", *places, length, stream)

    def finish(self) -> None:
        """Wait until all shares are here, and until no rank uses the outbox of another one."""
        # All of it, even after a failure, because the other ranks free their outboxes after this.
        for *_, stream in self._others:
            self._attempt(self._driver.call, "cuStreamSynchronize", stream)
        self.leave_others()
        try:
            self._group.agree("load_replicated (all shares)")
        except BaseException:
            self._own.pop_all()  # a rank that is late may still copy out of the outbox
            raise
        if self._error is not None:
            raise self._error

    def leave_others(self) -> None:
        """Close the outboxes of the other ranks."""
        self._attempt(self._opened.close)

    def close(self) -> None:
        """Free the outbox, which no other rank has open any more."""
        with self._driver.current():
            self._own.close()


class Refusal(NamedTuple):
    """The reason for which a rank cannot take part."""

    rank: int
    why: str


def connect(group: Gathering, view: arrays.View, is_one_host: bool) -> Peers | Refusal:
    """Open the outboxes of all ranks on each of them, or return why that is not possible.

    Collective: all ranks connect, or all return the same refusal.
    """
    made: Peers | None = None
    exported = _Exported(b"", "")
    try:
        if not is_one_host:
            raise UnavailableError("the ranks are on several hosts")
        made = Peers(group, view)
        exported = made.export()
    except Exception as error:
        exported = _Exported(b"", in_words(error))
    all_exported = group.all_gather(exported, _STEP)
    refusal = _first([one.why for one in all_exported])
    if refusal is None and made is not None:
        why = ""
        try:
            made.open(all_exported)
        except Exception as error:
            why = in_words(error)
        refusal = _first(group.all_gather(why, _STEP))
        if refusal is None:
            return made
        made.leave_others()
        group.all_gather("", _STEP)
    if made is not None:
        # The other ranks continue with the next step, which reports a failed context.
        with suppress(Exception):
            made.close()
    assert refusal is not None
    return refusal


def _first(reasons: Sequence[str]) -> Refusal | None:
    return next((Refusal(rank, why) for rank, why in enumerate(reasons) if why), None)
