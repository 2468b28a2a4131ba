"""Exchanges of shares: the share of each rank gets into the memory of all other ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from penstock import arrays, pinned
from penstock._native import ffi
from penstock.dist.gathering import Gathering, RankError
from penstock.dist.replicated import peers
from penstock.dist.replicated.source import OnGpu
from penstock.dist.torch_group import TorchGroup
from penstock.dtypes import element_type
from penstock.errors import InvalidError, UnavailableError
from penstock.memory import copy_bytes

WAYS = ("auto", "nccl", "peer", "host")

_PIECE = 16 << 20
"""Bytes of a share that go through host memory at a time, at most."""
_STAGING = 256 << 20
"""Bytes of host memory for the pieces of all ranks, at most."""
_BYTES = np.dtype("u1")

_kept: list[Any] = []
"""Memory into which other ranks may still copy, because this rank left an exchange early."""


class Exchange(Protocol):
    """A way to exchange shares. Each rank fills its share before it calls :meth:`share`."""

    words: str
    """The way, and why it is not a faster one."""

    def share(self, bounds: Sequence[int]) -> None:
        """Start to send this rank's share to all others, and to receive theirs. Collective.

        Args:
            bounds: At which byte of the result the shares begin, and where the last one ends.
        """

    def finish(self) -> None:
        """Wait until this rank's shares are sent and, if it can detect that, theirs received."""

    def close(self) -> None:
        """Release the resources of the exchange."""


