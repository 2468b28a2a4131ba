"""penstock.torch.save and load beside torch.save and torch.load."""

from __future__ import annotations

import builtins
import codecs
import io
import os
import pickle
import struct
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from .conftest import assert_same, state_dict, torch

checkpoint = pytest.importorskip("penstock.torch.checkpoint")
unpickling = pytest.importorskip("penstock.torch.checkpoint.unpickling")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.pt"


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_loads_what_was_saved(path: Path, mmap: bool) -> None:
    checkpoint.save(state_dict(), path)
    assert_same(torch.load(path, mmap=mmap), state_dict())


def test_what_torch_has_saved_is_loaded(path: Path) -> None:
    torch.save(state_dict(), path)
    assert_same(checkpoint.load(path), state_dict())


def test_all_tensors_are_saved_by_one_request_and_loaded_by_one(
    path: Path, count_requests: list[int]
) -> None:
    checkpoint.save(state_dict(), path)
    assert len(count_requests) == 1
    checkpoint.load(path)
    assert len(count_requests) == 2


def test_tensors_that_share_memory_share_it_again(path: Path) -> None:
    checkpoint.save(state_dict(), path)
    model = checkpoint.load(path)["model"]
    assert model["transposed"].data_ptr() == model["matrix"].data_ptr()


@pytest.mark.parametrize(
    "map_location",
    ["cpu", torch.device("cpu"), {"cpu": "cpu"}, lambda storage, _: storage, lambda *_: None],
)
def test_every_kind_of_map_location_is_followed(path: Path, map_location: Any) -> None:
    checkpoint.save(state_dict(), path)
    assert_same(checkpoint.load(path, map_location), state_dict())


def test_a_map_location_that_is_a_function_gets_storages_with_their_contents(path: Path) -> None:
    checkpoint.save({"one": torch.full((3,), 7, dtype=torch.uint8)}, path)
    seen = []
    checkpoint.load(path, lambda storage, location: seen.append((list(storage), location)))
    assert seen == [([7, 7, 7], "cpu")]


def test_meta_tensors_are_made_as_torch_makes_them(path: Path) -> None:
    checkpoint.save({"one": torch.ones(3)}, path)
    assert checkpoint.load(path, "meta")["one"].device.type == "meta"


