"""One array for many GPUs: each byte is read once, and every rank gets all of them."""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, SupportsIndex

from penstock import arrays, report, transfer
from penstock._options import OptionKeys, Unpack
from penstock.dist.gathering import Gathering
from penstock.dist.launched import Launched
from penstock.dist.mpi.ranks import DEFAULT_TIMEOUT, this_host
from penstock.dist.mpi.shared import Shared
from penstock.dist.replicated import exchange as ways
from penstock.dist.replicated.join import joined
from penstock.dist.replicated.source import About, Arguments, Source, look, name_of
from penstock.dist.torch_group import TorchGroup
from penstock.dtypes import element_type
from penstock.errors import InvalidError, WaitTimeout
from penstock.placement import HOST, Device, Library, allocate, parse_device, place
from penstock.report import Report
from penstock.request import Request
from penstock.request_group import RequestGroup
from penstock.shapes import Shape, lengths_of
from penstock.streams import stream_handle, wait_for

PIECE = 64 << 20
"""Bytes that a rank reads between two exchanges, by default."""
_AHEAD = 2
"""Reads of a rank in flight at a time, if there is one for each share."""
_POLL = 2e-4
"""Seconds between two looks at what has arrived."""
_STEP = "load_replicated"


def load_replicated(
    source: Any,
    comm: Any = None,
    *,
    dtype: object = None,
    shape: Shape | None = None,
    offset: SupportsIndex = 0,
    device: Device = None,
    out: Any = None,
    stream: Any = None,
    like: Library | None = None,
    pin: bool = False,
    piece: SupportsIndex = PIECE,
    exchange: str = "auto",
    timeout: float = DEFAULT_TIMEOUT,
    **options: Unpack[OptionKeys],
) -> Any:
    """Read a dataset or a file into the memory of every rank. Each byte is read by one rank alone.

    Collective: all ranks call it with the same arguments, but for the ordinal of the device, the
    array ``out`` and the stream. The array is divided into rounds, and each round into shares, one
    for each rank, which end at borders of chunks. While the shares of a round are exchanged, the
    ranks read those of the next ones. A rank needs memory for the array, not for a
    second one, and without NCCL 64 MiB of GPU memory for the exchange.

    Args:
        source: ``"file.h5:name"``, a dataset of a file that is open for reading, or the path of a
            file of plain bytes.
        comm: An ``mpi4py.MPI.Comm``, or a process group of torch.distributed; ``None`` is torch's
            default group.
        dtype: The type of the elements: that of plain bytes, ``"uint8"`` by default; the elements
            of a dataset are converted to it.
        shape: The lengths of an array of plain bytes, as for :func:`penstock.load`.
        offset: Bytes of a file of plain bytes to skip.
        device: Where a new array goes, as for :func:`penstock.load`. ``"cuda"`` is the GPU of this
            rank: torch's current one for a process group; for MPI, the ranks of a host take its
            GPUs in turn.
        out: An array of the source's shape to fill, instead of a new one.
        stream: A CUDA stream whose queued work must finish before the memory is used.
        like: The library of a new array, as for :func:`penstock.load`.
        pin: Whether a new array in host memory is page-locked.
        piece: The bytes that a rank reads between two exchanges; more, if a row of chunks has more.
        exchange: How shares in GPU memory go: ``"nccl"``, by a process group that has NCCL;
            ``"peer"``, by copies between the GPUs of one host; ``"host"``, through host memory.
            ``"auto"`` is the first of these that is possible on all ranks.
        timeout: Seconds that a rank of MPI waits for the slowest one in a step. A process group has
            a timeout of its own.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        ``out``, or the new array. It is complete: work on any stream may use it. The last report
        counts what this rank has read, and its note says how the shares were exchanged.

    Raises:
        RankError: A rank has failed, has no GPU or has other arguments. All ranks get it, and it
            names the rank. What ``out`` contains is then undefined.
        InvalidError: ``comm`` is ``None``, and there is no default group.
        IncompatibleError: ``comm`` is neither a communicator nor a process group.

    >>> w = load_replicated("weights.bin", dtype="bfloat16", device="cuda")  # torchrun
    >>> x = load_replicated("run.h5:rho", MPI.COMM_WORLD, device="cuda")  # mpirun
    """
    began = time.perf_counter_ns()
    with joined(comm, timeout) as group:
        call: _Call | None = None
        error: Exception | None = None
        try:
            arguments = Arguments(source, dtype, shape, transfer.offset_of(offset), None)
            call = _Call(arguments, device, out, stream, like, pin, piece, exchange)
            if isinstance(group, TorchGroup) and call.ordinal is not None:
                group.use_gpu(call.ordinal)
        except Exception as raised:  # reported to the other ranks in the first step
            error = raised
        return _load(group, call, error, options, began)


