"""Loads of a different plan by each rank of a process group, which exchange what several need.

Ranks of tensor parallelism want columns of the same tensors. Read by each rank for itself, the
file's rows are read by all ranks, in short pieces. Here the ranks divide the bytes of these tensors
among them: window by window, each rank reads a share, the shares are exchanged, and each rank
copies its own columns out of the window. Rows of a tensor, and a tensor that only one rank wants,
are read by that rank alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from penstock import arrays, report, request, transfer
from penstock._native import ffi, pointer
from penstock._options import OptionKeys
from penstock.dist.cuda_driver import Driver
from penstock.dist.group import Group, made_by_all
from penstock.dist.mpi.ranks import DEFAULT_TIMEOUT, this_host
from penstock.dist.replicated import exchange as ways
from penstock.dist.replicated.join import joined
from penstock.dist.torch_group import TorchGroup
from penstock.errors import Error, InvalidError
from penstock.files import Path
from penstock.frameworks import torch_stream
from penstock.placement import HOST
from penstock.report import Report
from penstock.request import Request
from penstock.request_group import RequestGroup
from penstock.streams import wait_for
from penstock.torch.safetensors import frameworks
from penstock.torch.safetensors.errors import WeightsError
from penstock.torch.safetensors.frameworks import Framework, Memory
from penstock.torch.safetensors.header import Entry
from penstock.torch.safetensors.layout import AnyPart, Part, lay_out
from penstock.torch.safetensors.open import Plan, parts_of, read_plan
from penstock.torch.safetensors.opened import OneSave, Reading, Readings, WeightsFile
from penstock.torch.safetensors.replicated import refuse_map
from penstock.torch.safetensors.sharded import files_of

WAYS = ("auto", "nccl", "host")
WINDOW = 128 << 20
"""Bytes that the ranks read between two exchanges. Long reads are the fastest."""
WINDOWS = 3
"""Windows in memory: one is exchanged and copied from while the next ones are read."""
_SHARE = 4096
"""Shares of a window are multiples of it."""
_STEP = "load_file(plan=, group=)"


def load_plans(
    filename: Path,
    device: Any,
    device_map: object,
    plan: Plan,
    group: Any,
    exchange: str,
    pin: bool,
    options: OptionKeys,
) -> dict[str, Any]:
    """Load this rank's plan, while the other ranks load theirs. Collective.

    Args:
        filename: The file, index or folder.
        device: The device of this rank.
        device_map: ``None``; anything else is refused.
        plan: The tensors and slices of this rank.
        group: All ranks: a process group of torch.distributed, or a communicator of MPI.
        exchange: One of :data:`WAYS`: by default, each rank reads its own bytes.
        pin: Whether host memory is page-locked.
        options: Options of the reads.

    Raises:
        RankError: A rank has failed. All ranks get it.
    """
    with joined(group, DEFAULT_TIMEOUT) as members, closing(_Load(members, exchange)) as load:
        return load.run(filename, device, device_map, plan, pin, options)


class _Wish(NamedTuple):
    """What a rank wants of a file."""

    identity: tuple[int, ...]
    wanted: bytes
    """A bit for each tensor: whether any of it is wanted."""
    columns: bytes
    """A bit for each tensor: whether columns of it are wanted."""
    whole: bytes
    """A bit for each tensor: whether all of it is wanted."""


class _Opened:
    """A file, and what this rank wants of it."""

    def __init__(
        self,
        path: str,
        names: Sequence[str] | None,
        plan: Mapping[str, Any],
        maker: Framework,
        options: OptionKeys,
    ) -> None:
        self.file, self.maker = WeightsFile(path, "pread", options), maker
        try:
            entries = self._entries = self.file.header.entries
            of_file = set(entries if names is None else names)
            wanted = {name: index for name, index in plan.items() if name in of_file}
            self.names = set(wanted)
            self.parts, self.others = parts_of(self.file, wanted, is_mapped=False)
        except BaseException:
            self.file.close()
            raise
        some = {part.name for part in self.parts}
        columns = {part.name for part in self.parts if isinstance(part, Part) and part.has_pieces}
        whole = {part.name for part in self.parts if part.nbytes == entries[part.name].nbytes}
        self.wish = _Wish(self.file.file.identity(), *map(self._bits, (some, columns, whole)))

    def _bits(self, names: set[str]) -> bytes:
        bits = np.fromiter((name in names for name in self._entries), bool, len(self._entries))
        return np.packbits(bits).tobytes()

    def _count(self, all_bits: Sequence[bytes]) -> np.ndarray[Any, Any]:
        """Return how many ranks have set the bit of each tensor."""
        rows = [np.frombuffer(bits, np.uint8) for bits in all_bits]
        each = np.unpackbits(np.stack(rows), axis=1, count=len(self._entries))
        found: np.ndarray[Any, Any] = each.sum(axis=0)
        return found

    def exchanged(self, wishes: Sequence[_Wish]) -> list[Entry]:
        """Return the tensors that are exchanged.

        Several ranks want bytes of them, and one of these wants columns, or several want all.
        """
        _, *bits = zip(*wishes, strict=True)
        wanted, columns, whole = map(self._count, bits)
        flags = ((wanted > 1) & (columns > 0) | (whole > 1)).tolist()
        pairs = zip(self._entries.values(), flags, strict=True)
        return [entry for entry, flag in pairs if flag and entry.nbytes]

    def differs(self) -> Error:
        """Return the error if other ranks have opened another file."""
        return InvalidError(
            f"{self.file.name} is not the same file on all ranks",
            path=self.file.name,
            remedy="load it again if it was replaced meanwhile",
        )


class _Load:
    """One call."""

    def __init__(self, group: Group, exchange: str) -> None:
        self._group, self._exchange = group, exchange
        self._opened: list[_Opened] = []
        self._started: list[Readings | _Columns] = []
        self._reports: list[Report] = []
        self._words = ""

    def run(
        self,
        filename: Path,
        device: Any,
        device_map: object,
        plan: Plan,
        pin: bool,
        options: OptionKeys,
    ) -> dict[str, Any]:
        """Load all files one after the other."""
        group, began = self._group, time.perf_counter_ns()
        maker: Framework | None = None
        error: Exception | None = None
        try:
            refuse_map(device_map)
            indices = plan if isinstance(plan, Mapping) else dict.fromkeys(plan)
            maker = self._open(filename, device, indices, options)
        except Exception as raised:  # reported to the other ranks in the first step
            error = raised
        on_gpu = maker is not None and maker.ordinal != HOST
        step = _STEP
        if error is None:
            kind = "GPU" if on_gpu else "host"
            step += f" of {len(self._opened)} files into {kind} memory, exchange={self._exchange!r}"
        own = this_host(), [one.wish for one in self._opened]
        _, gathered = group.broadcast_and_gather(step, lambda: None, own, error)
        assert maker is not None
        is_one_host = len({host for host, _ in gathered}) == 1
        found: dict[str, Any] = {}
        for opened, *wishes in zip(self._opened, *(all_of for _, all_of in gathered), strict=True):
            if any(wish.identity != wishes[0].identity for wish in wishes):
                group.agree(_STEP, opened.differs())
            shared = opened.exchanged(wishes) if self._exchange != "auto" and group.size > 1 else []
            found |= self._load(opened, shared, is_one_host, pin)
        elapsed = time.perf_counter_ns() - began
        note = f"{group.size} rank(s), {self._words or 'nothing to exchange'}"
        report.remember(report.together(self._reports, maker.ordinal, elapsed, note))
        return {name: found[name] for name in indices}

    def _open(
        self,
        filename: Path,
        device: Any,
        plan: Mapping[str, Any],
        options: OptionKeys,
    ) -> Framework:
        if self._exchange not in WAYS:
            raise WeightsError(
                f"the exchange {self._exchange!r} loads no plan",
                remedy=f"use one of {', '.join(WAYS)}",
            )
        maker = frameworks.choose("pt", device)
        if self._exchange == "nccl" and maker.ordinal == HOST:
            raise WeightsError(
                "NCCL exchanges GPU memory, and the tensors go to the host",
                remedy='use exchange="host", or a device such as "cuda"',
            )
        if isinstance(self._group, TorchGroup) and maker.ordinal != HOST:
            self._group.use_gpu(maker.ordinal)
        there: set[str] = set()
        save = OneSave()
        for path, names in files_of(filename).items():
            opened = _Opened(path, names, plan, maker, options)
            self._opened.append(opened)
            save.add(opened.file, names)
            there |= opened.names
        for name in plan:
            if name not in there:
                raise WeightsError(f"no file has tensor {name!r} of the plan")
        return maker

    def _load(
        self, opened: _Opened, shared: Sequence[Entry], is_one_host: bool, pin: bool
    ) -> dict[str, Any]:
        """Load a file, of which some tensors are exchanged."""
        group, space = self._group, _Space(shared)
        names = {entry.name for entry in shared}
        own = [part for part in opened.parts if part.name not in names]
        exchanged = [part for part in opened.parts if part.name in names]

        def prepare() -> tuple[Readings, _Columns | None]:
            alone = Readings()
            self._started.append(alone)
            alone.add(Reading(opened.file, own, opened.maker, pin=pin).start())
            if not space.nbytes:
                return alone, None
            columns = _Columns(opened, exchanged, space, group, pin)
            self._started.append(columns)
            columns.start()
            return alone, columns

        alone, columns = made_by_all(group, f"{_STEP} (memory)", prepare)
        error: Exception | None = None
        if columns is not None:
            view = arrays.view(columns.ring.owner)
            with ways.kept_if_left(group, view):
                exchange = ways.choose(self._exchange, group, view, is_one_host, _STEP)
                error = columns.fill(exchange)
            self._words = exchange.words
        found: dict[str, Any] = {}
        try:
            if error is None:
                found = alone.wait()
                if columns is not None:
                    found |= columns.tensors()
                found |= read_plan(opened.file, opened.maker, opened.others, copy=False, pin=pin)
        except Exception as raised:
            error = raised
        group.agree(f"{_STEP} (end)", error)
        for started in self._started:
            self._reports += started.reports
            started.stop()
        self._started.clear()
        return found

    def close(self) -> None:
        """Cancel what is under way, and close the files."""
        with ExitStack() as ends:
            for opened in self._opened:
                ends.callback(opened.file.close)
            for started in self._started:
                ends.callback(started.stop)


class _Space:
    """The bytes of some tensors of a file, without those between them: one range of numbers."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        ranges: list[list[int]] = []
        for entry in entries:
            if not entry.nbytes:
                continue
            if ranges and ranges[-1][1] == entry.begin:
                ranges[-1][1] = entry.end
            else:
                ranges.append([entry.begin, entry.end])
        self._ranges = np.array(ranges, np.int64).reshape(-1, 2)
        lengths = self._ranges[:, 1] - self._ranges[:, 0]
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.nbytes = int(self._starts[-1])

    def place(self, offset: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the numbers of bytes by their offsets in the file."""
        at = np.searchsorted(self._ranges[:, 0], offset, "right") - 1
        found: np.ndarray[Any, Any] = self._starts[at] + offset - self._ranges[at, 0]
        return found

    def ranges(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return offset and length in the file of what lies between two numbers."""
        found = []
        at = int(np.searchsorted(self._starts, begin, "right")) - 1
        while begin < end:
            stop = min(end, int(self._starts[at + 1]))
            offset = int(self._ranges[at, 0]) + begin - int(self._starts[at])
            found.append((offset, stop - begin))
            begin, at = stop, at + 1
        return found


class _Run(NamedTuple):
    """Pieces at regular distances in the space, which are one after the other in memory."""

    place: int
    step: int
    length: int
    rows: int
    target: int

    @property
    def end(self) -> int:
        """The number behind the last piece."""
        return self.place + (self.rows - 1) * self.step + self.length

    def within(self, begin: int, end: int) -> Iterator[_Run]:
        """Return what lies between two numbers; pieces at its ends may be cut."""
        place, step, length, rows, target = self
        if rows == 1 or step == length:
            step = length = rows * length
            rows = 1
        first = max(begin - place, 0) // step
        last = min(-(-(end - place) // step), rows)
        if first < last and place + first * step < begin:
            at = place + first * step
            low, high = min(begin, at + length), min(end, at + length)
            if low < high:
                yield _Run(low, high - low, high - low, 1, target + first * length + low - at)
            first += 1
        cut = None
        if first < last and place + (last - 1) * step + length > end:
            last -= 1
            at = place + last * step
            cut = _Run(at, end - at, end - at, 1, target + last * length)
        if first < last:
            yield _Run(place + first * step, step, length, last - first, target + first * length)
        if cut is not None:
            yield cut


def runs_of(part: AnyPart, space: _Space, target: int) -> list[_Run]:
    """Return the pieces of a part, which goes to a byte of memory."""
    starts = part.starts if isinstance(part, Part) else None
    if starts is None:
        (place,) = space.place(np.array([part.begin], np.int64)).tolist()
        return [_Run(place, part.nbytes, part.nbytes, 1, target)]
    length = part.nbytes // len(starts)
    places = space.place(starts.astype(np.int64))
    steps = np.diff(places)
    changes = (np.flatnonzero(np.diff(steps)) + 1).tolist()  # places of another step than before
    runs, at = [], 0
    for end in [*changes, len(places)]:
        if end <= at:  # the step between two runs
            continue
        # The last piece of a run is followed by another step, and belongs to it.
        last = min(end + 1, len(places))
        step = int(steps[at]) if at < len(steps) else length
        runs.append(_Run(int(places[at]), step, length, last - at, target + at * length))
        at = last
    return runs


class _Columns:
    """Tensors of which the ranks exchange the bytes, and this rank's parts of them."""

    def __init__(
        self, opened: _Opened, parts: list[AnyPart], space: _Space, group: Group, pin: bool
    ) -> None:
        self._opened, self._parts, self._space, self._group = opened, parts, space, group
        maker, unit = opened.maker, group.size * _SHARE
        self._layout = lay_out(parts)
        self._memory = maker.allocate(self._layout.nbytes, pin=pin)
        self._window = min(max(WINDOW // unit, 1), -(-space.nbytes // unit)) * unit
        self._count = min(WINDOWS, -(-space.nbytes // self._window))
        self.ring = maker.allocate(self._count * self._window)
        pairs = zip(parts, self._layout.places, strict=True)
        runs = [run for part, place in pairs if part.nbytes for run in runs_of(part, space, place)]
        self._runs = deque(sorted(runs))
        self._ahead = deque(self._windows())
        self._reads: RequestGroup[Request[None]] = RequestGroup()
        self._error: Exception | None = None
        self.reports: list[Report] = []
        # Torch's, also while it is idle: the view has none then.
        self._stream = None if maker.ordinal == HOST else torch_stream(maker.ordinal)
        self._copies = _Copies(self._memory, self.ring, self._stream, maker.ordinal)

    def _windows(self) -> Iterator[tuple[int, list[int]]]:
        """Return, for each window, its place in the ring, and the numbers that bound its shares."""
        size = self._group.size
        for number, begin in enumerate(range(0, self._space.nbytes, self._window)):
            length = min(self._window, self._space.nbytes - begin)
            share = -(-length // (size * _SHARE)) * _SHARE
            bounds = [begin + min(rank * share, length) for rank in range(size + 1)]
            yield number % self._count * self._window, bounds

    def start(self) -> None:
        """Start the first reads."""
        for _ in range(max(self._count - 1, 1)):
            self._read()

    def _read(self) -> None:
        """Start to read this rank's share of the next window."""
        if not self._ahead or self._error is not None:
            return
        place, bounds = self._ahead.popleft()
        begin, end = bounds[self._group.rank : self._group.rank + 2]
        at = self.ring.address + place + begin - bounds[0]
        ranges = []
        for offset, nbytes in self._space.ranges(begin, end):
            ranges.append((offset, nbytes, pointer(at)))
            at += nbytes
        if not ranges:
            return
        file, stream = self._opened.file, self._stream
        self._reads.add(
            request.submit(
                file.file,
                request.READ,
                ffi.new("penstock_range[]", ranges),
                len(ranges),
                file.options,
                stream=stream,  # whose earlier work may use the memory of the ring
                flags=transfer.stream_flags(stream, explicit=False) | request.CALLER_WAITS,
                array=None,
                keep=self.ring,
            )
        )

    def fill(self, exchange: ways.Exchange) -> Exception | None:
        """Fill the memory. A rank that fails takes part in all exchanges, which need no agreement.

        Returns:
            Why a read, an exchange or a copy has failed.
        """
        for place, bounds in self._windows():
            self._attempt(partial(self._wait, *bounds[self._group.rank :][:2]))
            exchange.share([place + bound - bounds[0] for bound in bounds])
            self._attempt(exchange.finish)
            self._attempt(partial(self._copy, place, bounds[0], bounds[-1]))
            self._attempt(self._read)
        self._attempt(exchange.close)
        return self._error

    def _attempt(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as raised:
            self._error = self._error or raised

    def _wait(self, begin: int, end: int) -> None:
        """Wait for this rank's share of a window."""
        if self._error is None and begin < end:
            made = self._reads.first
            self._reads.next()
            self.reports.append(made.report)

    def _copy(self, place: int, begin: int, end: int) -> None:
        """Copy this rank's bytes out of a window, which may be overwritten then."""
        if self._error is not None:
            return
        with self._copies.current():
            while self._runs and self._runs[0].place < end:
                run = self._runs[0]
                for pieces in run.within(begin, end):
                    self._copies.copy(pieces, place + pieces.place - begin)
                if run.end > end:
                    break
                self._runs.popleft()
        wait_for(self._stream, self._opened.maker.ordinal)

    def stop(self) -> None:
        """Cancel pending reads, and wait until no request uses the memory."""
        self._reads.stop()
        with suppress(Error):  # copies out of the ring, after an interruption
            wait_for(self._stream, self._opened.maker.ordinal)
        self._copies.close()

    def tensors(self) -> dict[str, Any]:
        """Return the tensors by name."""
        names = (part.name for part in self._parts)
        made = self._opened.maker.tensors(self._memory, self._layout.places, self._parts)
        return dict(zip(names, made, strict=True))


class _Copies:
    """Copies of pieces out of the ring, by CUDA or NumPy."""

    def __init__(self, target: Memory, ring: Memory, stream: int | None, ordinal: int) -> None:
        self._target, self._ring, self._stream = target, ring, stream
        self._driver = None if ordinal == HOST else Driver(ordinal)

    def current(self) -> AbstractContextManager[None]:
        """Make the GPU's context current within a block."""
        return nullcontext() if self._driver is None else self._driver.current()

    def copy(self, run: _Run, place: int) -> None:
        """Copy pieces from a byte of the ring to their place in memory, or queue the copy."""
        if self._driver is not None:
            target, source = self._target.address + run.target, self._ring.address + place
            self._driver.copy_rows(
                target, source, run.step, run.length, run.rows, self._stream or 0
            )
            return
        shape, strides = (run.rows, run.length), (run.step, 1)
        pieces = np.lib.stride_tricks.as_strided(_array(self._ring)[place:], shape, strides)
        _array(self._target)[run.target :][: pieces.size].reshape(shape)[:] = pieces

    def close(self) -> None:
        """Give the context back."""
        if self._driver is not None:
            self._driver.close()


def _array(memory: Memory) -> np.ndarray[Any, Any]:
    """Return host memory as an array of bytes."""
    bytes_ = ffi.buffer(ffi.cast("char *", memory.address), memory.nbytes)
    return np.frombuffer(bytes_, np.uint8)