def test_tensors_collections_and_numbers_are_restored_without_torch_load(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = torch.nn.Linear(3, 2)
    shared = torch.arange(12.0).reshape(3, 4)
    wanted = {
        "model": model.state_dict(),
        "views": [shared[1:], shared.T, torch.tensor(5), torch.empty(0, 3)],
        "types": (torch.zeros(3).to(torch.float8_e4m3fn), torch.ones(2, dtype=torch.complex64)),
        "needs grad": torch.ones(2, requires_grad=True),
        "others": [1, 2.5, "text", None, True, torch.bfloat16, torch.Size([2, 3]), {"a": 1}],
    }
    torch.save(wanted, path)
    monkeypatch.setattr(torch, "load", None)
    found = checkpoint.load(path)
    assert_same(found, wanted)
    assert found["model"]._metadata == wanted["model"]._metadata  # type: ignore[attr-defined]
    assert found["views"][0].data_ptr() - 16 == found["views"][1].data_ptr()
    assert found["needs grad"].requires_grad


@pytest.mark.parametrize("state", [b"N}X\x0c\0\0\0__defaults__)s\x86", b"}X\1\0\0\0xK\1s"])
def test_a_pickle_cannot_change_what_restores_its_tensors(path: Path, state: bytes) -> None:
    pickled = b"\x80\2ctorch._utils\n_rebuild_tensor_v2\n" + state + b"b."
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3")
    with suppress(pickle.UnpicklingError):
        checkpoint.load(path)
    directory = checkpoint.archive.Directory(
        lambda offset, length: path.read_bytes()[offset : offset + length], path.stat().st_size
    )
    with suppress(ValueError):
        checkpoint.archive.tensor_of(directory)
    torch.save({"one": torch.ones(3)}, path)
    assert_same(checkpoint.load(path), {"one": torch.ones(3)})
    ours = checkpoint.restore._Unpickler.rebuilt, checkpoint.archive.TensorUnpickler.rebuilt
    for function in (torch._utils._rebuild_tensor_v2, *ours):
        assert not vars(function)
        assert function.__defaults__ in (None, (None,))


def _named(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def _storage(key: str, count: int, kind: str = "ByteStorage", module: str = "torch") -> bytes:
    where = _text("storage") + _named(module, kind) + _text(key) + _text("cpu")
    return b"(" + where + _number(count) + b"tQ"


def _tensor(storage: bytes, first: int, length: int, *more: bytes) -> bytes:
    """Return the pickle of a vector of bytes, or of the type in ``more``."""
    function = _named("torch._utils", "_rebuild_tensor_v3" if more else "_rebuild_tensor_v2")
    place = _number(first) + _number(length) + b"\x85K\1\x85"
    return function + b"(" + storage + place + b"\x89N" + b"".join(more) + b"tR"


def _write_pickle(path: Path, pickled: bytes, *storages: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\2" + pickled + b".")
        archive.writestr("archive/version", "3")
        for number, data in enumerate(storages):
            archive.writestr(f"archive/data/{number}", data)


def _with_attributes(**values: bytes) -> bytes:
    """Return the pickle of an object with these attributes."""
    state = b"".join(_text(name) + value + b"s" for name, value in values.items())
    return _named("collections", "OrderedDict") + b")R}" + state + b"b"


_REBUILD = _named("torch._utils", "_rebuild_tensor_v2")


def test_a_pickle_cannot_replace_the_memory_of_a_storage(path: Path) -> None:
    from penstock.torch.checkpoint import transfers

    given = []

    class Ranges(transfers.Ranges):
        def add_storage(self, storage: Any, *place: int) -> None:
            given.append(storage)

    def filled(nbytes: int, _: Any) -> Any:
        return torch.full((nbytes // 8,), 16).untyped_storage()

    number = b"(" + _storage("1", 2, "LongStorage") + b"K\0))\x89Nt"
    returns_16 = _REBUILD + b"(" + _REBUILD + number + b"}}tb"
    fake = _with_attributes(nbytes=returns_16, data_ptr=returns_16, device=_with_attributes())
    changed = _storage("0", 2, "LongStorage") + b"}" + _text("_untyped_storage") + fake + b"sb"
    _write_pickle(path, changed, bytes(16), bytes(16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.torch.checkpoint.restore.new_storage", filled)
        patch.setattr("penstock.torch.checkpoint.state.Ranges", Ranges)
        patch.setattr(Ranges, "move", lambda *_: None)
        with suppress(pickle.UnpicklingError):
            checkpoint.load(path)
    assert all(type(storage) is torch.UntypedStorage for storage in given)


def test_a_storage_that_is_replaced_by_another_has_no_bytes_beyond_it(path: Path) -> None:
    one, other = _storage("0", 16) + b"q\1", _storage("1", 16)
    replaced = b"h\1}" + _text("_untyped_storage") + other + b"sb"
    _write_pickle(
        path, b"(" + one + _tensor(b"h\1", 0, 4000) + replaced + b"t", bytes(16), bytes(16)
    )
    with pytest.raises((pickle.UnpicklingError, checkpoint.CheckpointFileError)):
        checkpoint.load(path)


@pytest.mark.parametrize("function", ["_rebuild_tensor_v2", "_rebuild_tensor_v3"])
def test_a_pickle_cannot_replace_a_function(path: Path, function: str) -> None:
    named = _named("torch._utils", function)
    replaced = b"(" + _named("collections", "OrderedDict") + b")}}tb"
    _write_pickle(path, named + replaced + b")R")
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.load(path)


@pytest.mark.parametrize("dtype", ["quint8", "uint1"])
def test_a_tensor_of_packed_elements_is_left_to_torch(
    path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    storage = _storage("0", 16, "UntypedStorage", "torch.storage")
    _write_pickle(path, _tensor(storage, 0, 2, _named("torch", dtype)), bytes(16))
    monkeypatch.setattr(torch, "load", lambda *_, **__: "torch")
    assert checkpoint.load(path) == "torch"


def test_a_storage_that_no_tensor_uses_is_kept(path: Path) -> None:
    storage = torch.arange(4.0).storage()
    torch.save({"one": torch.ones(3), "storage": storage}, path)
    assert list(checkpoint.load(path)["storage"]) == [0, 1, 2, 3]


def test_sparse_and_quantized_tensors_are_kept(path: Path) -> None:
    sparse = torch.eye(3).to_sparse()
    checkpoint.save({"sparse": sparse}, path)
    assert_same(checkpoint.load(path)["sparse"].to_dense(), sparse.to_dense())


def test_a_file_without_a_zip_archive_is_left_to_torch(path: Path) -> None:
    torch.save({"one": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    assert_same(checkpoint.load(path), {"one": torch.ones(3)})


class Custom:
    """A class that weights_only does not allow."""


def test_weights_only_refuses_other_classes(path: Path) -> None:
    checkpoint.save({"custom": Custom(), "one": torch.ones(3)}, path)
    with pytest.raises(pickle.UnpicklingError, match="Custom"):
        checkpoint.load(path)
    assert isinstance(checkpoint.load(path, weights_only=False)["custom"], Custom)
    with torch.serialization.safe_globals([Custom]):
        assert isinstance(checkpoint.load(path)["custom"], Custom)


class Nested:
    """A tensor that is restored from an archive of its own, within that of another object."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getstate__(self) -> bytes:
        saved = io.BytesIO()
        torch.save(self.tensor, saved)
        return saved.getvalue()

    def __setstate__(self, saved: Any) -> None:
        self.tensor = torch.load(io.BytesIO(saved))


def test_a_tensor_that_an_object_loads_while_it_is_restored_has_its_values(path: Path) -> None:
    tensor = torch.arange(1000.0)
    checkpoint.save({"nested": Nested(tensor), "one": torch.ones(5)}, path)
    loaded = checkpoint.load(path, weights_only=False)
    assert_same(loaded["nested"].tensor, tensor)
    assert_same(loaded["one"], torch.ones(5))


def test_a_map_location_may_load_another_file(path: Path) -> None:
    other = path.with_name("other.pt")
    checkpoint.save({"one": torch.ones(1000)}, path)
    torch.save(torch.arange(1000.0), other)
    seen = []
    checkpoint.load(path, lambda *_: seen.append(torch.load(other)))
    assert_same(seen[0], torch.arange(1000.0))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_is_replaced_while_it_is_loaded_is_loaded_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool
) -> None:
    old = {"step": 1, "one": torch.full((100,), 1.0)}
    torch.save(old, path, _use_new_zipfile_serialization=zipped)
    load = torch.load

    def replace(*args: Any, **keys: Any) -> Any:
        checkpoint.save({"step": 2, "one": torch.full((100,), 2.0)}, path)
        return load(*args, **keys)

    monkeypatch.setattr(torch, "load", replace)
    assert_same(checkpoint.load(path), old)


@pytest.mark.parametrize("length", [0, 3, 1000, -30])
def test_a_file_that_is_cut_off_is_an_error_that_names_it(path: Path, length: int) -> None:
    checkpoint.save(state_dict(), path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises((RuntimeError, pickle.UnpicklingError)) as caught:
        checkpoint.load(path)
    if length != 3:  # torch takes it for a pickle
        assert isinstance(caught.value, checkpoint.CheckpointFileError)
        assert str(path) in str(caught.value)
        assert "older checkpoint" in str(caught.value)


def test_a_file_or_folder_that_is_not_there_is_an_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"state\.pt"):
        checkpoint.load(path)
    with pytest.raises(FileNotFoundError):
        checkpoint.save({}, path / "x.pt")


def test_a_gpu_that_is_not_there_is_torch_s_error(path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    checkpoint.save({"one": torch.ones(3)}, path)
    with pytest.raises(RuntimeError, match="CUDA device"):
        checkpoint.load(path, "cuda")


def test_a_tensor_on_meta_cannot_be_saved_by_its_bytes(path: Path) -> None:
    checkpoint.save({"one": torch.ones(3, device="meta")}, path)  # torch stores none, either
    assert checkpoint.load(path)["one"].device.type == "meta"


def test_a_save_replaces_the_file_and_keeps_its_mode(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    before = path.stat().st_ino
    checkpoint.save({}, path, durable=False)
    assert path.stat().st_ino != before
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(path.parent) == [path.name]


def test_a_save_of_what_cannot_be_pickled_leaves_the_old_file(path: Path) -> None:
    checkpoint.save({"step": 1}, path)
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save({"function": lambda: None}, path)
    assert checkpoint.load(path) == {"step": 1}


def test_options_are_those_of_penstock(path: Path) -> None:
    with pytest.raises(ps.InvalidError):
        checkpoint.save({"one": torch.ones(3)}, path, threads=-1)
    assert not path.exists()


def recompressed(path: Path) -> None:
    """Write the archive again with compressed entries."""
    with zipfile.ZipFile(path) as found:
        entries = [(entry.filename, found.read(entry)) for entry in found.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in entries:
            made.writestr(name, content)


def test_a_compressed_archive_is_left_to_torch(path: Path) -> None:
    torch.save({"a": torch.arange(300.0)}, path)
    recompressed(path)
    assert checkpoint.load(path)["a"].tolist() == list(range(300))


def test_a_compressed_entry_that_cannot_be_decoded_is_an_error(path: Path) -> None:
    checkpoint.save({"a": torch.arange(300.0)}, path)
    content = bytearray(path.read_bytes())
    central = content.rindex(b"PK\1\2", 0, content.rindex(b"data/0"))
    content[central + 10] ^= zipfile.ZIP_DEFLATED
    path.write_bytes(content)
    with pytest.raises(checkpoint.CheckpointFileError, match="cannot be decoded"):
        checkpoint.load(path)


@pytest.mark.parametrize("put", [b"r\0\0\0\x40", b"p1073741824\n"], ids=["binary", "text"])
def test_a_pickle_that_numbers_an_object_too_high_takes_no_memory(put: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError, match="too high"):
        unpickling.load(b"\x80\2]" + put + b".", lambda *_: None)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_all_protocols_are_read(protocol: int) -> None:
    numbers = [2**n for n in (3, 12, 20, 40, 4000)]
    value = {"a": [1.5, None, True, b"b" * 300, "c" * 70_000, numbers], "d": bytearray(9)}
    value["more"] = [str(number) for number in range(1000)]
    names = {"_codecs": codecs, "builtins": builtins, "__builtin__": builtins}
    found = unpickling.load(
        pickle.dumps(value, protocol), lambda module, name: getattr(names[module], name)
    )
    assert found == value


@pytest.fixture
def skip_data() -> Any:
    if not hasattr(torch.serialization, "skip_data"):
        pytest.skip("this torch has no skip_data")
    return torch.serialization.skip_data


@pytest.mark.parametrize("load", [checkpoint.load, torch.load])
def test_a_save_that_skips_data_leaves_space_for_it(path: Path, skip_data: Any, load: Any) -> None:
    state = {"a": torch.arange(300.0).reshape(3, 100), "b": torch.ones(1 << 17), "step": 3}
    path.write_bytes(b"old")
    with skip_data():
        checkpoint.save(state, path)
    loaded = load(path)
    assert loaded["step"] == 3
    assert [loaded[name].shape for name in "ab"] == [state[name].shape for name in "ab"]
    assert not loaded["a"].any()
    assert not loaded["b"].any()
    checkpoint.save(state, path)  # the thread is outside again
    assert_same(load(path), state)


def test_a_save_that_skips_data_and_fails_leaves_the_old_file(path: Path, skip_data: Any) -> None:
    path.write_bytes(b"old")
    with skip_data(), pytest.raises(Exception, match="pickle"):
        checkpoint.save({"a": torch.ones(3), "f": lambda: 0}, path)
    assert path.read_bytes() == b"old"
    assert len(os.listdir(path.parent)) == 1


@pytest.mark.parametrize("objects", [False, True])
def test_a_load_that_skips_data_reads_none(
    path: Path, skip_data: Any, objects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.torch.checkpoint import state as module

    state = {"a": torch.arange(300.0).reshape(3, 100).t(), "b": torch.ones(5, dtype=torch.int16)}
    whole = {**state, "c": torch.nn.Parameter(torch.ones(2))} if objects else state
    checkpoint.save(whole, path)
    monkeypatch.setattr(module.Ranges, "move", lambda *_: [].pop())
    with skip_data():
        loaded = checkpoint.load(path, "cpu")
    assert list(loaded) == list(whole)
    for name, tensor in whole.items():
        found = loaded[name]
        assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype)
        assert found.stride() == tensor.stride()
