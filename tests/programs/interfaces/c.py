"""The C interface, called as by a C program; identifiers and the lock are h5py's."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
from h5py._hl import selections
from h5py._objects import phil

from penstock._native import NULL, ffi, lib, new_options, new_report

from ..selection import Picked
from ..values import Memory
from .base import (
    CancelledError,
    Interface,
    ManyRequest,
    ReadRequest,
    Transfer,
    TransferRequest,
)
from .described import Described, pieces


class FailedError(Exception):
    """A function of penstock.h returned an error."""


class Submitted(Transfer):
    def __init__(self, request: Any, keep: object) -> None:
        self._request = request
        self._keep = keep
        self._outcome: int | None = None

    def wait(self) -> None:
        for slice_ns in itertools.chain([0, 1_000_000], itertools.repeat(-1)):
            if self._step(slice_ns):
                break
        outcome, message = self._outcome, "" if self._outcome == lib.PENSTOCK_OK else _message()
        self._free()
        if outcome == lib.PENSTOCK_ERR_CANCELLED:
            raise CancelledError
        if outcome != lib.PENSTOCK_OK:
            raise FailedError(f"status {outcome}: {message}")

    def done(self) -> bool:
        return self._step(0)

    def _step(self, timeout_ns: int) -> bool:
        if self._request is None:
            return True
        status = lib.penstock_request_wait(self._request, timeout_ns)
        if status == lib.PENSTOCK_TURN:
            with phil:
                lib.penstock_request_turn(self._request)
            status = lib.penstock_request_test(self._request)
        if status in (lib.PENSTOCK_PENDING, lib.PENSTOCK_TURN):
            return False
        self._outcome = status
        return True

    def cancel(self) -> None:
        if self._request is not None:
            _check(lib.penstock_request_cancel(self._request))

    def drop(self) -> None:
        self._free()

    def _free(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            with phil:  # freeing takes the turns of one that is under way
                lib.penstock_request_free(request)
        self._keep = None


class C(Interface):
    strided = True
    device = True
    cancels = True
    maps = True
    lists = "adjacent"

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        _check(lib.penstock_hdf5_bind(h5py.h5.__file__.encode()))
        self._readers: dict[tuple[int, str, str], tuple[Any, Any]] = {}
        """``penstock_reader *``, and their files, by the file's ``id``, name and type."""
        self._closed: list[tuple[Any, tuple[int, ...]]] = []

    def open(
        self, path: Path, mode: str, *, opening: dict[str, Any] | None = None, **arguments: Any
    ) -> Any:
        if opening and opening["driver"]:
            arguments |= {"driver": "penstock"} | opening["options"]
        return h5py.File(path, mode, **arguments)

    def let_go(self, file: Any) -> None:
        for reader, _ in self._closed:
            lib.penstock_reader_close(reader)
        gone = [key for key, (of, *_) in self._readers.items() if of is file]
        self._closed = [self._readers.pop(key)[1] for key in gone]

    def forget(self, name: str) -> None:
        for key in [key for key in self._readers if key[1] == name]:
            lib.penstock_reader_close(self._readers.pop(key)[1][0])

    def read_closed(self) -> None:
        for reader, shape in self._closed:
            memory = Memory("c", (1,) * len(shape), "u1")
            first = Picked(shape, [slice(0, 1, 1)] * len(shape))
            described = Described(first, memory)
            status = lib.penstock_reader_read(
                reader, described.selection, described.array, NULL, NULL, 0, NULL
            )
            assert status != lib.PENSTOCK_OK, "a reader read after its file was closed"

    def end(self) -> None:
        for reader, _ in [*self._closed, *(found for _, found in self._readers.values())]:
            lib.penstock_reader_close(reader)
        self._closed.clear()
        self._readers.clear()

    def read(self, request: ReadRequest) -> Transfer:
        if request.way == "kept":
            done = self._read_by_reader(request)
            if done is not None:
                return done
        if request.way != "plain" or not request.picked.is_of_hdf5:
            return self._start_selected(lib.penstock_dataset_read_selected, request)
        functions = (lib.penstock_dataset_read, lib.penstock_dataset_read_submit)
        return self._start(functions, request)

    def _read_by_reader(self, request: ReadRequest) -> Transfer | None:
        file, name, memory = request.file, request.name, request.given_memory
        key = (id(file), name, memory.dtype.str)
        if key not in self._readers:
            place = ffi.new("penstock_reader **")
            kind = h5py.h5t.py_create(memory.dtype)
            with phil:
                dataset = self.h5py(file)[name]
                _check(lib.penstock_reader_open(dataset.id.id, kind.id, place))
            if place[0] == NULL:
                return None
            self._readers[key] = (file, (place[0], request.picked.whole))
        reader, _ = self._readers[key][1]
        described = Described(request.picked, memory)
        arguments = (described.selection, described.array, _options(request.options), NULL, 0)
        made = ffi.new("penstock_request **")
        if request.waits:
            status = lib.penstock_reader_read(reader, *arguments, new_report())
        else:
            status = lib.penstock_reader_start(reader, *arguments, made)
        if status == lib.PENSTOCK_PENDING:
            return None
        _check(status)
        return Transfer() if request.waits else Submitted(made[0], (memory, file, described))

    def _start_selected(self, function: Any, request: TransferRequest) -> Transfer:
        memory = request.given_memory
        with phil:
            dataset = self.h5py(request.file)[request.name]
            described = Described(request.picked, memory)
            arguments = (described.selection, described.array, _options(request.options), NULL, 0)
            if request.waits:
                _check(function(dataset.id.id, *arguments, new_report(), NULL))
                return Transfer()
            made = ffi.new("penstock_request **")
            _check(function(dataset.id.id, *arguments, NULL, made))
        return Submitted(made[0], (memory, dataset, described))

    def read_many(self, request: ManyRequest) -> list[Any]:
        parts, count = request.parts, len(request.parts)
        with phil:
            plain = self.h5py(request.file)
            described = [Described(picked, memory) for _, picked, memory in parts if memory]
            options = _options(request.options)
            given = (pieces(described), count, options, NULL, 0, new_report(), NULL)
            if not request.by_name:
                datasets = [plain[name] for name, _, _ in parts]
                ids = ffi.new("penstock_hid[]", [dataset.id.id for dataset in datasets])
                _check(lib.penstock_dataset_read_many(ids, *given))
            else:
                names = [ffi.new("char[]", name.encode()) for name, _, _ in parts]
                opened = ffi.new("penstock_datasets **")
                shapes = ffi.new("penstock_dataset_shape[]", count)
                _check(
                    lib.penstock_datasets_open(
                        plain.id.id, ffi.new("char *[]", names), NULL, count, shapes, opened
                    )
                )
                try:
                    _check(lib.penstock_datasets_read(opened[0], *given))
                finally:
                    lib.penstock_datasets_close(opened[0])
        return [None] * count

    def write(self, request: TransferRequest) -> Transfer:
        if not request.picked.is_of_hdf5:
            return self._start_selected(lib.penstock_dataset_write_selected, request)
        functions = (lib.penstock_dataset_write, lib.penstock_dataset_write_submit)
        return self._start(functions, request)

    def _start(self, functions: Any, request: TransferRequest) -> Transfer:
        at_once, submit = functions
        picked, memory, waits = request.picked, request.given_memory, request.waits
        wanted = _options(request.options)
        with phil:
            dataset = self.h5py(request.file)[request.name]
            space = selections.select(dataset.shape, picked.argument, dataset=dataset).id
            kind = h5py.h5t.py_create(memory.dtype)
            address = ffi.cast("void *", memory.address)
            if waits and memory.strides is None:
                shape = picked.shape
                flat = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
                arguments = (dataset.id.id, kind.id, flat.id, space.id, 0, address, NULL, wanted)
                _check(at_once(*arguments, new_report()))
                return Transfer()
            array = ffi.new("penstock_array *")
            array.struct_size = ffi.sizeof("penstock_array")
            array.data, array.type, array.rank = address, kind.id, len(picked.shape)
            lengths = ffi.new("uint64_t[]", picked.shape)
            strides = NULL if memory.strides is None else ffi.new("int64_t[]", memory.strides)
            array.shape, array.strides = lengths, strides
            made = ffi.new("penstock_request **")
            _check(submit(dataset.id.id, space.id, array, wanted, NULL, 0, made))
        transfer = Submitted(made[0], (memory, dataset))
        if waits:
            transfer.wait()
        return Transfer() if waits else transfer


def _options(options: dict[str, Any]) -> Any:
    if not options:
        return NULL
    made = new_options()
    text = ";".join(f"{key}={value}" for key, value in options.items())
    _check(lib.penstock_options_parse(text.encode(), made))
    return made


def _message() -> str:
    error = ffi.new("penstock_error *")
    error.struct_size = ffi.sizeof("penstock_error")
    lib.penstock_last_error(error)
    return ffi.string(error.message).decode() if error.message else ""


def _check(status: int) -> None:
    if status != lib.PENSTOCK_OK:
        raise FailedError(f"status {status}: {_message()}")