class _Call:
    """The arguments of one rank.

    Raises:
        Error: An argument is wrong.
    """

    def __init__(
        self,
        arguments: Arguments,
        device: Device,
        out: Any,
        stream: Any,
        like: Library | None,
        pin: bool,
        piece: SupportsIndex,
        exchange: str,
    ) -> None:
        self.after = stream_handle(stream)
        self.device = "cuda" if device is None and like in ("cupy", "device") else device
        self.like, self.pin, self.out, self.exchange = like, pin, out, exchange
        self.piece = operator.index(piece)
        self.copy_back: Callable[[], None] | None = None
        where = parse_device(place(self.device, like, pin, out))
        kind = "cpu" if where == HOST else "cuda"
        self.ordinal = None if where == HOST else where
        """The requested GPU; ``None`` for this rank's own, and for the host."""
        if self.piece < 1:
            raise InvalidError(f"piece is {self.piece} bytes, but must be at least 1")
        if exchange not in ways.WAYS:
            raise InvalidError(f"the exchange {exchange!r} is not one of {', '.join(ways.WAYS)}")
        type_of = None if arguments.dtype is None else element_type(arguments.dtype).name
        if out is not None:
            if arguments.dtype is not None:
                raise InvalidError("give out or dtype, not both: the elements become those of out")
            transfer.check_device(out, device)
            view, self.copy_back = arrays.destination(out, self.after)
            arguments = replace(arguments, out=view)
            type_of, kind = view.dtype.name, "cpu" if view.device < 0 else "cuda"
            self.ordinal = None if view.device < 0 else view.device
        self.arguments = arguments
        shape = None if arguments.shape is None else lengths_of(arguments.shape)
        filled = "" if arguments.out is None else f", out of shape {arguments.out.shape}"
        self.step = (
            f"load_replicated({name_of(arguments.source)!r}, dtype={type_of}, shape={shape}, "
            f"offset={arguments.offset}, device={kind!r}{filled}, piece={self.piece}, "
            f"exchange={exchange!r})"
        )

    def own_gpu(self, group: Gathering, shared: Shared[Gathering]) -> Device:
        """Return the device, with the GPU of this rank for ``"cuda"``."""
        if parse_device(self.device) is None and isinstance(group, TorchGroup):
            ordinal = group.current_gpu()
            if ordinal is not None:
                return f"cuda:{ordinal}"
        return shared.device(self.device)

    def memory(
        self, source: Source, group: Gathering, shared: Shared[Gathering]
    ) -> tuple[Any, arrays.View]:
        """Return the result and its memory, which no work queued on a stream uses any more."""
        out, view = self.out, self.arguments.out
        if view is None:
            device = place(self.own_gpu(group, shared), self.like, self.pin)
            out = allocate(*source.wanted(device), device, self.after)
            view = arrays.view(out, self.after)
        wait_for(view.stream, view.device)
        return out, replace(view, stream=None)


def _load(
    group: Gathering, call: _Call | None, error: Exception | None, options: OptionKeys, began: int
) -> Any:
    step = _STEP if call is None else call.step

    def describe() -> About:
        assert call is not None
        return look(call.arguments)

    copies = call is not None and call.copy_back is not None
    own = this_host(), Launched.by().local_rank, copies
    about, gathered = group.broadcast_and_gather(step, describe, own, error)
    assert call is not None
    hosts = [host for host, *_ in gathered]
    local = gathered[group.rank][1]
    if local is None or any(other is None for _, other, _ in gathered):
        local = hosts[: group.rank].count(hosts[group.rank])
    shared = Shared(group, about.path, about.identity, writes=False, local_rank=local)
    started: list[_Reads] = []

    def prepare() -> tuple[Source, Any, arrays.View, list[list[int]], _Reads]:
        source = Source(call.arguments, about, shared, options)
        result, view = call.memory(source, group, shared)
        source.into(view)
        rounds = list(source.rounds(group.size, call.piece))
        own = [(bounds[group.rank], bounds[group.rank + 1]) for bounds in rounds]
        reads = _reads(source, own, view, options)
        started.append(reads)
        reads.start()  # while the ranks agree and prepare the exchange
        return source, result, view, rounds, reads

    try:
        source, result, view, rounds, reads = shared.together(f"{_STEP} (memory)", prepare)
        group.agree(f"{_STEP} (into {_in_memory(view)})")
        with ways.kept_if_left(group, view):
            exchange = ways.choose(call.exchange, group, view, len(set(hosts)) == 1, _STEP)
            _fill(group, source, reads, exchange, rounds)
    except BaseException:
        for reads in started:
            reads.stop()
        raise
    finally:
        shared.close()
    note = f"{group.size} rank(s), {exchange.words}"
    elapsed = time.perf_counter_ns() - began
    report.remember(report.together(reads.reports, view.device, elapsed, note))
    complete = partial(transfer.complete, view, call.copy_back)
    if any(copies for *_, copies in gathered):
        group.made_by_all(f"{_STEP} (copy)", complete)
    else:
        complete()
    return result


