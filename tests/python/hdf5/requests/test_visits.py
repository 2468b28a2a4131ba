"""Durable writes in a callback of HDF5, in which it cannot flush a file."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock._native import lib

COUNT = 1 << 18
LAYOUTS = {"chunked": {"chunks": (COUNT // 8,), "compression": 1}, "plain": {}}
WALKS = ["visit", "visititems", "visit_links", "visititems_links"]


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "f.h5"
    with h5py.File(made, "w") as file:
        file.create_dataset("x", (COUNT,), "f4", **LAYOUTS["chunked"])
        file.create_dataset("plain", data=np.zeros(COUNT, "f4"))
        file["small"] = np.zeros(5)
    return made


def open_connected(path):
    return ps.File(path, "r+", connector="penstock_async")


def ones():
    return np.ones(COUNT, "f4")


def once_in_a_visit(group, act):
    """Call a function once while h5py visits a group, and return its result."""
    found = []
    group.visititems(lambda *_: found.append(act()) or True)
    (result,) = found
    return result


def has_ones(path, name="x"):
    with h5py.File(path) as file:
        return bool((file[name][...] == 1).all())


def refused(act):
    with pytest.raises(ps.InvalidError, match="inside a callback that") as caught:
        act()
    assert "has returned" in str(caught.value)


def test_a_wait_in_a_visit_is_an_error_and_a_later_one_is_not(path):
    with open_connected(path) as file:
        request = file["x"].write_async(ones(), durable=True)
        for _ in range(2):
            once_in_a_visit(file.h5py, lambda: refused(request.wait))
            once_in_a_visit(file.h5py, lambda: refused(lambda: request.wait(timeout=60)))
        request.wait()
    assert has_ones(path)


def test_a_request_is_not_done_in_a_visit(path):
    with open_connected(path) as file:
        request = file["x"].write_async(ones(), durable=True)
        once_in_a_visit(file.h5py, lambda: refused(request.wait))
        assert once_in_a_visit(file.h5py, request.done) is False
        while not request.done():
            pass
    assert has_ones(path)


def test_an_asyncio_task_that_waits_in_a_visit_fails(path):
    async def wait(request):
        await request

    with open_connected(path) as file:
        request = file["x"].write_async(ones(), durable=True)
        once_in_a_visit(file.h5py, lambda: refused(lambda: asyncio.run(wait(request))))
        request.wait()


def test_a_request_that_is_deleted_in_a_visit_ends_later(path):
    with open_connected(path) as file:
        requests = [file["x"].write_async(ones(), durable=True)]

        def delete():
            requests.clear()
            gc.collect()

        once_in_a_visit(file.h5py, delete)
        assert (file["x"].read() == 1).all()
    assert has_ones(path)


def test_a_request_that_is_cancelled_in_a_visit_ends_there(path):
    with open_connected(path) as file:
        request = file["x"].write_async(ones(), durable=True)

        def cancel():
            refused(request.wait)
            request.cancel()
            with pytest.raises(ps.CancelledError):
                request.wait()

        once_in_a_visit(file.h5py, cancel)


def test_a_loop_of_the_c_api_that_takes_every_turn_ends_in_a_visit(path):
    with open_connected(path) as file:
        request = file["x"].write_async(ones(), durable=True)
        handle = request._native.handle[0]

        def loop():
            while (status := lib.penstock_request_wait(handle, -1)) == lib.PENSTOCK_TURN:
                lib.penstock_request_turn(handle)
            return status, lib.penstock_request_test(handle)

        pending = lib.PENSTOCK_PENDING
        assert once_in_a_visit(file.h5py, loop) == (pending, pending)
        request.wait()
    assert has_ones(path)


EXITS = """
import sys
import numpy as np, penstock as ps
file = ps.File(sys.argv[1], "r+", connector="penstock_async")
request = file["x"].write_async(np.ones(file["x"].shape, "f4"), durable=True)
file.h5py.visititems(lambda *_: sys.exit(3))
"""


def test_a_process_that_exits_in_a_visit_does_not_hang(path):
    done = subprocess.run([sys.executable, "-c", EXITS, path], timeout=60)
    assert done.returncode == 3
    assert has_ones(path)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("name", ["x", "plain", "small"])
def test_a_durable_write_is_refused_in_a_visit_by_penstock_s_group(path, walk, name):
    value = np.ones(5 if name == "small" else COUNT, "f4")
    with ps.File(path, "r+") as file:
        dataset = file[name]
        getattr(file, walk)(lambda *_: refused(lambda: dataset.write(value, durable=True)))
        assert not dataset.read().any()
        file.flush()
        dataset.write(value, durable=True)
    assert has_ones(path, name)


def test_a_request_started_before_a_visit_by_penstock_s_group_ends_after_it(path):
    with ps.File(path, "r+") as file:
        request = file["x"].write_async(ones(), durable=True)
        file.visit(lambda _: refused(request.wait))
        request.wait()
    assert has_ones(path)


def test_a_write_that_is_not_durable_is_allowed_in_a_visit(path):
    with ps.File(path, "r+") as file:
        file.visit(lambda name: file[name].write(np.ones(file[name].shape)))
    assert has_ones(path)


@pytest.mark.parametrize("act", ["read", "write", "write_async", "assign", "copy"])
@pytest.mark.parametrize("name", ["x", "plain"])
def test_a_visit_leaves_a_file_that_a_link_has_opened_too_and_that_can_be_flushed(
    path, tmp_path, name, act
):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["link"] = h5py.ExternalLink(path, name)
    with ps.File(path, "r+") as file, ps.File(tmp_path / "other.h5", "r+") as other:
        linked, requests = other["link"], []
        file.h5py.attrs["changed"] = 1
        file.create_group("g")
        acts = {
            "read": lambda _: linked[...] is None,
            "write": lambda _: linked.write(ones()),
            "write_async": lambda _: requests.append(linked.write_async(ones())),
            "assign": lambda _: linked.__setitem__(slice(3, 9), 1),
            "copy": lambda name: other.copy("link", name),
        }
        file.visit(lambda visited: acts[act](visited) if visited == "g" else None)
        for request in requests:
            request.wait()
        file.create_group("after")
        file.flush()
    with h5py.File(path) as file:
        assert "after" in file
        assert act not in ("write", "write_async") or (file[name][...] == 1).all()
