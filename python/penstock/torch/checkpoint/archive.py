"""The zip archives of ``torch.save``: where their bytes go, and where they are.

Such an archive has stored entries only: ``data.pkl``, the pickle of the object, in which each
storage is a number, ``data/0``, ``data/1``, ... the bytes of the storages, and a few constants.
:func:`encode` plans an archive without touching the bytes of the storages, so that they can go
straight from their memory to the file. :class:`Directory` finds the entries of one.

The checksums of the storages are 0, as ``torch.serialization.set_crc32_options(False)`` makes
them: torch does not check them, and GPU memory would have to be read for them.
"""

from __future__ import annotations

import io
import lzma
import pickle
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import IO, Any, NamedTuple

import torch

from penstock import frameworks
from penstock.torch.checkpoint.unpickling import Inert, Named, checked

ALIGNMENT = 64
"""Storages start at multiples of this many bytes of the file."""
LARGE = 1 << 16
"""Storages from this many bytes on start at multiples of ``BLOCK``, as direct I/O prefers."""
BLOCK = 4096
"""It is not a page size, since a file is the same wherever it is written."""

_WIDE = 0xFFFFFFFF
"""Stands in a field of 32 bits for a number in an extra field of zip64."""
_LIMIT = _WIDE
"""Lengths and offsets from this on are in extra fields of zip64."""

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_UTF8 = 0x800
_FIRST_DATE = 0x21  # 1980-01-01


class Part(NamedTuple):
    """Consecutive bytes of a file, and where they come from."""

    offset: int
    source: Any
    """``bytes``, or a tensor whose C-contiguous memory has the bytes."""


class Archive(NamedTuple):
    """A planned archive."""

    parts: list[Part]
    """In the order of the file, without gaps."""
    end: int
    """The offset in the file behind the archive."""


def encode(obj: Any, start: int = 0, location: str | None = None) -> Archive:
    """Plan the archive that ``torch.save`` makes of an object.

    Args:
        obj: Tensors and Python objects, as for ``torch.save``. Storages that tensors share are
            stored once.
        start: The offset of the archive in its file.
        location: The device on which ``torch.load`` puts all storages, such as ``"cpu"``;
            by default, that of each storage.

    Raises:
        RuntimeError: Two tensors share memory as different data types, which ``torch.load``
            cannot restore.
    """
    pickled = io.BytesIO()
    pickler = _Pickler(pickled, location)
    pickler.dump(obj)
    writer = _Writer(start)
    writer.add("data.pkl", pickled.getvalue())
    # Without a .format_version, torch looks up where storages are instead of calculating it.
    writer.add("byteorder", sys.byteorder.encode())
    for number, storage in enumerate(pickler.storages):
        writer.add(f"data/{number}", bytes_of(storage))
    writer.add("version", b"3\n")
    return writer.finish()


