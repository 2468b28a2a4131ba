"""Carries out each operation by the interface and by the model, and compares the results.

An operation that is impossible at its place is skipped: any part of a program is a program, which
shrinking relies on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from penstock.hdf5.memory_types import has_gaps

from . import interrupts, kinds, layouts, selection, sources, values
from .interfaces import interface as interface_class
from .interfaces.base import (
    CancelledError,
    Interface,
    ManyRequest,
    ReadRequest,
    Transfer,
    TransferRequest,
)
from .model import Dataset, Expected, Virtual, WrongError
from .program import Operation, Program
from .selection import Picked
from .sources import FAILED, is_changed, tried
from .values import Memory

Array = np.ndarray[Any, Any]
FILES = ("main", "other")


@dataclass
class Pending:
    """A pending request, and its expected result."""

    about: str
    name: str
    transfer: Transfer
    memory: Memory | None
    expected: Expected | None
    model: Dataset | Virtual
    number: int
    cancel_in: int | None
    """After how many operations it is cancelled; ``None``: never."""


class Machine:
    def __init__(self, program: Program, folder: Path) -> None:
        self.settings = program.settings
        self.folder = folder
        self.interface: Interface = interface_class(program.interface)(program.settings)
        self.files: dict[str, Any] = {}
        self.models: dict[str, Dataset | Virtual] = {}
        self.pending: list[Pending] = []
        self.count = 0
        self.alarm: interrupts.Alarm | None = None
        self.alarm_after = 0.0
        self.again_mode = "r+"
        """How the second handle of a file is opened."""
        self.mode = "r+"
        """How files that exist are opened."""
        self.tainted = False
        """Whether HDF5 is left in a state in which no other program should use it."""

    def run(self, operations: tuple[Operation, ...]) -> None:
        for place, operation in enumerate(operations):
            self._guarded(f"operation {place + 1} ({operation['do']})", self.step, operation)
        self._guarded("the end", self._end)

    def _guarded(self, about: str, call: Any, *arguments: Any) -> None:
        try:
            call(*arguments)
        except (WrongError, AssertionError) as error:
            raise WrongError(f"{about}: {error}") from error
        except Exception as error:
            raise WrongError(f"{about}: {type(error).__name__}: {error}") from error

    def step(self, operation: Operation) -> None:
        self.count += 1
        for entry in self.pending:
            if entry.cancel_in is not None:
                if entry.cancel_in == 0:
                    entry.transfer.cancel()
                entry.cancel_in -= 1
        # After an interruption the model has doubts about a write and forgets a read.
        with contextlib.suppress(interrupts.HandlerError):
            getattr(self, f"_{operation['do']}")(operation)

    def _call(self, nbytes: int, function: Any, *arguments: Any, **more: Any) -> Any:
        """Call the interface; a signal may end the call."""
        if self.alarm is None or not self.alarm_after:
            return function(*arguments, **more)
        try:
            return self.alarm.call(self.alarm_after, function, *arguments, **more)
        except interrupts.HandlerError:
            self.alarm.occupy(nbytes)
            raise

    # -- files -----------------------------------------------------------------------------------

    def _open(self, handle: str) -> Any:
        if handle not in self.files:
            path = self.folder / f"{'main' if handle == 'again' else handle}.h5"
            about = self.settings.get("file") or {}
            libver = self.settings.get("libver", "earliest")
            if not path.exists():
                layouts.make_file(path, libver, about)
                mode = "r+"
            else:
                mode = self.mode
            if handle == "again" and self.again_mode == "r":
                mode = "r"
            high = () if libver in ("earliest", "latest") else ("latest",)
            arguments: dict[str, Any] = {"libver": (libver, *high) if high else libver}
            if "page_buffer" in about:
                arguments["page_buf_size"] = about["page_buffer"]
            if about.get("locking") is False:
                arguments["locking"] = False
            arguments["opening"] = self.settings.get("openings", {}).get(
                "again" if handle == "again" else "main"
            )
            if self.interface.two_handles:
                arguments["again"] = handle == "again"
            self.files[handle] = self.interface.open(path, mode, **arguments)
            if self.interface.two_handles and handle == "main":
                self._open("again")
        return self.files[handle]

    def _to_write(self) -> None:
        """Open files for writing that are open for reading."""
        if self.mode == "r":
            self._close_files()
            self.mode = "r+"

    def _file(self, name: str, via: str = "main") -> Any:
        file = self.models[name].kind["file"]
        return self._open(
            "again" if file == "main" and via == "again" and "again" in self.files else file
        )

    def _file_to_write(self, name: str, via: str = "main") -> Any:
        self._to_write()
        return self._file(name, "main" if self.again_mode == "r" else via)

    def _h5py(self, name: str, via: str = "main") -> h5py.Dataset:
        return self.interface.h5py(self._file(name, via))[name]

    def _close_files(self) -> None:
        if "close" not in self.interface.settles:
            self._settle()
        for handle in list(self.files):
            self.interface.close(self.files.pop(handle))

    def _end(self) -> None:
        self._close_files()
        self._settle()
        self.interface.end()
        for file in FILES:
            path = self.folder / f"{file}.h5"
            if path.exists():
                with h5py.File(path, "r") as found:
                    for name, model in self.models.items():
                        if model.kind["file"] == file and not is_changed(model):
                            every = Picked(model.shape, None)
                            about = f"{name} in the file that is left"
                            model.expected(every).check(found[name][...], about)

    # -- requests --------------------------------------------------------------------------------

    def _finish(self, entry: Pending) -> None:
        try:
            found = self._call(0, tried, entry.expected, entry.transfer.wait)
        except interrupts.HandlerError:
            self.alarm_after = 0.0
            return self._finish(entry)
        except CancelledError:
            if entry.cancel_in is None:
                raise WrongError(f"{entry.about} was cancelled, but not by the program") from None
            if entry.memory is not None:
                entry.memory.values()
            return None
        finally:
            if entry in self.pending:
                self.pending.remove(entry)
        return self._check(entry, found)

    def _check(self, entry: Pending, found: Any) -> None:
        held = None if entry.memory is None else entry.memory.values()
        if found is FAILED:
            return
        found = found if held is None else held
        if entry.expected is None:
            entry.model.took_place(entry.number)
        else:
            entry.expected.check(values.to_host(found), entry.about)

    def _settle(self, name: str | None = None) -> None:
        """Wait for the requests on a dataset; for all where virtual datasets connect them."""
        if any(isinstance(model, Virtual) for model in self.models.values()):
            name = None
        for entry in [e for e in self.pending if name in (None, e.name)]:
            self._finish(entry)

    def _plain(self, name: str | None, method: str = "plain") -> None:
        """The rule of plain access."""
        if not {method, "plain"} & self.interface.settles:
            self._settle(name)

    def _which(self, operation: Operation) -> Pending | None:
        return self.pending[operation["which"] % len(self.pending)] if self.pending else None

    def _wait(self, operation: Operation) -> None:
        entry = self._which(operation)
        if entry is not None:
            self._finish(entry)

    def _wait_all(self, _: Operation) -> None:
        self._settle()

    def _poll(self, operation: Operation) -> None:
        entry = self._which(operation)
        if entry is not None and entry.transfer.done():
            self._finish(entry)

    def _drop(self, operation: Operation) -> None:
        entry = self._which(operation)
        if entry is not None:
            self.pending.remove(entry)
            nbytes = 0 if entry.expected is None else entry.expected.values.nbytes
            self._call(nbytes, entry.transfer.drop)
            if self.alarm is not None:
                self.alarm.occupy(nbytes)
            if entry.memory is not None and entry.memory.kind != "device":
                entry.memory.values()

    # -- transfers -------------------------------------------------------------------------------

    def _started(
        self,
        operation: Operation,
        transfer: Transfer,
        memory: Memory | None,
        expected: Expected | None,
    ) -> None:
        model = self.models[operation["name"]]
        about = f"{operation['do']} of {operation['name']} (operation {self.count})"
        cancel = operation.get("cancel") if self.interface.cancels else None
        entry = Pending(
            about, operation["name"], transfer, memory, expected, model, self.count, cancel
        )
        if operation["waits"]:
            self._check(entry, tried(expected, transfer.wait))
        else:
            self.pending.append(entry)

    def _selected(
        self, operation: Operation, lists: str = "sorted"
    ) -> tuple[Dataset | Virtual | None, Picked | None]:
        model = self.models.get(operation["name"])
        if model is None:
            return None, None
        return model, _picked(model, operation["select"], lists)

    def _kind_for(self, kind: str) -> str:
        """The kind of memory of a transfer that is not a box of a dataset of the model."""
        return "device" if kind == "device" and self.interface.device else "c"

    def _memory_kind(self, operation: Operation, picked: Picked, interface: Interface) -> str:
        kind: str = operation["memory"]
        model = self.models[operation["name"]]
        if kind == "device":
            if isinstance(model, Virtual) and not model.dtype.isnative:
                return "c"  # it would be converted: see _dtype
            dtype = _dtype(operation, model, kind)
            if not kinds.is_number(model.kind.get("dtype", "u1")):
                return "c"
            return kind if interface.device and interface.takes_device(model.kind, dtype) else "c"
        # Records with gaps that are not in C order need a copy, which no pending read has.
        is_strided = interface.strided and picked.regular and not has_gaps(model.dtype)
        return kind if is_strided else "c"

    def _dtype(
        self, operation: Operation, model: Dataset | Virtual, kind: str, interface: Interface
    ) -> np.dtype[Any] | None:
        """The type of the elements in memory.

        ``None``: the interface has no memory of this type, or the dataset has none of the members.
        """
        if fields := operation.get("fields"):
            names = [name for name in fields if name in (model.dtype.names or ())]
            if not names:
                return None
            found = kinds.some_fields(model.dtype, names)
        else:
            found = _dtype(operation, model, kind)
        return None if found.hasobject and not interface.objects else found

    def _write(self, operation: Operation) -> None:
        model = self.models.get(operation["name"])
        if model is None or is_changed(model):
            return
        file = self._file_to_write(operation["name"], operation["via"])
        interface = self.interface.interface_of(file)
        # HDF5 itself writes objects, for one sorted list at a time.
        lists = "sorted" if model.dtype.hasobject else interface.lists
        picked = _picked(model, operation["select"], lists)
        if picked is None:
            return
        kind = self._memory_kind(operation, picked, interface)
        dtype = self._dtype(operation, model, kind, interface)
        if dtype is None:
            return
        shape = picked.shape
        # HDF5 2.0 itself is wrong where it repeats values in virtual datasets. h5py, which writes
        # row by row, takes minutes where a chunk does not fit into the cache.
        quick = isinstance(model, Dataset) and model.values.nbytes <= 1 << 20
        repeats = interface.broadcasts and picked.regular and quick and not model.dtype.names
        if repeats and operation["repeat"] != "no":
            shape = () if operation["repeat"] == "value" else shape[-1:]
        if not shape:
            kind = "c"
        new = _values(operation, shape, dtype, model)
        memory = Memory.holding(kind, new)
        doubtful = None
        if interface.cancels and operation.get("cancel") is not None and not operation["waits"]:
            doubtful = self.count
        if self.alarm is not None:
            doubtful = self.count
        model.write(picked, new if new.dtype.names else values.convert(new, model.dtype), doubtful)
        transfer = self._call(
            memory.nbytes,
            self.interface.write,
            TransferRequest(
                file, operation["name"], picked, memory, operation["options"], operation["waits"]
            ),
        )
        self._started(operation, transfer, memory, None)

    def _read(self, operation: Operation) -> None:
        model = self.models.get(operation["name"])
        if model is None:
            return
        file = self._file(operation["name"], operation["via"])
        interface = self.interface.interface_of(file)
        picked = _picked(model, operation["select"], interface.lists)
        if picked is None or (is_changed(model) and not interface.maps):
            return
        kind = self._memory_kind(operation, picked, interface)
        dtype = self._dtype(operation, model, kind, interface)
        if dtype is None:
            return
        memory = None
        # An array of objects cannot be given.
        if not ((operation["new"] or dtype.hasobject) and interface.new_arrays):
            memory = Memory(kind, picked.shape, dtype)
        expected = model.expected(picked)
        if operation.get("fields"):
            expected = expected.fields(dtype)
        options = dict(operation["options"])
        if memory is None and kind == "device":
            options["device"] = "cuda:0"
        transfer = self._call(
            expected.values.size * dtype.itemsize,
            tried,
            expected,
            self.interface.read,
            ReadRequest(
                file,
                operation["name"],
                picked,
                memory,
                options,
                operation["waits"],
                dtype=(operation["dtype"] or operation.get("fields")) and dtype,
                way=operation.get("way", "plain"),
            ),
        )
        if transfer is FAILED:
            transfer = Transfer(FAILED)
        self._started(operation, transfer, memory, expected)

    def _read_many(self, operation: Operation) -> None:
        names = [part["name"] for part in operation["parts"] if part["name"] in self.models]
        if not names:
            return
        file = self._file(names[0], operation["via"])
        interface = self.interface.interface_of(file)
        if not hasattr(interface, "read_many"):
            return
        home = self.models[names[0]].kind["file"]
        pieces, expected = [], []
        kind = self._kind_for(operation["memory"])
        is_given = operation["given"] or not interface.new_arrays
        for part in operation["parts"]:
            model = self.models.get(part["name"])
            if model is None or model.kind["file"] != home:
                continue
            others = [name for name, *_ in pieces]
            if interface.once_a_call and (part["name"] in others or isinstance(model, Virtual)):
                continue
            picked = _picked(model, part["select"], interface.lists)
            dtype = _dtype(operation, model, kind)
            if picked is None or (isinstance(model, Virtual) and dtype != model.dtype):
                continue
            if is_changed(model) and not interface.maps:
                continue
            if not kinds.is_number(model.kind.get("dtype", "u1")):
                continue
            if kind == "device" and not interface.takes_device(model.kind, dtype):
                continue
            memory = Memory(kind, picked.shape, dtype) if is_given else None
            self.interface.settle(file, part["name"])
            pieces.append((part["name"], picked, memory))
            expected.append(model.expected(picked))
        if not pieces:
            return
        options = dict(operation["options"])
        if not is_given and kind == "device":
            options |= {"device": "cuda:0", "like": "device"}  # torch lacks some types
        own = getattr(file, "own", file)
        request = ManyRequest(own, pieces, options, operation["by_name"], operation["dtype"])
        failing = next((wanted for wanted in expected if wanted.may_fail), None)
        found = tried(failing, interface.read_many, request)
        if found is FAILED:
            return
        for array, (name, _, memory), wanted in zip(found, pieces, expected, strict=True):
            about = f"{name} among {len(pieces)} (operation {self.count})"
            wanted.check(values.to_host(array) if memory is None else memory.values(), about)

    def _blocks(self, operation: Operation) -> None:
        model = self.models.get(operation["name"])
        file = None if model is None else self._file(operation["name"])
        if model is None or not hasattr(self.interface.interface_of(file), "blocks"):
            return
        expected = model.expected(Picked(model.shape, None))
        if expected.may_fail:
            return
        own = getattr(file, "own", file)
        blocks = self.interface.interface_of(file).blocks
        for index, found in blocks(own, operation["name"], operation["rows"], operation["leave"]):
            about = f"block {index} of {operation['name']}"
            expected.part(index).check(np.asarray(found), about)

    # -- plain calls of h5py -----------------------------------------------------------------------

    def _create(self, operation: Operation) -> None:
        name = operation["name"]
        if name in self.models:
            return
        self._to_write()
        model = layouts.model(operation)
        file = self._open(operation["file"])
        arguments = layouts.arguments(operation, self.folder)
        new = model.values if operation["seed"] is not None else None
        self.interface.create(file, name, None if new is None else new.copy(), **arguments)
        self.models[name] = model

    def _copy(self, operation: Operation) -> None:
        model = self.models.get(operation["name"])
        if not isinstance(model, Dataset) or operation["to"] in self.models:
            return
        by_h5py = operation["plain"] or not self.interface.copies
        if by_h5py and (model.kind["layout"] == "chunked" or not operation["flush"]):
            return  # HDF5 2.0 itself copies old or wrong elements, or writes beyond its memory
        if model.kind.get("filters") and model.dtype.hasobject:
            return  # HDF5 2.0 itself writes beyond its memory, whatever was flushed
        if model.kind["layout"] == "external":
            return  # the copy has the same external file, and a write of one changes both
        file = self._file_to_write(operation["name"])
        self._plain(operation["name"], "copy")
        if operation["flush"]:
            self._flush(operation)
        if operation["plain"]:
            self._plain(operation["name"])
            self.interface.h5py(file).copy(operation["name"], operation["to"])
        else:
            self.interface.copy(file, operation["name"], operation["to"])
        self.models[operation["to"]] = model.copy(operation["to"])

    def _visit(self, operation: Operation) -> None:
        """Read each dataset of the file in a callback of HDF5's visit."""
        if not self.models:
            return
        name = next(iter(self.models))
        file = self._file(name, operation["via"])
        home = self.models[name].kind["file"]
        interface = self.interface.interface_of(file)
        self._plain(None)
        failures: list[Exception] = []

        def look(name: str) -> bool | None:
            model = self.models.get(name)
            if model is None or model.kind["file"] != home or model.dtype.hasobject:
                return None
            if is_changed(model):
                return None
            every = Picked(model.shape, None)
            memory = Memory("c", model.shape, model.dtype)
            try:
                own = getattr(file, "own", file)
                interface.read(ReadRequest(own, name, every, memory)).wait()
                model.expected(every).check(memory.values(), f"{name} as a visit reads it")
            except Exception as error:
                failures.append(error)
                return True
            return None

        self.interface.h5py(file).visit(look)
        if failures:
            raise failures[0]

    def _virtual(self, operation: Operation) -> None:
        sources = [self.models.get(name) for name in operation["sources"]]
        found = [source for source in sources if isinstance(source, Dataset)]
        same = {(s.shape[1:], s.dtype.str, s.kind["layout"] == "external") for s in found}
        if operation["name"] in self.models or len(found) < len(sources) or len(same) != 1:
            return
        self._to_write()
        self._plain(None)
        kind = operation | {"file": "main"}
        model = Virtual(found, kind)
        layouts.make_virtual(self.interface.h5py(self._open("main")), self.folder, operation, found)
        self.models[operation["name"]] = model

    def _is_source(self, name: str) -> bool:
        virtual = [model for model in self.models.values() if isinstance(model, Virtual)]
        return any(name in model.kind["sources"] for model in virtual)

    def _resize(self, operation: Operation) -> None:
        name = operation["name"]
        model = self.models.get(name)
        most = model.kind.get("maxshape") if model is not None else None
        if not isinstance(model, Dataset) or not most:
            return
        if self._is_source(name):
            if not operation.get("of_virtual"):
                return
            self._settle()
        shape = tuple(operation["shape"])
        if len(shape) != len(most):
            return
        shape = tuple(min(n, m or n) for n, m in zip(shape, most, strict=True))
        file = self._file_to_write(name)
        if operation.get("plain"):
            self._plain(name)
            self._h5py(name).resize(shape)
        else:
            self._plain(name, "resize")
            self.interface.resize(file, name, shape)
        before = model.shape
        model.resize(shape)
        if any(
            b > a and a % n for a, b, n in zip(before, shape, model.kind["chunks"], strict=True)
        ):
            # HDF5 leaves undefined what an edge chunk written as a whole has beyond the edge.
            self._plain(name)
            for axis, (old, new) in enumerate(zip(before, shape, strict=True)):
                if new > old:
                    beyond = (slice(None),) * axis + (slice(old, new),)
                    self._h5py(name)[beyond] = kinds.filled((), model.fill, model.dtype)[()]

    def _recreate(self, operation: Operation) -> None:
        sources.recreate(self, operation)

    def _delete(self, operation: Operation) -> None:
        name = operation["name"]
        if name not in self.models or self._is_source(name):
            return
        file = self._file_to_write(name)
        self.interface.forget(name)
        if operation.get("plain"):
            self._plain(name)
            del self.interface.h5py(file)[name]
        else:
            self._plain(name, "delete")
            self.interface.delete(file, name)
        del self.models[name]

    def _flush(self, _: Operation) -> None:
        self._plain(None, "flush")
        for file in list(self.files.values()):
            self.interface.flush(file)

    def _reopen(self, operation: Operation) -> None:
        self._close_files()
        self.mode = operation.get("mode", "r+")
        path = self.folder / "main.h5"
        if operation.get("replace") and path.exists():
            # As by a program that writes a new file and renames it.
            shutil.copyfile(path, path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)

    def _read_closed(self, _: Operation) -> None:
        self.interface.read_closed()

    def _open_again(self, operation: Operation) -> None:
        if "main" in self.files and "again" not in self.files:
            self.again_mode = operation.get("mode", "r+")
            self._open("again")

    def _close_again(self, _: Operation) -> None:
        if "again" in self.files:
            if "close" not in self.interface.settles:
                self._settle()
            self.interface.close(self.files.pop("again"))
            self.again_mode = "r+"

    def _plain_read(self, operation: Operation) -> None:
        name = operation["name"]
        model, picked = self._selected(operation)
        if model is None or picked is None or is_changed(model):
            return
        self._plain(name)
        expected = model.expected(picked)
        found = self._h5py(name, operation["via"])[picked.argument]
        expected.check(np.asarray(found), f"{name} as h5py reads it")

    def _plain_write(self, operation: Operation) -> None:
        name = operation["name"]
        model, picked = self._selected(operation)
        if model is None or picked is None or is_changed(model):
            return
        self._plain(name)
        file = self._file_to_write(name, operation["via"])
        new = _values(operation, picked.shape, model.dtype, model)
        self.interface.h5py(file)[name][picked.argument] = new
        model.write(picked, new)

    def _attribute(self, operation: Operation) -> None:
        if operation["name"] in self.models:
            file = self._file_to_write(operation["name"], operation["via"])
            self.interface.h5py(file)[operation["name"]].attrs["note"] = self.count

    def _refresh(self, operation: Operation) -> None:
        # HDF5 2.0 itself crashes where other identifiers of a chunked dataset are open, as after a
        # read of a virtual dataset.
        if operation["name"] in self.models and not self._is_source(operation["name"]):
            self._plain(None)
            self.interface.forget(operation["name"])
            self._h5py(operation["name"], operation["via"]).refresh()

    # -- rare things -------------------------------------------------------------------------------

    def _threads(self, operation: Operation) -> None:
        from . import threads

        self._to_write()
        self._settle()
        threads.run(self, operation)

    def _fork(self, operation: Operation) -> None:
        from . import processes

        processes.fork(self, operation)

    def _interrupts(self, operation: Operation) -> None:
        self._to_write()
        if self.interface.two_handles:
            # Only the Python interface holds on to the memory of what is interrupted.
            self._settle()
            groups = [[part | {"via": "main"} for part in group] for group in operation["groups"]]
            operation = operation | {"groups": groups}
        interrupts.run(self, operation)

    def _swmr(self, operation: Operation) -> None:
        from . import processes

        self._settle()
        processes.swmr(self, operation)

    def _full(self, operation: Operation) -> None:
        from . import failures

        self._settle()
        failures.full(self, operation)

    def _missing(self, operation: Operation) -> None:
        from . import failures

        self._to_write()
        failures.missing(self, operation)

    def _damaged(self, operation: Operation) -> None:
        from . import failures

        if hasattr(self.interface, "read_many") or self.interface.two_handles:
            failures.damaged(self, operation)


def _picked(model: Dataset | Virtual, select: Any, lists: str) -> Picked | None:
    picked = selection.pick(model.shape, select, lists)
    if isinstance(model, Virtual) and picked is not None and not picked.regular:
        # HDF5 2.0 itself mixes elements up where it maps lists and points to several sources.
        return Picked(model.shape, None)
    return picked


def _dtype(operation: Operation, model: Dataset | Virtual, kind: str) -> np.dtype[Any]:
    # HDF5 2.0 itself is wrong where it converts in virtual datasets.
    virtual = isinstance(model, Virtual)
    found = np.dtype(model.dtype if virtual else operation["dtype"] or model.dtype)
    return found.newbyteorder("=") if kind == "device" else found


def _values(operation: Operation, shape: Any, dtype: Any, model: Dataset | Virtual) -> Array:
    """The values that an operation writes."""
    narrow = kinds.is_narrow(model.kind.get("dtype", "u1"))
    return values.make(operation["seed"], shape, dtype, narrow=narrow)


def remove(folder: Path) -> None:
    for entry in os.scandir(folder):
        os.unlink(entry.path)
    folder.rmdir()