def _in_memory(view: arrays.View) -> str:
    """Describe what the results of all ranks must have in common."""
    dtype = view.dtype.numpy
    layout = "" if dtype is None else f", {dtype.descr if dtype.names else dtype.str}"
    place = "host" if view.device < 0 else "GPU"
    return f"{view.nbytes} bytes of {place} memory, {view.dtype.name}{layout}"


def _fill(
    group: Gathering,
    source: Source,
    reads: _Reads,
    exchange: ways.Exchange,
    rounds: Sequence[Sequence[int]],
) -> None:
    """Exchange all shares as they arrive.

    A rank whose read fails continues with the exchange, so that no exchange needs an agreement.

    Raises:
        RankError: A read or a copy has failed.
    """
    for bounds in rounds:
        reads.wait()
        exchange.share([row * source.row for row in bounds])
    error = reads.error
    for end in (exchange.finish, exchange.close):
        try:
            end()
        except Exception as raised:
            error = error or raised
    group.agree(f"{_STEP} (end)", error)


class _Reads:
    """The reads of this rank's shares.

    Args:
        source: What is read.
        shares: The first row of each share, and the one behind its last.
    """

    def __init__(self, source: Source, shares: Sequence[tuple[int, int]]) -> None:
        self._source = source
        self._left = deque(shares)
        self._requests: RequestGroup[Request[None]] = RequestGroup()
        self.reports: list[Report] = []
        self.error: Exception | None = None
        """Why there are no more reads."""

    def start(self) -> None:
        """Start to read."""
        self._attempt(self._start)

    def wait(self) -> None:
        """Return when the next share has been read, or a read has failed."""
        first, last = self._left.popleft()
        if first < last:
            self._attempt(partial(self._wait, last - first))

    def stop(self) -> None:
        """Cancel pending reads, and wait until no request uses the memory."""
        self._requests.stop()

    def _attempt(self, do: Callable[[], None]) -> None:
        """Do something unless a read has failed; after an error, no request uses the memory."""
        if self.error is not None:
            return
        try:
            with self._requests:
                do()
        except Exception as raised:
            self.error = raised

    def _finish(self) -> None:
        """Wait for the oldest request."""
        made = self._requests.first
        self._requests.next()
        self.reports.append(made.report)

    def _start(self) -> None:
        raise NotImplementedError

    def _wait(self, rows: int) -> None:
        """Wait for the next share, which has some rows."""
        raise NotImplementedError


def _reads(
    source: Source, shares: Sequence[tuple[int, int]], view: arrays.View, options: OptionKeys
) -> _Reads:
    # io_uring moves blocks in another order, so nothing is known to have arrived before the end.
    is_counted = view.device >= 0 and options.get("io") != "uring"
    if source.is_plain and (is_counted or len(shares) == 1):
        return _OneRead(source, shares)
    return _ReadAhead(source, shares)


class _OneRead(_Reads):
    """One read of all shares: as fast as a read of as many bytes that follow each other."""

    _wanted = 0
    """Bytes of the shares that were waited for."""

    def _start(self) -> None:
        if (made := self._source.start_all(self._left)) is not None:
            self._requests.add(made)

    def _wait(self, rows: int) -> None:
        self._wanted += rows * self._source.row
        if not any(first < last for first, last in self._left):
            self._finish()
            return
        made = self._requests.first
        while made.arrived() < self._wanted:
            with suppress(WaitTimeout):
                made.wait(_POLL)
                return


class _ReadAhead(_Reads):
    """A read for each share, some of which are under way."""

    def _start(self) -> None:
        source, shares = self._source, tuple(self._left)
        self._starts = (partial(source.start, *share) for share in shares if share[0] < share[1])
        self._requests.fill(self._starts, _AHEAD)

    def _wait(self, rows: int) -> None:
        self._finish()
        self._requests.fill(self._starts, _AHEAD)  # what is read while the caller exchanges
