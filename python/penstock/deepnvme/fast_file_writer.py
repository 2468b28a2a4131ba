"""FastPersist's file object, which writes through a double buffer in pinned memory."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from threading import RLock
from time import perf_counter
from typing import Any

from penstock import arrays, frameworks
from penstock.deepnvme.file_writers import BaseFileWriter, rate
from penstock.deepnvme.handle import Handle, start
from penstock.deepnvme.storages import bytes_of, part_of
from penstock.dtypes import element_type
from penstock.errors import Error, IncompatibleError, InvalidError
from penstock.files import CREATE, TRUNCATE, WRITE, NativeFile
from penstock.memory import copy_bytes
from penstock.request import WRITE as TO_FILE
from penstock.request import Request, print_error
from penstock.streams import wait_for

_BYTES = element_type("uint8")


@dataclass
class FastFileWriterConfig:
    """The configuration of a :class:`FastFileWriter`."""

    dnvme_handle: Handle
    """The writer uses its settings only, not its operations or its ``wait``."""
    pinned_tensor: Any
    """A contiguous array in host or GPU memory, for the writer alone until it is closed."""
    double_buffer: bool = True
    """Fill one half of the array while the other is written; if not, fill and write it as one."""
    num_parallel_writers: int = 1
    """Writers with one file each that share what ``save_torch_storage_object_list`` receives."""
    writer_rank: int = 0
    """The index of this writer among them."""
    global_rank: int = 0
    """Unused; for compatibility with DeepSpeed."""


class FastFileWriter(BaseFileWriter):
    """A file object for ``torch.save``, ``pickle.dump`` and similar functions.

    The constructor makes or truncates the file, which is complete when :meth:`close` has returned.
    An error of a copy or of a background write is raised once, by the ``write`` or ``close`` that
    finds it. Nothing more can be written after that.

    Args:
        file_path: The file.
        config: Handle, memory, and how to use them.

    Raises:
        NotFoundError: The folder does not exist.
        IncompatibleError: The handle is not of this package, or the array is not contiguous.

    >>> buffer = handle.new_cpu_locked_tensor(64 << 20, torch.empty(0, dtype=torch.uint8))
    >>> config = FastFileWriterConfig(handle, buffer)
    >>> with FastFileWriter("checkpoint.pt", config) as file:
    ...     torch.save(model.state_dict(), file)
    """

    def __init__(self, file_path: Any, config: FastFileWriterConfig) -> None:
        super().__init__(file_path)
        if not isinstance(config, FastFileWriterConfig):
            raise IncompatibleError(f"a {type(config).__name__} is not a FastFileWriterConfig")
        self._file: NativeFile | None = None
        names = "aio_write_secs aio_bytes slow_bytes slow_write_secs fill_buffer_count "
        names += "fill_buffer_secs save_storage save_storage_bytes"
        self._stats |= dict.fromkeys(names.split(), 0)
        if not isinstance(config.dnvme_handle, Handle):
            raise IncompatibleError(
                f"a {type(config.dnvme_handle).__name__} is not a handle of penstock.deepnvme"
            )
        try:
            self._rank = operator.index(config.writer_rank)
            self._writers = operator.index(config.num_parallel_writers)
        except TypeError as error:
            raise IncompatibleError(f"writer_rank and num_parallel_writers: {error}") from None
        if not 0 <= self._rank < self._writers:
            raise InvalidError(
                f"there is no writer {self._rank} of {self._writers}, counted from 0"
            )
        # Threads that write to one file take turns, a call each.
        self._turn = RLock()
        self._memory = arrays.contiguous_destination(frameworks.detached(config.pinned_tensor))
        parts = 2 if config.double_buffer else 1
        self._part_bytes = self._memory.nbytes // parts
        if not self._part_bytes:
            raise InvalidError(f"an array of {self._memory.nbytes} bytes is too short for a buffer")
        wait_for(self._memory.stream, self._memory.device)
        self._parts = [self._memory.pointer + i * self._part_bytes for i in range(parts)]
        self._current = 0
        self._filled = 0
        """Bytes in the current part."""
        self._offset = 0
        """Bytes of the file that are written or in flight."""
        self._in_flight: Request[None] | None = None
        self._has_failed = False
        file = NativeFile(file_path, WRITE | CREATE | TRUNCATE)
        # Chosen now, because the path may lead to another file later, or to none.
        self._options = config.dnvme_handle.options_for(self._memory, file_path)
        self._file = file

    def write(self, buffer: Any) -> int:
        """Write the bytes of an array or buffer, and return their number."""
        view = arrays.source(buffer)
        with self._turn:
            self._take(view.pointer, view.nbytes, view)
        return view.nbytes

    def save_torch_storage_object_list(self, storage_obj_list: Any, save_size: bool) -> int:
        """Write the bytes of torch's storages, each after its number of elements if ``save_size``.

        Each of several parallel writers writes only its share of these bytes.

        Args:
            storage_obj_list: Pairs of an untyped storage and the type of its elements.
            save_size: Whether to write the numbers of elements, as ``torch.load`` expects.

        Returns:
            The number of bytes that this writer wrote.
        """
        views = bytes_of(storage_obj_list, save_size)
        taken = 0
        with self._turn:
            for address, nbytes, view in part_of(views, self._writers, self._rank):
                self._take(address, nbytes, view)
                taken += nbytes
            self._stats["save_storage"] += len(storage_obj_list)
            self._stats["save_storage_bytes"] += taken
        return taken

    def flush(self) -> None:
        """Only count the call: the file is complete when :meth:`close` has returned."""
        self._stats["flush"] += 1

    def close(self) -> None:
        """Write the rest, flush the file to the medium and close it. Closing again does nothing.

        Raises:
            Error: A write failed, and no earlier call has raised the error.
        """
        with self._turn:
            self._stats["close"] += 1
            file = self._file
            if file is None:
                return
            try:
                if not self._has_failed:
                    begun = perf_counter()
                    self._drain()
                    self._settle()
                    self._guarded(file.sync)
                    self._stats["write_secs"] += perf_counter() - begun
            finally:
                file.close()
                self._file = None

    def statistics(self) -> dict[str, Any]:
        counted = super().statistics()
        nbytes = counted["aio_bytes"]
        counted["aio_GB/s"] = rate(nbytes, counted["aio_write_secs"])
        counted["fill_buffer_GB/s"] = rate(nbytes, counted["fill_buffer_secs"])
        return counted

    def __enter__(self) -> FastFileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_file") is None:
            return
        try:
            self.close()
        except Error as error:
            print_error(error.about("a FastFileWriter that was not closed"))

    def _take(self, address: int, nbytes: int, view: arrays.View) -> None:
        """Copy bytes into the buffer, and start to write each part that is full."""
        if self._file is None:
            raise InvalidError(f"{self._file_path} is closed")
        if self._has_failed:
            raise InvalidError(
                f"nothing more is written to {self._file_path}, because an earlier write failed"
            )
        begun = perf_counter()
        wait_for(view.stream, view.device)
        done = 0
        while done < nbytes:
            length = min(nbytes - done, self._part_bytes - self._filled)
            copying = perf_counter()
            place = self._parts[self._current] + self._filled
            self._guarded(partial(copy_bytes, place, address + done, length))
            self._stats["fill_buffer_secs"] += perf_counter() - copying
            self._stats["fill_buffer_count"] += 1
            self._filled += length
            done += length
            if self._filled == self._part_bytes:
                self._drain()
        self._stats["write"] += 1
        self._stats["bytes"] += nbytes
        self._stats["write_secs"] += perf_counter() - begun

    def _drain(self) -> None:
        """Start to write the current part, and continue with a free one."""
        self._settle()
        if not self._filled:
            return
        assert self._file is not None
        view = arrays.View(
            self._parts[self._current],
            self._filled,
            (self._filled,),
            _BYTES,
            self._memory.array,
            device=self._memory.device,
            keep=self._memory,
        )
        file, offset = self._file, self._offset
        self._in_flight = self._guarded(lambda: start(file, TO_FILE, offset, view, self._options()))
        self._offset += self._filled
        self._stats["aio_bytes"] += self._filled
        self._filled = 0
        self._current = (self._current + 1) % len(self._parts)
        if len(self._parts) == 1:
            self._settle()

    def _settle(self) -> None:
        """Wait for the write in flight."""
        request = self._in_flight
        if request is None:
            return
        begun = perf_counter()
        self._guarded(request.wait)
        self._in_flight = None
        self._stats["aio_write_secs"] += perf_counter() - begun

    def _guarded(self, call: Any) -> Any:
        """Return the result of a call. After an error, nothing more can be written."""
        try:
            return call()
        except Error:
            self._has_failed = True
            self._in_flight = None
            raise
