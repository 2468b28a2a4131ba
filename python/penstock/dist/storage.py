"""An ordinary HDF5 file that one process makes and many write, without parallel HDF5.

HDF5 writes the metadata and allocates the storage of the chunks. Other processes write the bytes of
the elements: the ranks of an MPI program, or Dask's workers. Until :meth:`Storage.finish`, the file
has a temporary name beside its own, so an interrupted run leaves the file that was there before.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from penstock.dist.description import Description
from penstock.dist.place import Place
from penstock.errors import Error, IncompatibleError, InvalidError, IOFailure, NotFoundError
from penstock.hdf5.library import lock

SUFFIX = ".unfinished"
_ZEROS = 1 << 20
_LONGEST_NAME = 255
"""Bytes of the name of a file, at most."""


class Storage:
    """A new HDF5 file under a temporary name. Only one process has it.

    Args:
        path: The final name of the file.
        options: Arguments of ``h5py.File``, such as ``libver`` and ``alignment_interval``.
        replaces: Whether the finished file replaces an existing one; else that is an error.
    """

    def __init__(self, path: Path, options: dict[str, Any], *, replaces: bool = True) -> None:
        import h5py

        self._replaces = replaces
        self.has_name = False
        """Whether the file has its final name."""
        self._place = _place_of(path)
        self.path = self._place.path
        """The final name. A symbolic link is kept, and its target replaced."""
        self._masks: dict[str, np.ndarray[Any, Any]] = {}
        """By the name of a dataset, the filter mask of each chunk plus 1; 0 if it has none yet."""
        self.token = secrets.randbits(64)
        """The number in the temporary name."""
        self.temporary = temporary_path(self.path, self.token)
        name = self.temporary.name
        # Before the file is made: a signal handler may raise between any two steps.
        self._discard = weakref.finalize(self, _remove, self._place, name, os.getpid())
        try:
            self._raw = _RawFile(self._place.create(name))
            self.file = h5py.File(self._raw, "w", **options)
        except BaseException:
            self._discard()
            raise

    def create(self, name: str, arguments: dict[str, Any]) -> tuple[Any, Description]:
        """Create a dataset with its storage, or with filters, whose chunks get storage later.

        Elements that are never written are zero, or the fill value that the caller gave, which HDF5
        then writes.

        Returns:
            The ``h5py.Dataset``, and its description for the processes that write the elements.
        """
        import h5py

        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if has_filters(arguments):
            dataset = self._create(name, arguments, creation)
            return dataset, Description.of(dataset).for_writing()
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        is_filled = arguments.get("fillvalue") is not None
        if not is_filled:
            # h5py has an argument for it from 3.12 on.
            creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        end = self._raw.size()
        dataset = self._create(name, arguments, creation)
        description = Description.of(dataset).for_writing()
        if not is_filled:
            self._clear(description, end)
        return dataset, description

    def _clear(self, description: Description, end: int) -> None:
        """Zero the storage of an array below ``end``, the length of the file before it had any.

        HDF5 reuses the storage of deleted datasets and older chunks. Bytes past the end are zero.
        """
        unit = math.prod(description.shape) * description.dtype.itemsize
        if description.chunks is not None:
            unit = math.prod(description.chunks) * description.dtype.itemsize
        if description.addresses is not None:
            places = description.addresses[description.addresses < end].tolist()
        else:
            places = [] if description.offset is None else [description.offset]
            unit *= max(description.stored, 1)
        for place in places:
            self._raw.clear(place, min(place + unit, end))

    def _create(self, name: str, arguments: dict[str, Any], creation: Any) -> Any:
        import h5py

        if arguments["shape"] == ():
            # h5py ignores the creation properties of a scalar.
            if has_filters(arguments) or arguments.get("chunks"):
                raise IncompatibleError(f"{name} is a scalar, which has no chunks and no filters")
            if arguments.get("fillvalue") is not None:
                creation.set_fill_value(np.array(arguments["fillvalue"], arguments["dtype"]))
            kind = h5py.h5t.py_create(arguments["dtype"], logical=True)
            space, links = h5py.h5s.create(h5py.h5s.SCALAR), h5py.h5p.create(h5py.h5p.LINK_CREATE)
            links.set_create_intermediate_group(True)
            path = name.encode()
            return h5py.Dataset(
                h5py.h5d.create(self.file.id, path, kind, space, creation, lcpl=links)
            )
        return self.file.create_dataset(name, dcpl=creation, **arguments)

    def allocate(
        self,
        dataset: Any,
        numbers: np.ndarray[Any, Any],
        sizes: np.ndarray[Any, Any],
        masks: np.ndarray[Any, Any],
    ) -> np.ndarray[Any, Any]:
        """Make HDF5 allocate storage for encoded chunks, and add them to the index.

        HDF5 writes each chunk, and the driver below it discards the bytes: another process has the
        chunk, and writes it later.

        Args:
            dataset: The ``h5py.Dataset``.
            numbers: The chunks, counted in C order.
            sizes: The bytes of each.
            masks: The filters that each skips.

        Returns:
            The offset of each chunk.
        """
        addresses = np.empty(len(numbers), np.int64)
        if not len(numbers):
            return addresses
        counts = [-(-s // c) for s, c in zip(dataset.shape, dataset.chunks, strict=True)]
        places = np.stack(np.unravel_index(numbers, counts), axis=1) * np.array(dataset.chunks)
        # These bytes are never accessed, so they take no memory.
        unused: Any = np.empty(int(sizes.max()) + 1, np.uint8)
        nothing = memoryview(unused)
        with lock(), self._raw.without(nothing):
            write = dataset.id.write_direct_chunk
            changes = self._change_masks(dataset.name, math.prod(counts), numbers, masks)
            ordered = zip(places.tolist(), sizes.tolist(), masks.tolist(), changes, strict=True)
            for at, (place, size, mask, changes_mask) in enumerate(ordered):
                if changes_mask:
                    # HDF5 records the mask only if the length changes.
                    write(tuple(place), nothing[: size + 1], mask)
                self._raw.left_out = None
                write(tuple(place), nothing[:size], mask)
                if self._raw.left_out is None or self._raw.left_out[1] != size:
                    raise IOFailure(
                        f"{self.temporary}: HDF5 did not report the offset of the chunk at {place} "
                        f"of {dataset.name}",
                        path=str(self.temporary),
                    )
                addresses[at] = self._raw.left_out[0]
        return addresses

    def _change_masks(
        self, name: str, count: int, numbers: np.ndarray[Any, Any], masks: np.ndarray[Any, Any]
    ) -> list[bool]:
        """Record the masks of chunks. Return which were written before with another mask."""
        if name not in self._masks:
            # Pages of zeros take memory only where chunks are written.
            self._masks[name] = np.zeros(count, np.int64)
        known = self._masks[name]
        marks = masks.astype(np.int64) + 1
        before = known[numbers]
        known[numbers] = marks
        changed: list[bool] = ((before != 0) & (before != marks)).tolist()
        return changed

    def finish(self, durable: bool) -> None:
        """Write all metadata, and replace the file at the path by this one."""
        try:
            self.file.close()
            self._place.take_rights(self._raw.fileno())
            if durable:
                self._raw.sync()
            name = self.temporary.name
            (self._place.rename if self._replaces else self._place.link)(name)
            self.has_name = True
            if not self._replaces:
                self._place.remove(name)
            if durable:
                self._place.sync()
        except OSError as error:
            if isinstance(error, Error):
                raise
            state = "the new file is in place, but the last step failed"
            if not self.has_name:
                state = "the file could not be completed"
            raise IOFailure(
                f"{self.path}: {state}: {error}", path=str(self.path), errno=error.errno
            ) from error
        self._discard.detach()

    def leave(self) -> None:
        """Close the file, and leave it under its temporary name to :func:`put_in_place`."""
        self.file.close()
        self._discard.detach()

    def discard(self) -> None:
        """Remove the unfinished file. The one at the path stays as it was."""
        # HDF5 would write to a file that is gone; errors of those writes do not matter.
        with contextlib.suppress(Exception):
            self.file.close()
        self._discard()


def temporary_path(path: Path, token: int) -> Path:
    """Return the name of an unfinished file. ``path`` is the final one, links resolved."""
    end = f".{token:016x}{SUFFIX}"
    return path.with_name(f".{shortened(path.name, 1 + len(end))}{end}")


def shortened(name: str, more: int) -> str:
    """Shorten a name so that a file name has room for ``more`` further bytes."""
    # The rest of a character that was cut is not valid text.
    return os.fsencode(name)[: _LONGEST_NAME - more].decode(errors="ignore")


def _place_of(path: Path) -> Place:
    try:
        return Place(path)
    except NotFoundError:
        folder = str(path.parent)
        raise NotFoundError(f"{folder}: the folder does not exist", path=folder) from None
    except OSError as error:
        if error.errno == errno.EISDIR:
            raise InvalidError(f"{path} is a folder", path=str(path)) from None
        raise


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a file that was left to its final name, in place of an existing file."""
    place = _place_of(path)
    try:
        descriptor = place.open(temporary.name)
        try:
            place.take_rights(descriptor)
        finally:
            os.close(descriptor)
        place.rename(temporary.name)
    except OSError as error:
        raise IOFailure(
            f"{path}: the file could not be completed: {error}", path=str(path), errno=error.errno
        ) from error


