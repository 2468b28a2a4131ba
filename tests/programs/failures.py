"""Transfers that have to fail."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from . import values
from .interfaces.base import CancelledError, ManyRequest, ReadRequest, TransferRequest
from .model import WrongError
from .program import Operation
from .selection import Picked
from .values import Memory

if TYPE_CHECKING:
    from .machine import Machine


def missing(machine: Machine, operation: Operation) -> None:
    """Read a dataset whose external file does not exist: the read has to fail."""
    file = machine.interface.h5py(machine._open("main"))
    name = f"missing{machine.count}"
    raw = machine.folder / f"{name}.raw"
    length = operation["length"]
    file.create_dataset(name, (length,), "u1", external=[(str(raw), 0, length)])
    memory = Memory(machine._kind_for(operation["memory"]), (length,), "u1")
    try:
        every = Picked((length,), None)
        request = ReadRequest(machine.files["main"], name, every, memory, waits=operation["waits"])
        machine.interface.read(request).wait()
    except CancelledError as error:
        raise WrongError("a read was cancelled, but not by the program") from error
    except Exception:
        del file[name]
        return
    raise WrongError(f"a dataset of {length} bytes was read whose external file does not exist")


def damaged(machine: Machine, operation: Operation) -> None:
    """Read several datasets, one with a damaged chunk: the read has to fail, and to have ended."""
    path = machine.folder / f"damaged{machine.count}.h5"
    parts = operation["parts"]
    with h5py.File(path, "w") as made:
        for place, part in enumerate(parts):
            chunks: dict[str, Any] = {"chunks": (max(part["length"] // 8, 1),), "compression": 1}
            is_bad = place == operation["bad"]
            filters = chunks | {"fletcher32": True} if part["chunked"] or is_bad else {}
            numbers = values.make(part["seed"], (part["length"],), part["dtype"])
            made.create_dataset(f"x{place}", data=numbers, **filters)
        chunk = made[f"x{operation['bad']}"].id.get_chunk_info(operation["chunk"])
    with open(path, "r+b") as raw:
        raw.seek(chunk.byte_offset + chunk.size // 2)
        old = raw.read(1)
        raw.seek(-1, os.SEEK_CUR)
        raw.write(bytes([old[0] ^ 0xFF]))
    file = machine.interface.open(path, "r")
    try:
        _read_damaged(machine, operation, file)
    finally:
        machine.interface.close(file)
        path.unlink()


def _read_damaged(machine: Machine, operation: Operation, file: Any) -> None:
    interface = machine.interface.interface_of(file)
    pieces = []
    for place, part in enumerate(operation["parts"]):
        shape, kind = (part["length"],), machine._kind_for(part["memory"])
        stored = {"dtype": part["dtype"], "layout": "chunked", "seed": 1}
        if kind == "device" and not interface.takes_device(stored, part["dtype"]):
            kind = "c"
        pieces.append((f"x{place}", Picked(shape, None), Memory(kind, shape, part["dtype"])))
    own = getattr(file, "own", file)
    request = ManyRequest(own, pieces, operation["options"], operation["by_name"], None)
    try:
        interface.read_many(request)
    except CancelledError as error:
        raise WrongError("a read was cancelled, but not by the program") from error
    except Exception:
        pass
    else:
        raise WrongError("datasets were read of which one has a damaged chunk")
    for memory in request.memories:
        if memory.kind != "device":
            memory.change()
    before = [memory.values() for memory in request.memories]
    time.sleep(operation["pause"])
    for (name, *_), memory, held in zip(pieces, request.memories, before, strict=True):
        # New GPU memory may hold no numbers, which differ from themselves.
        changed = int((memory.values().view(np.uint8) != held.view(np.uint8)).sum())
        if changed:
            raise WrongError(f"{changed} bytes of {name} were read after the read had failed")


def full(machine: Machine, operation: Operation) -> None:
    """Write more than a file system has room for: a call has to fail."""
    if os.geteuid():
        return
    folder = machine.folder / f"full{machine.count}"
    folder.mkdir()
    kind = ["mount", "-t", "tmpfs", "-o", f"size={operation['room']}k", "tmpfs", str(folder)]
    if subprocess.run(kind, capture_output=True).returncode:
        folder.rmdir()
        return
    machine.tainted = True
    try:
        failure = _fill(machine, operation, folder / "x.h5")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
        folder.rmdir()
    if failure is None:
        raise WrongError("a write did not fit into the file system, and no call failed")
    if getattr(failure, "errno", None) == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(failure):
        return
    if f"errno = {errno.ENOSPC}" not in str(failure) and "event set" not in str(failure):
        raise WrongError(f"a full file system was reported as {type(failure).__name__}: {failure}")


def _fill(machine: Machine, operation: Operation, path: Any) -> BaseException | None:
    """Return the first failure."""
    interface = machine.interface
    length = operation["room"] << 11
    found: BaseException | None = None

    def tried(call: Any, *arguments: Any, **more: Any) -> Any:
        nonlocal found
        try:
            return call(*arguments, **more)
        except Exception as error:
            found = found or error
            return None

    # What HDF5 itself has to write when the file is closed finds the room that the ballast had.
    ballast = path.with_name("ballast")
    ballast.write_bytes(bytes(128 << 10))
    file = interface.open(path, "w", libver="latest")
    # HDF5 itself crashes, or loses them, where it cannot evict chunks from its cache. The Python
    # interface may leave to it what is waited for.
    by_h5py = operation["waits"] and (interface.settles or interface.two_handles)
    chunked = operation["chunked"] and interface.cancels and not by_h5py
    chunks: dict[str, Any] = {"chunks": (length // 16,)} if chunked else {}
    if operation["filtered"] and chunks:
        chunks |= {"compression": 1}
    interface.h5py(file).create_dataset("x", (length,), "u1", **chunks)
    noise = np.random.default_rng(operation["room"]).integers(0, 256, length, np.uint8)
    memory = Memory.holding(machine._kind_for(operation["memory"]), noise)
    made = tried(
        interface.write,
        TransferRequest(file, "x", Picked((length,), None), memory, waits=operation["waits"]),
    )
    if made is not None and (operation["waits_for"] or "close" not in interface.settles):
        tried(made.wait)
    ballast.unlink()
    tried(interface.close, file)
    if made is not None and not interface.close_raises:
        tried(made.wait)
    return found