class _WithoutEnd:
    """The end of an exchange that has nothing to wait for and nothing to release."""

    def finish(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Alone(_WithoutEnd):
    """Nothing to exchange."""

    words = "nothing to exchange"

    def share(self, bounds: Sequence[int]) -> None:
        """Do nothing."""


class ThroughHost(_WithoutEnd):
    """Shares in host memory, which the group moves."""

    words = "shares exchanged through host memory"

    def __init__(self, group: Gathering, view: arrays.View, step: str) -> None:
        _check_host_memory(group)
        self._group, self._step = group, f"{step} (shares)"
        memory = ffi.buffer(ffi.cast("char *", view.pointer), view.nbytes)
        self._memory = np.frombuffer(memory, _BYTES)

    def share(self, bounds: Sequence[int]) -> None:
        """Exchange the shares of a round."""
        self._group.share(self._memory, bounds, self._step)


class StagedThroughHost(_WithoutEnd):
    """Shares in GPU memory: each rank copies its own to the host, and those of others back.

    A copy that fails does not keep this rank from the steps that follow; :meth:`finish` raises it.
    """

    def __init__(self, group: Gathering, view: arrays.View, step: str, why: str) -> None:
        _check_host_memory(group)
        self.words = f"shares exchanged through host memory: {why}"
        self._group, self._view, self._step = group, view, f"{step} (shares)"
        self._piece = max(min(_PIECE, _STAGING // group.size), 1)
        self._staging = pinned.empty((min(self._piece * group.size, view.nbytes),), _BYTES)
        self._error: Exception | None = None

    def share(self, bounds: Sequence[int]) -> None:
        """Exchange the shares of a round, piece by piece."""
        longest = max(np.diff(bounds), default=0)
        for done in range(0, longest, self._piece):
            parts = [
                (min(start + done, stop), min(start + done + self._piece, stop))
                for start, stop in itertools.pairwise(bounds)
            ]
            places = np.cumsum([0, *(stop - start for start, stop in parts)]).tolist()
            own = self._group.rank
            self._copy([(places[own], parts[own])], to_host=True)
            self._group.share(self._staging, places, self._step)
            others = [pair for at, pair in enumerate(zip(places, parts, strict=False)) if at != own]
            self._copy(others, to_host=False)

    def _copy(self, parts: list[tuple[int, tuple[int, int]]], *, to_host: bool) -> None:
        """Copy parts of the result to their places on the host, or from there."""
        staging = self._staging.__array_interface__["data"][0]
        try:
            for place, (start, stop) in parts:
                if self._error is None:
                    host, device = staging + place, self._view.pointer + start
                    target, source = (host, device) if to_host else (device, host)
                    copy_bytes(target, source, stop - start)
        except Exception as error:
            self._error = error

    def finish(self) -> None:
        """Raise an error if a copy has failed."""
        if self._error is not None:
            raise self._error


class ByNccl(_WithoutEnd):
    """Shares in GPU memory, which NCCL moves in place: by NVLink where there is one.

    Calls are queued, so that this rank continues to read while earlier shares are sent.
    """

    words = "shares exchanged by NCCL"

    def __init__(self, group: TorchGroup, view: arrays.View) -> None:
        self._group, self._device = group, view.device
        self._torch, self._distributed = group.torch, group.torch.distributed
        whole = replace(view, shape=(view.nbytes,), dtype=element_type(_BYTES))
        self._bytes = self._torch.as_tensor(OnGpu(whole), device=f"cuda:{view.device}")
        if self._bytes.data_ptr() != view.pointer:
            raise UnavailableError(
                "torch makes no tensor of the result's memory", remedy='use exchange="host"'
            )
        self._queued: list[Any] = []

    def share(self, bounds: Sequence[int]) -> None:
        """Queue the exchange of the shares of a round."""
        lengths, own = np.diff(bounds), self._group.rank
        keys = {"group": self._group.group, "async_op": True}
        with self._torch.cuda.device(self._device):
            if (lengths == lengths[0]).all():
                whole = self._bytes[bounds[0] : bounds[-1]]
                mine = self._bytes[bounds[own] : bounds[own + 1]]
                self._queued.append(self._distributed.all_gather_into_tensor(whole, mine, **keys))
                return
            for rank, length in enumerate(lengths):
                if length:
                    part = self._bytes[bounds[rank] : bounds[rank + 1]]
                    source = self._group.global_rank(rank)
                    self._queued.append(self._distributed.broadcast(part, src=source, **keys))

    def finish(self) -> None:
        """Wait until all that was queued is done."""
        # Waits for all, even after a failure, because the result may be freed after this.
        queued, self._queued = self._queued, []
        with self._torch.cuda.device(self._device), ExitStack() as all_ended:
            all_ended.callback(lambda: self._torch.cuda.current_stream().synchronize())
            for work in queued:
                all_ended.callback(work.wait)


@contextmanager
def kept_if_left(group: Gathering, view: arrays.View) -> Iterator[None]:
    """Never free the memory of a view if this rank leaves the block while others may exchange.

    That is so after every exception but one that all ranks get in the same step.
    """
    try:
        yield
    except BaseException as raised:
        if group.is_broken or not isinstance(raised, RankError):
            _kept.append(view)
        raise


def choose(
    requested: str, group: Gathering, view: arrays.View, is_one_host: bool, call: str
) -> Exchange:
    """Return the exchange for memory that all ranks fill. Collective: all return the same one.

    Args:
        requested: One of :data:`WAYS`.
        group: All ranks.
        view: The memory.
        is_one_host: Whether all ranks are on one host.
        call: The function that the errors name.

    Raises:
        RankError: The requested way is not possible on a rank.
    """
    on_gpu = view.device >= 0
    has_nccl = isinstance(group, TorchGroup) and group.has_nccl()
    step, why = f"{call} (exchange={requested!r})", "it was requested"
    if requested in ("nccl", "peer") and not on_gpu:
        group.agree(
            step, InvalidError(f"{requested!r} is for GPU memory, and the result is on the host")
        )
    if requested == "nccl" and not has_nccl:
        group.agree(step, UnavailableError("the group is not a process group of torch with NCCL"))
    if group.size == 1 or not view.nbytes:
        return Alone()
    if not on_gpu:
        return group.made_by_all(step, lambda: ThroughHost(group, view, call))
    if has_nccl and requested in ("auto", "nccl"):
        assert isinstance(group, TorchGroup)
        of_torch = group
        return group.made_by_all(step, lambda: ByNccl(of_torch, view))
    if requested in ("auto", "peer"):
        found = peers.connect(group, view, is_one_host)
        if isinstance(found, peers.Peers):
            return found
        why = f"rank {found.rank}: {found.why}"
        if requested == "peer":
            group.agree(step, UnavailableError(found.why) if group.rank == found.rank else None)
    return group.made_by_all(step, lambda: StagedThroughHost(group, view, call, why))


def _check_host_memory(group: Gathering) -> None:
    if isinstance(group, TorchGroup):
        group.check_host_memory()