def has_filters(arguments: dict[str, Any]) -> bool:
    """Whether chunks of a dataset with these arguments of ``create_dataset`` have filters.

    As ``compression`` and ``scaleoffset``, 0 and ``False`` are filters, too, to h5py.
    """
    numbers = (arguments.get(key) for key in ("compression", "scaleoffset"))
    switches = (arguments.get(key) for key in ("shuffle", "fletcher32"))
    return any(one is not None for one in numbers) or any(switches)


def _remove(place: Place, name: str, process: int) -> None:
    if os.getpid() != process:  # a forked child that ends
        return
    with contextlib.suppress(OSError):
        place.remove(name)


class _RawFile:
    """The file below HDF5, for the driver of h5py that takes a Python object.

    It is closed when HDF5 no longer refers to it, so that HDF5 never writes to a descriptor that
    was reused for another file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._position = 0
        self._nothing = 0
        self.left_out: tuple[int, int] | None = None
        """Offset and length of the last write that was left out."""

    def __del__(self) -> None:
        os.close(self._descriptor)

    def size(self) -> int:
        """Return the length of the file."""
        return os.fstat(self._descriptor).st_size

    def clear(self, start: int, stop: int) -> None:
        """Set bytes to zero."""
        zeros = bytes(min(max(stop - start, 0), _ZEROS))
        while start < stop:
            start += os.pwrite(self._descriptor, zeros[: stop - start], start)

    def fileno(self) -> int:
        return self._descriptor

    def sync(self) -> None:
        """Flush data and length to the medium."""
        os.fsync(self._descriptor)

    @contextlib.contextmanager
    def without(self, nothing: memoryview) -> Any:
        """Within the block, leave out writes of these bytes."""
        self._nothing = np.frombuffer(nothing, np.uint8).ctypes.data
        try:
            yield
        finally:
            self._nothing = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            offset += self.size()
        elif whence == os.SEEK_CUR:
            offset += self._position
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            count = os.preadv(self._descriptor, [view[done:]], self._position)
            if not count:
                break
            done += count
            self._position += count
        # HDF5 has allocated more than the file has yet, and does not notice a short read.
        view[done:] = bytes(len(view) - done)
        self._position += len(view) - done
        return len(view)

    def read(self, size: int = -1) -> bytes:
        left = max(self.size() - self._position, 0)
        buffer = bytearray(left if size < 0 else min(size, left))
        self.readinto(buffer)
        return bytes(buffer)

    def write(self, data: Any) -> int:
        bytes_: Any = np.frombuffer(data, np.uint8)
        if self._nothing and bytes_.ctypes.data == self._nothing:
            self.left_out = (self._position, bytes_.size)
            self._position += bytes_.size
            return int(bytes_.size)
        done = 0
        while done < bytes_.size:
            count = os.pwrite(self._descriptor, bytes_[done:], self._position)
            done += count
            self._position += count
        return done

    def truncate(self, size: int | None = None) -> int:
        size = self._position if size is None else size
        os.ftruncate(self._descriptor, size)
        return size

    def flush(self) -> None:
        pass
