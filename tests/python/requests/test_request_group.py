"""Where one transfer of a call fails, none of the others uses memory when the error is raised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock import request
from penstock.data.started import Started
from penstock.hdf5.many import start_into
from penstock.request_group import RequestGroup

SLOW: dict[str, Any] = {"threads": 1, "block": "4KiB", "io": "threads", "direct": "no"}


def is_idle() -> bool:
    """Whether no request of this process uses memory."""
    return all(native.is_over() for native in request._pending.copy())


@pytest.fixture
def alarm() -> Iterator[Callable[..., None]]:
    """Raises KeyboardInterrupt after each of some times, each counted from the one before."""
    later: list[float] = []

    def ring(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, later.pop(0) if later else 0)
        raise KeyboardInterrupt

    def start(first: float, *others: float) -> None:
        later[:] = others
        signal.setitimer(signal.ITIMER_REAL, first)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield start
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def slow(slow_file: Path, count: int = 3) -> list[ps.Request[Any]]:
    return [ps.load_async(slow_file) for _ in range(count)]


def wait_for(members: list[ps.Request[Any]]) -> None:
    RequestGroup(members).wait()


@pytest.fixture
def failing(tmp_path) -> Iterator[list[ps.Request[Any]]]:
    """Two reads that fail while they run, of datasets with different names."""
    for name in ("one", "other"):
        damaged(tmp_path / f"{name}.h5", 8)
    with ps.File(tmp_path / "one.h5") as one, ps.File(tmp_path / "other.h5") as other:
        made = [one["bad"].read_async(), other["bad"].read_async()]
        yield made
        RequestGroup(made).stop()


def test_an_error_cancels_the_other_transfers_and_waits_for_them(slow_file, failing):
    members = [failing[0], *slow(slow_file)]
    with pytest.raises(ps.IOFailure, match="bad"):
        wait_for(members)
    assert is_idle()
    for member in members[1:]:
        with pytest.raises(ps.CancelledError):
            member.wait()


def test_transfers_that_were_added_before_the_error_are_stopped(slow_file):
    def start(members: RequestGroup[Any]) -> None:
        with members:
            members.add(ps.load_async(slow_file))
            ps.load_async(slow_file.with_name("missing"))

    with pytest.raises(ps.NotFoundError):
        start(RequestGroup())
    assert is_idle()


# The second one may come in a destructor, where Python cannot raise it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_stops_all_transfers_and_a_second_one_does_not_leave_them(slow_file, alarm):
    members = slow(slow_file)
    alarm(0.01, 0.001)
    with pytest.raises(KeyboardInterrupt):
        wait_for(members)
    assert is_idle()


def test_ctrl_c_while_transfers_are_stopped_is_not_lost(slow_file, alarm):
    members = slow(slow_file, 1)
    for member in members:  # a transfer that takes no notice of its cancellation
        member.cancel = lambda: None  # type: ignore[method-assign]
    alarm(0.01)
    with pytest.raises(KeyboardInterrupt):
        RequestGroup(members).stop()
    assert is_idle()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
def test_the_first_error_has_the_others_as_notes(failing):
    while not failing[1].done():
        pass
    with pytest.raises(ps.IOFailure, match=r"one\.h5") as raised:
        wait_for(failing)
    (note,) = raised.value.__notes__
    assert "other.h5" in note


def test_batches_are_closed_together(slow_file):
    batches = [Started(list, slow(slow_file)) for _ in range(2)]
    RequestGroup(batches).stop()
    assert is_idle()
    with pytest.raises(ps.InvalidError, match="closed"):
        batches[0].wait()


class Member:
    """A member that ends when it is cancelled, unless its result or its error is there."""

    def __init__(self, name: str = "", outcome: object = None) -> None:
        self.name, self.outcome = name, outcome
        self.is_cancelled = self.is_over = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def wait(self) -> str:
        if isinstance(self.outcome, BaseException) and not self.is_cancelled:
            raise self.outcome
        self.is_over = True
        if self.is_cancelled:
            raise ps.CancelledError("cancelled")
        return self.name


def wait_by(way: str, start: Callable[[int], Member], group: RequestGroup[Any]) -> None:
    """Start four members, and wait for them in one way."""
    if way == "nested":
        for low in (0, 2):
            group.add(RequestGroup(start(number) for number in range(low, low + 2)))
        group.wait()
        return
    starts = iter([partial(start, number) for number in range(4)])
    while group.fill(starts, 2 if way == "fill" else 4):
        group.wait() if way == "wait" else group.next()


@pytest.mark.parametrize("kind", [ps.IOFailure, KeyboardInterrupt])
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("way", ["wait", "next", "fill", "nested"])
def test_all_members_have_ended_wherever_one_fails(kind, at, way):
    made: list[Member] = []

    def start(number: int) -> Member:
        made.append(Member(str(number), kind("broken") if number == at else None))
        return made[-1]

    group: RequestGroup[Any] = RequestGroup()
    with pytest.raises(kind):
        wait_by(way, start, group)
    assert all(member.is_over for member in made)
    assert not group
    with pytest.raises(ps.InvalidError, match="group"):
        group.wait()


def test_a_group_has_as_many_members_as_its_user_says_and_gives_results_in_order():
    made: list[str] = []

    def start(name: str) -> Member:
        made.append(name)
        return Member(name)

    starts = iter([partial(start, name) for name in "abcde"])
    group: RequestGroup[Member] = RequestGroup()
    found = []
    while group.fill(starts, 2):
        assert len(made) == min(len(found) + 2, 5)
        found.append(group.next())
    assert found == list("abcde")


def test_the_error_of_a_start_is_raised_in_its_turn():
    def refuse() -> Member:
        raise ps.IOFailure("refused")

    starts = iter([partial(Member, "a"), refuse, partial(Member, "c")])
    group: RequestGroup[Member] = RequestGroup()
    assert group.fill(starts, 3)
    last = group._members[-1]
    assert group.next() == "a"
    with pytest.raises(ps.IOFailure, match="refused"):
        group.next()
    assert last.is_over


def test_ctrl_c_in_a_start_ends_the_members_before_it():
    def interrupt() -> Member:
        raise KeyboardInterrupt

    member = Member()
    group: RequestGroup[Member] = RequestGroup([member])
    with pytest.raises(KeyboardInterrupt):
        group.fill(iter([interrupt]), 2)
    assert member.is_over


def test_a_group_that_is_dropped_ends_its_members():
    member = Member()
    RequestGroup([member])
    assert member.is_cancelled
    assert member.is_over


def test_what_is_added_to_a_group_that_was_stopped_ends_at_once():
    group = RequestGroup([Member()])
    group.stop()
    late = Member()
    group.add(late)
    assert late.is_over


def test_a_block_without_an_error_leaves_the_members_under_way():
    with RequestGroup([Member("a")]) as group:
        pass
    assert group.wait() == ["a"]


def test_a_thread_may_stop_a_group_for_which_another_one_waits(slow_file):
    group = RequestGroup(slow(slow_file))
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            group.wait()
        except ps.CancelledError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.02)
    group.stop()
    assert is_idle()
    waiting.join(10)
    assert raised


def damaged(path: Path, big: int) -> None:
    """Make a file with a dataset of a damaged chunk, and a long one that is 7 everywhere."""
    with h5py.File(path, "w") as file:
        bad = file.create_dataset(
            "bad", data=np.zeros((64, 1000)), chunks=(64, 1000), compression=4, fletcher32=True
        )
        file.create_dataset("big", data=np.full(big, 7, "u1"))
        file["names"] = ["a", "b"]
        info = bad.id.get_chunk_info(0)
    with open(path, "r+b") as raw:
        raw.seek(info.byte_offset + info.size // 2)
        raw.write(b"\xff" * 40)


def test_a_piece_that_h5py_cannot_read_ends_the_request_for_the_others(tmp_path):
    damaged(tmp_path / "f.h5", 64 << 20)
    strided = np.zeros((64, 2000))[:, ::2]
    big = np.zeros(64 << 20, "u1")
    with ps.File(tmp_path / "f.h5") as file:
        pieces = [file["big"], (file["bad"], [3, 1, 7])]
        with pytest.raises(OSError, match=r"bad|read|checksum"):
            ps.read_many(pieces, out=[big, strided[:3]], **SLOW)
        assert is_idle()


def test_ctrl_c_in_read_many_leaves_no_read(tmp_path, alarm):
    damaged(tmp_path / "f.h5", 128 << 20)
    with ps.File(tmp_path / "f.h5") as file:
        alarm(0.02)
        with pytest.raises(KeyboardInterrupt):
            ps.read_many([file["big"]], **SLOW)
        assert is_idle()


OTHER_MEMORY = """
import sys, time
import numpy as np, penstock as ps
from penstock import request

