"""The archives of torch.save: planned here and read by torch, and the other way round."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from .conftest import assert_same, state_dict, tensors, torch

checkpoint = pytest.importorskip("penstock.torch.checkpoint")
archive = pytest.importorskip("penstock.torch.checkpoint.archive")


def written(obj: Any, start: int = 0, location: str | None = None) -> bytes:
    planned = archive.encode(obj, start, location)
    data = bytearray()
    for offset, source in planned.parts:
        assert offset == start + len(data)
        data += source if isinstance(source, bytes) else source.cpu().numpy().tobytes()
    assert planned.end == start + len(data)
    return bytes(data)


def directory(data: bytes) -> Any:
    return archive.Directory(lambda offset, length: data[offset : offset + length], len(data))


@pytest.mark.parametrize("limit", [1, 5000, 0xFFFFFFFF])
def test_torch_loads_an_archive_with_and_without_zip64(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_LIMIT", limit)
    data = written(state_dict())
    assert_same(torch.load(io.BytesIO(data)), state_dict())
    assert len(directory(data).content("data.pkl")) > 0


def test_an_archive_is_a_valid_zip_file_except_for_the_checksums_of_storages() -> None:
    entries = zipfile.ZipFile(io.BytesIO(written(state_dict()))).infolist()
    without = [entry.filename for entry in entries if not entry.CRC]
    assert without
    assert all("/data/" in name for name in without)


def test_large_storages_start_at_pages_of_the_file_and_others_at_64_bytes() -> None:
    for offset, source in archive.encode(tensors(), start=777).parts:
        if not isinstance(source, bytes):
            assert offset % (4096 if len(source) >= 1 << 16 else 64) == 0


@pytest.mark.parametrize("name", tensors())
def test_a_tensor_is_found_in_the_archive_of_either_library(name: str) -> None:
    tensor = tensors()[name].detach()
    by_torch = io.BytesIO()
    torch.save(tensor, by_torch)
    for data in (by_torch.getvalue(), written(tensor)):
        if name == "conjugate":
            with pytest.raises(archive.Unsupported, match="metadata"):
                archive.tensor_of(directory(data))
            continue
        found = archive.tensor_of(directory(data))
        assert (found.dtype, found.shape) == (tensor.dtype, tuple(tensor.shape))
        memory = torch.frombuffer(bytearray(data) + bytes(16), dtype=torch.uint8)
        again = torch.empty(0, dtype=tensor.dtype)
        size = tensor.element_size()
        strides = [step // size for step in found.strides]
        storage = memory[found.offset :].clone().untyped_storage()
        again.set_(storage, 0, found.shape, strides)
        assert_same(again, tensor)


def test_tensors_that_share_memory_as_different_types_are_refused() -> None:
    one = torch.zeros(4)
    with pytest.raises(RuntimeError, match="different types"):
        archive.encode([one, one.view(torch.int32)])


def test_empty_tensors_may_have_different_types() -> None:
    dtypes = [torch.float32, torch.int64, torch.uint8] * 50
    state = {str(n): torch.zeros(0, dtype=dtype) for n, dtype in enumerate(dtypes)}
    assert_same(torch.load(io.BytesIO(written([state, state])))[1], state)


@pytest.mark.parametrize("length", [0, 10, 100, 700, -1])
def test_an_archive_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(archive.Unsupported):
        directory(written(torch.ones(1000))[:length])


def test_a_damaged_archive_is_refused_or_gives_a_tensor_inside_it() -> None:
    data = written(torch.arange(100.0))
    for at in range(len(data)):
        for value in (0, 0xFF):
            damaged = data[:at] + bytes([value]) + data[at + 1 :]
            try:
                found = archive.tensor_of(directory(damaged))
            except archive.Unsupported:
                continue
            last = sum((n - 1) * s for n, s in zip(found.shape, found.strides, strict=True))
            assert found.offset >= 0
            assert 0 in found.shape or found.offset + last + found.dtype.itemsize <= len(data)


def test_an_entry_whose_header_is_that_of_another_is_refused(tmp_path: Path) -> None:
    data = bytearray(written([torch.zeros(100), torch.ones(100)]))
    first, second = (data.rfind(b"archive/data/%d" % n) - 46 for n in range(2))
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    path = tmp_path / "state.pt"
    path.write_bytes(data)
    with pytest.raises(checkpoint.CheckpointFileError, match=r"state\.pt: entry data/1"):
        checkpoint.load(path)


def test_an_entry_that_reaches_into_the_next_is_refused() -> None:
    data = bytearray(written([torch.zeros(100), torch.ones(100)]))
    first = data.rfind(b"archive/data/0") - 46
    data[first + 20 : first + 28] = (800).to_bytes(4, "little") * 2
    with pytest.raises(archive.Unsupported, match="data/0"):
        directory(bytes(data)).entry("data/0")


class _Attack:
    def __reduce__(self) -> Any:
        return os.system, ("touch attacked",)


def test_looking_for_storages_runs_nothing_of_a_pickle(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert archive.storages_of(pickle.dumps({"x": _Attack()})) == []
    with pytest.raises(archive.Unsupported):
        archive.tensor_of(directory(written(_Attack())))
    assert not os.listdir(tmp_path)


def test_a_tensor_that_is_longer_than_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"x": torch.arange(4.0)}, tmp_path / "x")
    with zipfile.ZipFile(tmp_path / "x") as old, zipfile.ZipFile(tmp_path / "y", "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith("data.pkl"):
                assert data.count(b"K\x04\x85") == 1  # the shape (4,)
                data = data.replace(b"K\x04\x85", b"M\x10\x27\x85")
            new.writestr(entry, data)
    with pytest.raises(checkpoint.CheckpointFileError, match="longer than its storage"):
        checkpoint.load(tmp_path / "y")


_STORAGE = b"X\7\0\0\0storagectorch\nByteStorage\nX\1\0\0\0%bX\3\0\0\0cpuK%bt"
_V2 = b"ctorch._utils\n_rebuild_tensor_v2\n"
_LIKE = b"ccollections\nOrderedDict\n)R}X\3\0\0\0keyX\1\0\0\0" + b"0sb"


def with_pickle(pickled: bytes) -> Any:
    """Return the directory of an archive with a pickle and a storage of 16 bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as written:
        written.writestr("archive/data.pkl", b"\x80\2" + pickled + b".")
        written.writestr("archive/data/0", bytes(16))
    return directory(made.getvalue())