class TensorArchives:
    """Plans archives of dense tensors without gradients. Those of like tensors differ by place."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._known: dict[Any, tuple[list[tuple[int, bytes | None]], int]] = {}

    def plan(self, tensor: torch.Tensor, start: int) -> Archive:
        """Return what :func:`encode` returns for a tensor that has all of its storage."""
        first = start % (BLOCK if tensor.nbytes >= LARGE else ALIGNMENT)
        key = tensor.dtype, tensor.shape, tensor.stride(), first
        if key not in self._known:
            made = encode(tensor, first, self._location)
            parts = [(at, one if isinstance(one, bytes) else None) for at, one in made.parts]
            self._known[key] = parts, made.end
        parts, end = self._known[key]
        content, shift = bytes_of(tensor.untyped_storage()), start - first
        return Archive(
            [Part(at + shift, content if one is None else one) for at, one in parts], end + shift
        )


class _Pickler(pickle.Pickler):
    """Pickles storages as their numbers, and collects them."""

    def __init__(self, file: io.BytesIO, location: str | None) -> None:
        super().__init__(file, protocol=2)
        self.storages: list[Any] = []
        self._location = location
        self._numbers: dict[int, int] = {}
        self._dtypes: dict[int, torch.dtype] = {}

    def reducer_override(self, obj: Any) -> Any:
        """Refuse a tensor that has not all of its memory, which nothing could load."""
        is_plain = type(obj) is torch.Tensor and obj.layout == torch.strided
        if (is_plain and obj.device.type != "meta") or frameworks.is_fake(obj):
            frameworks.address(obj)
        return NotImplemented

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, torch.storage.TypedStorage):
            kind = getattr(torch, obj._pickle_storage_type())
            storage, dtype, length = obj._untyped_storage, obj.dtype, obj._size()
        elif isinstance(obj, torch.UntypedStorage):
            kind, storage, dtype, length = torch.UntypedStorage, obj, torch.uint8, obj.nbytes()
        else:
            return None
        address = storage.data_ptr()
        if address and self._dtypes.setdefault(address, dtype) != dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                "types; save a clone of one of them"
            )
        number = self._numbers.setdefault(storage._cdata, len(self.storages))
        if number == len(self.storages):
            self.storages.append(storage)
        location = self._location or torch.serialization.location_tag(storage)
        return ("storage", kind, str(number), location, length)


def bytes_of(storage: Any, begin: int = 0, end: int | None = None) -> torch.Tensor:
    """Return bytes of a storage as a tensor that shares its memory."""
    length = (storage.nbytes() if end is None else end) - begin
    with torch._C._DisableTorchDispatch():  # such as FakeTensorMode, which would have no memory
        empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return empty.set_(storage, begin, (length,))


class _Writer:
    """Lays out entries one after the other."""

    def __init__(self, start: int) -> None:
        self._parts: list[Part] = []
        self._start = self._end = start
        self._central: list[bytes] = []

    def add(self, name: str, content: bytes | torch.Tensor) -> None:
        path = b"archive/" + name.encode()
        length = len(content)
        checksum = zlib.crc32(content) if isinstance(content, bytes) else 0
        start = self._end - self._start
        large = length >= _LIMIT
        sizes = struct.pack("<2H2Q", 1, 16, length, length) if large else b""
        named = self._end + _LOCAL.size + len(path) + len(sizes)
        # The content is aligned by an extra field of at least 4 bytes.
        padding = -(named + 4) % (BLOCK if length >= LARGE else ALIGNMENT)
        extra = sizes + struct.pack("<2H", 0x4246, padding) + bytes(padding)
        short = _WIDE if large else length
        common = (45 if large else 20, _UTF8, 0, 0, _FIRST_DATE, checksum, short, short, len(path))
        header = _LOCAL.pack(b"PK\3\4", *common, len(extra)) + path + extra
        if isinstance(content, bytes):
            header += content
        self._put(header)
        if not isinstance(content, bytes):
            self._put(content)
        far = start >= _LIMIT
        wide = struct.pack("<2Q", length, length) if large else b""
        wide += struct.pack("<Q", start) if far else b""
        wide = struct.pack("<2H", 1, len(wide)) + wide if wide else b""
        at = _WIDE if far else start
        entry = _CENTRAL.pack(b"PK\1\2", 45, *common, len(wide), 0, 0, 0, 0, at)
        self._central.append(entry + path + wide)

    def finish(self) -> Archive:
        start, count = self._end - self._start, len(self._central)
        central = b"".join(self._central)
        end = start + len(central)
        self._put(central)
        if end >= _LIMIT or count >= 0xFFFF:
            numbers = (44, 45, 45, 0, 0, count, count, len(central), start)
            locator = _LOCATOR.pack(b"PK\6\7", 0, end, 1)
            self._put(_END64.pack(b"PK\6\6", *numbers) + locator)
            count, start = 0xFFFF, _WIDE
        self._put(_END.pack(b"PK\5\6", 0, 0, count, count, len(central), start, 0))
        return Archive(self._parts, self._end)

    def _put(self, source: bytes | torch.Tensor) -> None:
        length = len(source)
        if length:
            self._parts.append(Part(self._end, source))
            self._end += length


class Unsupported(ValueError):  # noqa: N818 - it is caught, not shown
    """Only torch can read this: it is damaged, or not a usual archive of stored entries."""


class Damaged(Unsupported):
    """This is damaged, and torch would read wrong bytes."""


class Entry(NamedTuple):
    """An entry of an archive."""

    offset: int
    """Of its first byte, in the archive."""
    length: int


class Directory:
    """The entries of an archive of stored entries.

    Args:
        read: Returns bytes of the archive, given their offset and number, or raises
            :class:`Unsupported`.
        length: The number of bytes of the archive.
    """

    def __init__(self, read: Callable[[int, int], bytes], length: int) -> None:
        self._read, self._length = read, length
        self._headers: dict[str, tuple[str, Entry]] = {}
        starts = [self._find_central()[0]]
        for path, header in self._central():
            self._headers[path.partition("/")[2]] = path, header
            starts.append(header.offset)
        self._next = dict(pairwise(sorted(starts)))

    def __contains__(self, name: str) -> bool:
        return name in self._headers

    def entry(self, name: str) -> Entry:
        """Return the place of an entry by its name without the folder, such as ``data.pkl``.

        Entries do not overlap.
        """
        if name not in self._headers:
            raise Unsupported(f"there is no entry {name}")
        path, header = self._headers[name]
        signature, *_, of_path, of_extra = self._unpack(_LOCAL, header.offset)
        at = header.offset + _LOCAL.size
        start = at + of_path + of_extra
        if signature != b"PK\3\4" or start + header.length > self._next.get(header.offset, 0):
            raise Unsupported(f"entry {name} has no content")
        if self._read(at, of_path) != path.encode():
            raise Damaged(f"entry {name} has the header of another")
        return Entry(start, header.length)

    def content(self, name: str) -> bytes:
        """Return the bytes of an entry."""
        return self._read(*self.entry(name))

    def _central(self) -> Iterator[tuple[str, Entry]]:
        """Yield the path of each entry, the offset of its header and the length of its content."""
        start, length, count = self._find_central()
        central, at = self._read(start, length), 0
        for _ in range(count):
            try:
                fields = _CENTRAL.unpack_from(central, at)
                signature, method, (stored, size) = fields[0], fields[4], fields[8:10]
                of_path, of_extra, of_comment = fields[10:13]
                header = fields[-1]
                at += _CENTRAL.size
                path = central[at : at + of_path].decode()
                wide = _wide(central[at + of_path : at + of_path + of_extra])
                size = next(wide) if size == _WIDE else size
                stored = next(wide) if stored == _WIDE else stored
                header = next(wide) if header == _WIDE else header
            except (struct.error, StopIteration, UnicodeDecodeError) as error:
                raise Unsupported("the central directory is damaged") from error
            if signature != b"PK\1\2" or method != 0:
                raise Unsupported(f"entry {path} is compressed or damaged")
            if stored != size:
                raise Damaged(f"entry {path} has two lengths")
            yield path, Entry(header, size)
            at += of_path + of_extra + of_comment

    def _find_central(self) -> tuple[int, int, int]:
        at = self._length - _END.size
        signature, *_, count, length, start, _ = self._unpack(_END, at)
        if signature != b"PK\5\6":
            raise Unsupported("the archive has no end record")
        if _WIDE in (length, start) or count == 0xFFFF:
            signature, _, at, _ = self._unpack(_LOCATOR, at - _LOCATOR.size)
            if signature == b"PK\6\7":
                signature, *_, count, length, start = self._unpack(_END64, at)
                if signature != b"PK\6\6":
                    raise Unsupported("the archive has no end record of zip64")
        if start + length > self._length:
            raise Unsupported("the central directory is damaged")
        return start, length, count

    def _unpack(self, form: struct.Struct, offset: int) -> tuple[Any, ...]:
        if not 0 <= offset <= self._length - form.size:
            raise Unsupported("a record lies outside the archive")
        return form.unpack(self._read(offset, form.size))


_UNDECODABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,  # of bzip2
    RuntimeError,  # encrypted, or by another method
)


def check_compressed(file: IO[bytes]) -> None:
    """Decode the compressed entries of an archive, of which torch would return undefined bytes.

    Raises:
        Damaged: An entry cannot be decoded.
    """
    if file.read(4) == b"PK\3\4":
        try:
            with zipfile.ZipFile(file) as found:
                for entry in found.infolist():
                    if entry.compress_type != zipfile.ZIP_STORED:
                        with found.open(entry) as opened:
                            length = sum(map(len, iter(lambda: opened.read(1 << 20), b"")))
                        if length != entry.file_size:
                            raise Damaged(f"entry {entry.filename} is {length} bytes long")
        except _UNDECODABLE as error:
            raise Damaged(f"a compressed entry cannot be decoded: {error}") from error
    file.seek(0)


def _wide(extra: bytes) -> Iterator[int]:
    """Yield the 64-bit numbers of the zip64 field among extra fields."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            yield from struct.unpack_from(f"<{length // 8}Q", extra, at + 4)
            return
        at += 4 + length


class Storage(NamedTuple):
    """A storage that a pickle refers to."""

    kind: Any
    key: str
    location: str
    length: int
    """In elements of its kind."""


def storage_of(saved: Any) -> Storage:
    """Return what a persistent id says.

    Raises:
        Unsupported: It is not that of a storage.
    """
    if type(saved) is not tuple or len(saved) != 5 or saved[0] != "storage":
        raise Unsupported("a persistent id is not that of a storage")
    storage = Storage(*saved[1:])
    if [type(field) for field in storage[1:]] != [str, str, int]:
        raise Unsupported("a persistent id has fields of other types than that of a storage")
    return storage


class _Inventory(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.storages: dict[str, Storage] = {}

    def find_class(self, _module: str, _name: str) -> Any:
        return Inert

    def persistent_load(self, saved: Any) -> Any:
        storage = storage_of(saved)
        self.storages.setdefault(storage.key, storage)
        return Inert()


def storages_of(pickled: bytes) -> list[Storage]:
    """Return the storages of a ``data.pkl`` in the order of their first use.

    Calls nothing that the pickle names, so that it is safe for any pickle.
    """
    try:
        inventory = _Inventory(checked(pickled))
        inventory.load()
    except Exception as error:
        raise Unsupported(f"the pickle is damaged: {error}") from error
    return list(inventory.storages.values())


class StoredTensor(NamedTuple):
    """A tensor in an archive that has nothing else."""

    dtype: torch.dtype
    offset: int
    """Of its storage, in the archive."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""


def tensor_of(directory: Directory) -> StoredTensor:
    """Return where a tensor is that ``torch.save`` has stored.

    Raises:
        Unsupported: The archive holds something else, or a tensor that is not simply strided.
    """
    if "byteorder" in directory and directory.content("byteorder") != sys.byteorder.encode():
        raise Unsupported("the bytes are in the other order")
    try:
        found = TensorUnpickler(checked(directory.content("data.pkl"))).load()
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"not a tensor: {error}") from error
    if type(found) is not _Strided:
        raise Unsupported("not a tensor")
    dtype, storage, first, shape, strides = found
    step = dtype.itemsize
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    end = (first + last + 1 if 0 not in shape else first) * step
    entry = directory.entry(f"data/{storage.key}")
    if end > entry.length:
        raise Unsupported("the tensor is longer than its storage")
    steps = tuple(stride * step for stride in strides)
    return StoredTensor(dtype, entry.offset + first * step, shape, steps)


def check_simple(dtype: Any, metadata: Any) -> None:
    """Refuse a tensor that is more than elements of whole bytes."""
    if type(dtype) is not torch.dtype or dtype in _PACKED:
        raise Unsupported(f"the tensor has elements of {dtype}")
    if metadata:
        raise Unsupported("the tensor has metadata, such as a bit for its conjugate")


class _Strided(NamedTuple):
    """A tensor as its pickle describes it."""

    dtype: torch.dtype
    storage: Storage
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Kind(NamedTuple):
    """Stands in for a class of storages."""

    dtype: torch.dtype | None
    """``None`` for an UntypedStorage, beside which the pickle names the type."""


_PACKED = {
    getattr(torch, name)
    for name in ["qint8", "qint32", "quint8", "quint2x4", "quint4x2"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)]
    if hasattr(torch, name)
}
"""Quantized data types, whose tensors also have a scale, and those of less than a byte."""


class TensorUnpickler(pickle.Unpickler):
    """Unpickles one tensor, without calling anything that the pickle names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return Named(
                lambda storage, first, shape, strides, grad, hooks, metadata=None: self.rebuilt(
                    storage, first, shape, strides, grad, hooks, None, metadata
                )
            )
        if (module, name) == ("torch._utils", "_rebuild_tensor_v3"):
            return Named(self.rebuilt)
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        dtypes = torch.storage._storage_type_to_dtype_map()
        if module in ("torch", "torch.storage") and name in (*dtypes, "UntypedStorage"):
            return _Kind(dtypes.get(name))
        found = getattr(torch, name, None) if module == "torch" else None
        if isinstance(found, torch.dtype):
            return found
        raise Unsupported(f"the pickle names {module}.{name}")

    def rebuilt(
        self,
        storage: Any,
        first: Any,
        shape: Any,
        strides: Any,
        requires_grad: Any,
        hooks: Any,
        dtype: Any,
        metadata: Any = None,
    ) -> Any:
        """Stand in for the functions of torch that rebuild a tensor."""
        if type(storage) is not Storage:
            raise Unsupported("the tensor has no storage")
        dtype = storage.kind.dtype if dtype is None else dtype
        check_simple(dtype, metadata)
        found = _Strided(dtype, storage, first, tuple(shape), tuple(strides))
        if any(type(n) is not int or n < 0 for n in [first, *found.shape, *found.strides]):
            raise Unsupported("the tensor has a negative shape, or none of integers")
        if len(found.shape) != len(found.strides):
            raise Unsupported("the tensor has not as many strides as dimensions")
        return found

    def persistent_load(self, saved: Any) -> Any:
        storage = storage_of(saved)
        if type(storage.kind) is not _Kind:
            raise Unsupported("a persistent id has no class of storages")
        return storage