places = {"host": None, "0": 0, "1": 1}
with ps.File(sys.argv[1]) as file:
    big = file["big"]
    rows = [ps.DeviceArray(big.shape, "u1", device=number) for number in (0, 1)]
    place = places[sys.argv[2]]
    bad = np.zeros((64, 1000)) if place is None else ps.DeviceArray((64, 1000), "f8", device=place)
    pieces = [(file["bad"], bad), *((big, row) for row in rows)]
    if sys.argv[3] == "last":
        pieces.reverse()
    try:
        ps.read_many([dataset for dataset, _ in pieces], out=[out for _, out in pieces])
    except ps.Error as error:
        assert "bad" in str(error), error
        assert all(native.is_over() for native in request._pending.copy())
        found = [row.numpy() for row in rows]
        time.sleep(0.3)
        assert all((row.numpy() == before).all() for row, before in zip(rows, found))
    else:
        sys.exit("no error")
"""


class Interrupted:
    """A member of a group that does something while it is waited for the first time."""

    def __init__(self, result: int, meanwhile: Callable[[], Any] | None = None) -> None:
        self._result, self._meanwhile = result, meanwhile

    def wait(self) -> int:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile:
            meanwhile()
        return self._result

    def cancel(self) -> None:
        pass


def test_each_result_is_given_once_if_a_signal_handler_takes_some():
    group: RequestGroup[Any] = RequestGroup()
    taken: list[int] = []
    group.add(Interrupted(0, lambda: taken.append(group.next())))
    group.add(Interrupted(1, lambda: taken.append(group.next())))
    group.add(Interrupted(2))
    taken.append(group.next())
    assert taken == [0, 1, 2]
    assert len(group) == 0


def test_a_read_of_many_that_fails_alone_has_no_note_of_another(tmp_path):
    damaged(tmp_path / "f.h5", 1 << 20)
    with ps.File(tmp_path / "f.h5") as file:
        dataset = file["bad"]
        out = np.empty(dataset.shape, dataset.dtype)
        group = RequestGroup([start_into([dataset], [()], [out], {})])
        with pytest.raises(ps.Error) as caught:
            group.wait()
    assert not getattr(caught.value, "__notes__", [])


@pytest.mark.gpu
@pytest.mark.parametrize(("place", "order"), [("host", "first"), ("1", "last")])
def test_an_error_in_one_memory_ends_the_reads_into_others(tmp_path, place, order):
    if not os.environ.get("PENSTOCK_CUDA_LIBRARY"):
        pytest.skip("needs the stand-in GPU, of which there can be several, with slow copies")
    damaged(tmp_path / "f.h5", 16 << 20)
    done = subprocess.run(
        [sys.executable, "-c", OTHER_MEMORY, tmp_path / "f.h5", place, order],
        env=os.environ | {"CUDASIM_DEVICES": "2", "CUDASIM_COPY_GBPS": "0.1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