def rebuilt(storage: bytes, first: bytes = b"K\0", shape: bytes = b"K\2\x85") -> bytes:
    return _V2 + b"(" + storage + first + shape + b"K\1\x85\x89NtR"


def test_a_tensor_is_found_only_by_a_persistent_id_of_a_storage() -> None:
    good = b"(" + _STORAGE % (b"0", b"\20") + b"Q"
    assert archive.tensor_of(with_pickle(rebuilt(good))).shape == (2,)
    text, number = b"X\1\0\0\0" + b"0", b"K\0"
    kind = b"ctorch\nByteStorage\n"
    name = b"X\7\0\0\0storage"
    for storage in (
        b"(" + name + kind + text + text + text + b"tQ",
        b"(" + name + kind + number + text + number + b"tQ",
        b"(" + name + kind + text + number + number + b"tQ",
        b"(" + name + _LIKE + text + text + number + b"tQ",
        b"(" + name + kind + text + text + b"tQ",
        b"(" + text + kind + text + text + number + b"tQ",
        _LIKE,
        b"N",
    ):
        with pytest.raises(archive.Unsupported):
            archive.tensor_of(with_pickle(rebuilt(storage)))


def test_a_tensor_has_a_place_of_integers() -> None:
    good = b"(" + _STORAGE % (b"0", b"\20") + b"Q"
    half = b"G\x3f\xe0\0\0\0\0\0\0"
    for pickled in (
        rebuilt(good, first=half),
        rebuilt(good, first=b"\x88"),
        rebuilt(good, shape=half + b"\x85"),
        rebuilt(good, shape=b"K\1K\1\x86"),
        b"(ctorch\nuint8\n" + good + b"K\0K\2\x85K\1\x85t",
    ):
        with pytest.raises(archive.Unsupported):
            archive.tensor_of(with_pickle(pickled))


def test_archives_of_like_tensors_are_those_that_each_would_have() -> None:
    archives = archive.TensorArchives("cpu")
    start = 0
    for shape in [(3, 5), (3, 5), (0, 5), (300, 100), (300, 100), (), (300, 100)]:
        tensor = torch.randn(shape)
        made, wanted = archives.plan(tensor, start), archive.encode(tensor, start, "cpu")
        assert made.end == wanted.end
        for one, other in zip(made.parts, wanted.parts, strict=True):
            assert one.offset == other.offset
            assert bytes(one.source) == bytes(other.source)
        start = made.end
