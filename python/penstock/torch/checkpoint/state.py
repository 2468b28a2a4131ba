"""State dicts in the format of ``torch.save``."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from penstock import frameworks, request
from penstock._options import OptionKeys, Unpack, resolve
from penstock.files import READ, NativeFile, Path, encode, path_of_new
from penstock.replacement import Replacement
from penstock.torch.checkpoint import archive
from penstock.torch.checkpoint.errors import REMEDY, CheckpointFileError, damaged
from penstock.torch.checkpoint.restore import Restored
from penstock.torch.checkpoint.storages import new_storage
from penstock.torch.checkpoint.transfers import Ranges, is_durable, write_new

_Restore = Callable[[Any, str], Any]


def save(obj: Any, f: Path, **options: Unpack[OptionKeys]) -> None:
    """Save tensors and Python objects, as ``torch.save`` does, for ``torch.load`` or :func:`load`.

    Tensors go from their memory to the file by one request, those of a GPU without a copy on the
    CPU. The file replaces another one when it is complete; after an error, the old file is still
    there. It has all the properties that :func:`penstock.save` gives a file. Within
    ``torch.serialization.skip_data()``, torch writes the file, with space for the tensors.

    Args:
        obj: A state dict, or any object that ``torch.save`` takes. Tensors must not change
            meanwhile. Tensors that share memory share it again when they are loaded.
        f: The path of the file.
        **options: See :class:`penstock.OptionKeys`. ``durable`` is true by default: the file also
            survives a power failure.

    Raises:
        NotFoundError: The folder does not exist.
        NoSpaceError: The file system is full. The old file is still there.
        RuntimeError: Two tensors share memory as different data types.
        IncompatibleError: A tensor is on a device other than the CPU and CUDA GPUs.

    >>> penstock.torch.save(model.state_dict(), "model.pt")
    """
    path = path_of_new(f)
    if _skips_data():
        with (
            Replacement(path, durable=is_durable(options)) as descriptor,
            open(descriptor, "w+b", closefd=False) as file,
        ):
            torch.save(obj, file)
        return
    write_new(path, archive.encode(obj).parts, options)


def load(
    f: Path, map_location: Any = None, *, weights_only: bool = True, **options: Unpack[OptionKeys]
) -> Any:
    """Load what :func:`save` or ``torch.save`` has saved, as ``torch.load`` does.

    All tensors come by one request, straight into the memory of their devices. Python objects other
    than collections, text and numbers are restored by ``torch.load``. It also loads files that are
    no zip archives, or of another byte order. Within ``torch.serialization.skip_data()``, torch
    makes the tensors, and nothing fills them.

    Args:
        f: The path of the file.
        map_location: Where storages go, as for ``torch.load``: a device, a dictionary of
            locations, or a function, which gets storages on the CPU. By default, to the devices
            that they were saved from.
        weights_only: Whether to load only tensors, primitive types, dictionaries and what
            ``torch.serialization.add_safe_globals`` allows. Without it, the file can run any code.
        **options: See :class:`penstock.OptionKeys`.

    Raises:
        NotFoundError: The file does not exist.
        CheckpointFileError: The file is cut off or damaged; a ``RuntimeError``.
        pickle.UnpicklingError: ``weights_only`` does not allow an object.
        RuntimeError: There is no device as the one that a tensor was saved from.

    >>> model.load_state_dict(penstock.torch.load("model.pt", "cuda"))
    """
    # Another file may take the name meanwhile: it is opened once.
    with _open(f) as opened, NativeFile(opened.fileno(), READ) as file:

        def read(offset: int, length: int) -> bytes:
            return os.pread(opened.fileno(), length, offset)

        try:
            if _skips_data():
                raise archive.Unsupported("the tensors are not to be filled")
            directory = archive.Directory(read, file.size())
            _check_kind(directory)
            plain = _plain(directory, map_location)
            if plain is not None:
                _fill(file, plain.storages, options)
                return plain.object
            opened.filled, storages = _filled(directory, file, map_location, options)
        except archive.Damaged as error:
            raise damaged(opened.name, str(error)) from error
        except archive.Unsupported:
            return _load_by_torch(opened, map_location, weights_only)
        restore = _restoring(iter(storages), map_location)
        lengths = [storage.nbytes() for storage in storages]
        loaded = torch.load(opened, restore, weights_only=weights_only, mmap=False)
        for storage, length in zip(storages, lengths, strict=True):
            if storage.nbytes() != length:  # torch has made it longer, by undefined bytes
                raise damaged(opened.name, f"a tensor is longer than its storage of {length} bytes")
        return loaded


def _skips_data() -> bool:
    """Whether the thread is within ``torch.serialization.skip_data``, which old versions lack."""
    state = getattr(torch.serialization, "_serialization_tls", None)
    return bool(getattr(state, "skip_data", False))


class _File(io.FileIO):
    """A file in which torch skips the storages that are filled.

    ``torch.serialization.skip_data`` would also skip those of other archives, which an object
    loads when it is restored.
    """

    filled: frozenset[archive.Entry] = frozenset()

    def readinto(self, memory: Any) -> int | None:
        """Fill memory, unless a filled storage has its bytes."""
        place = archive.Entry(self.tell(), len(memory))
        if place in self.filled:
            return self.seek(place.length, os.SEEK_CUR) - place.offset
        return super().readinto(memory)


def _open(path: Path) -> _File:
    try:
        return _File(os.fsdecode(encode(path)))
    except OSError:
        NativeFile(path, READ).close()  # raises this package's own exception
        raise


def _check_kind(directory: archive.Directory) -> None:
    if frameworks.makes_fakes():
        raise archive.Unsupported("FakeTensorMode is on, and torch reads no elements")
    order = sys.byteorder.encode()
    if "byteorder" in directory and directory.content("byteorder") != order:
        raise archive.Unsupported("the bytes are in the other order")
    if "constants.pkl" in directory:
        raise archive.Unsupported("this is an archive of TorchScript")


def _plain(directory: archive.Directory, map_location: Any) -> Restored | None:
    """Return an object that needs no ``torch.load``; ``None`` if it does."""
    if callable(map_location):
        return None
    try:
        return Restored(directory, _Devices(map_location))
    except archive.Damaged:
        raise
    except archive.Unsupported:
        return None


def _filled(
    directory: archive.Directory, file: NativeFile, map_location: Any, options: OptionKeys
) -> tuple[frozenset[archive.Entry], list[Any]]:
    """Load all storages that are not empty; return their places and them, in their order."""
    device_of = _Devices(map_location)
    storages = []
    for stored in archive.storages_of(directory.content("data.pkl")):
        place = directory.entry(f"data/{stored.key}")
        if place.length and stored.location != "meta":
            storage = new_storage(place.length, device_of(stored.location))
            memory = archive.bytes_of(storage)
            if type(memory) is not torch.Tensor or storage.device.type not in ("cpu", "cuda"):
                raise archive.Unsupported(f"a file cannot fill a {type(memory)}")
            storages.append((storage, place))
    _fill(file, storages, options)
    return frozenset(place for _, place in storages), [storage for storage, _ in storages]


def _fill(file: NativeFile, storages: list[tuple[Any, archive.Entry]], options: OptionKeys) -> None:
    """Read the bytes of storages by one request."""
    ranges = Ranges()
    for storage, place in storages:
        ranges.add_storage(storage, place.offset, 0, place.length)
    ranges.move(file, request.READ, resolve(options))


def _restoring(storages: Iterator[Any], map_location: Any) -> _Restore:
    """Return a ``map_location`` that replaces empty storages by these, in their order."""

    def restore(empty: Any, location: str) -> Any:
        if not empty.nbytes() or location == "meta":
            storage = empty
        else:
            storage = next(storages)
            if storage.nbytes() != empty.nbytes():
                raise CheckpointFileError(
                    f"a storage of {empty.nbytes()} bytes has {storage.nbytes()} in the file",
                    remedy=REMEDY,
                )
        if callable(map_location):
            mapped = map_location(storage, location)
            return _restore_default(storage, location) if mapped is None else mapped
        return storage if storage is not empty else _restored(empty, location, map_location)

    return restore


class _Devices:
    """The devices of new storages, by the locations of those that were saved."""

    def __init__(self, map_location: Any) -> None:
        self._map_location = map_location
        self._known: dict[str, Any] = {}

    def __call__(self, location: str) -> Any:
        if callable(self._map_location):
            return "cpu"
        if location not in self._known:
            empty = torch.UntypedStorage(0)
            self._known[location] = _restored(empty, location, self._map_location).device
        return self._known[location]


_restore_default = torch.serialization.default_restore_location


def _restored(storage: Any, location: str, map_location: Any) -> Any:
    """Move a storage where ``map_location``, which is not a function, says."""
    if isinstance(map_location, dict):
        location = map_location.get(location, location)
    elif map_location is not None:
        location = str(map_location)
    return _restore_default(storage, location)


def _load_by_torch(file: _File, map_location: Any, weights_only: bool) -> Any:
    try:
        with io.BufferedReader(file) as opened:
            archive.check_compressed(opened)
            return torch.load(opened, map_location, weights_only=weights_only, mmap=False)
    except archive.Damaged as error:
        raise damaged(file.name, str(error)) from error
    except (RuntimeError, EOFError) as error:
        if isinstance(error, RuntimeError) and "PytorchStreamReader" not in str(error):
            raise
        cause = str(error).partition("\n")[0] or "the file ends too early"
        raise damaged(file.name, cause) from error
