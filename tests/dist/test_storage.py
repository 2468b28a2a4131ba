"""The file under a temporary name that one process makes and others write."""

from __future__ import annotations

import errno
import os
import stat
import tracemalloc

import h5py
import numpy as np
import pytest

from penstock.dist.storage import Storage, has_filters, put_in_place, temporary_path
from penstock.errors import (
    IncompatibleError,
    InvalidError,
    IOFailure,
    PermissionDeniedError,
)

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")


def rights(path):
    found = os.stat(path)
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def arguments(**keys):
    return {"shape": (50, 40), "dtype": np.dtype("f4"), "chunks": None} | keys


def fill_with_ones(storage, description):
    """Write to the storage of a dataset as a rank does."""
    unit = 4 * 50 * 40 if description.chunks is None else 4 * description.chunks[0] * 40
    if description.addresses is None:
        places = [description.offset + at * unit for at in range(max(description.stored, 1))]
    else:
        places = description.addresses.tolist()
    descriptor = os.open(storage.temporary, os.O_WRONLY)
    for place in places:
        os.pwrite(descriptor, np.ones(unit // 4, "f4").tobytes(), place)
    os.close(descriptor)


@pytest.mark.parametrize("old", [None, (10, 40)], ids=["contiguous", "chunks"])
@pytest.mark.parametrize("new", [None, (10, 40), (5, 40)], ids=["contiguous", "chunks", "smaller"])
def test_unwritten_elements_are_zero_where_a_deleted_dataset_was(tmp_path, old, new):
    storage = Storage(tmp_path / "x.h5", {"libver": "v110"})
    description = storage.create("old", arguments(chunks=old))[1]  # an open dataset keeps its room
    fill_with_ones(storage, description)
    del storage.file["old"]
    storage.create("new", arguments(chunks=new))
    storage.finish(durable=False)
    with h5py.File(tmp_path / "x.h5") as file:
        assert not file["new"][()].any()


def test_hdf5_reads_zeros_where_nothing_is_written_yet(tmp_path):
    storage = Storage(tmp_path / "x.h5", {"libver": "v110"})
    storage.create("x", {**arguments(shape=(8, 4096)), "chunks": (1, 4096)})
    found = np.full((8, 4096), 7, "f4")
    storage.file["x"].read_direct(found)
    assert not found.any()
    storage.discard()


def test_a_new_dataset_leaves_those_before_it_as_they_are(tmp_path):
    storage = Storage(tmp_path / "x.h5", {"libver": "v110"})
    for chunks in (None, (10, 40), (7, 40)):
        _, description = storage.create(f"x{chunks}", arguments(chunks=chunks))
        fill_with_ones(storage, description)
    storage.finish(durable=False)
    with h5py.File(tmp_path / "x.h5") as file:
        for chunks in (None, (10, 40), (7, 40)):
            assert (file[f"x{chunks}"][()] == 1).all()


@pytest.mark.parametrize(
    "keys",
    [
        {"compression": 0},
        {"scaleoffset": 0},
        {"compression": "gzip"},
        {"shuffle": True},
        {},
        {"shuffle": False, "fletcher32": False, "compression": None},
    ],
    ids=str,
)
def test_filters_are_those_that_h5py_sets(tmp_path, keys):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("x", (50, 40), "i4", chunks=(10, 40), **keys)
        assert has_filters(keys) == (made.id.get_create_plist().get_nfilters() > 0)


def test_a_folder_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidError, match="is a folder"):
        Storage(tmp_path, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "keys",
    [{"compression": "gzip"}, {"shuffle": True}, {"chunks": True}, {"chunks": (1,)}],
    ids=str,
)
def test_a_scalar_has_no_chunks_and_no_filters(tmp_path, keys):
    storage = Storage(tmp_path / "x.h5", {})
    with pytest.raises(IncompatibleError, match="x is a scalar"):
        storage.create("x", arguments(shape=(), **keys))
    storage.discard()


def test_an_unwritten_scalar_has_its_fill_value(tmp_path):
    storage = Storage(tmp_path / "x.h5", {})
    storage.create("x", arguments(shape=(), fillvalue=7))
    storage.finish(durable=False)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["x"][()] == 7


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(InvalidError, match=f"{name}: the path is not a regular file"):
        Storage(tmp_path / name, {})
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_link_that_leads_to_itself_is_an_error_that_names_it(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(IOFailure, match=r"loop: .*Too many levels of symbolic links") as raised:
        Storage(tmp_path / "loop", {})
    assert raised.value.errno == errno.ELOOP
    assert os.listdir(tmp_path) == ["loop"]


def test_a_setting_that_hdf5_refuses_leaves_no_file_behind(tmp_path):
    with pytest.raises(KeyError, match="none"):
        Storage(tmp_path / "x.h5", {"libver": ("none", "latest")})
    assert not list(tmp_path.iterdir())


def test_a_forked_child_that_ends_leaves_the_file_alone(tmp_path):
    storage = Storage(tmp_path / "x.h5", {})
    child = os.fork()
    if not child:
        storage._discard()
        os._exit(0)
    os.waitpid(child, 0)
    assert storage.temporary.exists()
    storage.discard()
    assert not storage.temporary.exists()


@pytest.mark.parametrize("replaces", [True, False])
def test_an_error_after_the_file_has_its_name_says_so(tmp_path, monkeypatch, replaces):
    whole = os.fsync

    def no_folder(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "the folder cannot be flushed")
        whole(descriptor)

    storage = Storage(tmp_path / "x.h5", {"libver": "v110"}, replaces=replaces)
    storage.create("x", arguments())
    monkeypatch.setattr(os, "fsync", no_folder)
    with pytest.raises(IOFailure, match="the new file is in place"):
        storage.finish(durable=True)
    storage.discard()
    assert os.listdir(tmp_path) == ["x.h5"]
    with h5py.File(tmp_path / "x.h5") as file:
        assert not file["x"][()].any()


def test_a_folder_that_may_not_be_read_is_flushed_with_all_file_systems(tmp_path, monkeypatch):
    usual, flushed = os.open, []

    def unreadable(path, *arguments, **keys):
        if path == ".":
            raise PermissionError(errno.EACCES, "the folder cannot be read")
        return usual(path, *arguments, **keys)

    storage = Storage(tmp_path / "x.h5", {"libver": "v110"})
    storage.create("x", arguments())
    monkeypatch.setattr(os, "open", unreadable)
    monkeypatch.setattr(os, "sync", lambda: flushed.append(True))
    storage.finish(durable=True)
    assert flushed


@pytest.mark.parametrize("name", ["x" * 225, "x" * 255, "é" * 127, "x" * 223 + "éé"], ids=len)
def test_a_name_can_be_as_long_as_the_file_system_allows(tmp_path, name):
    storage = Storage(tmp_path / name, {})
    assert storage.temporary.name.startswith(f".{name[:100]}")
    storage.create("x", arguments())
    storage.finish(durable=False)
    assert os.listdir(tmp_path) == [name]


def test_a_file_that_was_left_is_put_in_place_by_its_number(tmp_path):
    path = tmp_path / "x.h5"
    storage = Storage(path, {"libver": "v110"})
    _, description = storage.create("x", arguments())
    storage.leave()
    fill_with_ones(storage, description)
    token = storage.token
    del storage  # removes nothing
    assert not path.exists()
    put_in_place(temporary_path(path, token), path)
    with h5py.File(path) as file:
        assert (file["x"][()] == 1).all()
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_put_in_place_is_named(tmp_path):
    path = tmp_path / "x.h5"
    with pytest.raises(IOFailure, match=r"x\.h5: the file could not be completed") as raised:
        put_in_place(temporary_path(path, 1), path)
    assert raised.value.errno == errno.ENOENT


@pytest.mark.parametrize("is_new", [True, False])
def test_no_other_user_can_open_the_file_before_it_has_its_name(tmp_path, is_new):
    path = tmp_path / "x.h5"
    if not is_new:
        path.write_bytes(b"old")
        path.chmod(0o644)
    storage = Storage(path, {"libver": "v110"})
    assert rights(storage.temporary)[2] == 0o600
    storage.finish(durable=True)
    usual = tmp_path / "usual"
    usual.touch()
    assert rights(path) == rights(usual)


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o4755])
def test_the_file_has_the_mode_of_the_one_that_it_replaces_without_setuid(tmp_path, mode):
    path = tmp_path / "x.h5"
    path.write_bytes(b"old")
    path.chmod(mode)
    Storage(path, {"libver": "v110"}).finish(durable=False)
    assert rights(path)[2] == mode & 0o777


@AS_ROOT
@pytest.mark.parametrize("is_left", [True, False])
def test_the_file_has_the_owner_of_the_one_that_it_replaces(tmp_path, is_left):
    path = tmp_path / "x.h5"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.chown(path, 65534, 65533)
    storage = Storage(path, {"libver": "v110"})
    if is_left:
        storage.leave()
        put_in_place(storage.temporary, path)
    else:
        storage.finish(durable=False)
    assert rights(path) == (65534, 65533, 0o640)


@AS_ROOT
@pytest.mark.parametrize("target", ["victim", "none"])
def test_a_link_of_another_user_in_a_sticky_folder_is_not_followed(tmp_path, target):
    with open("/proc/sys/fs/protected_symlinks") as setting:
        if setting.read().strip() != "1":
            pytest.skip("fs.protected_symlinks is not set")
    (tmp_path / "victim").write_bytes(b"old")
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    link = tmp_path / "sticky" / "x.h5"
    link.symlink_to(tmp_path / target)
    os.lchown(link, 65534, 65534)
    with pytest.raises(PermissionDeniedError, match=r"x\.h5"):
        Storage(link, {})
    assert sorted(os.listdir(tmp_path)) == ["sticky", "victim"]
    assert (tmp_path / "victim").read_bytes() == b"old"


def test_later_allocations_take_no_memory_for_all_chunks_of_the_dataset(tmp_path):
    storage = Storage(tmp_path / "x.h5", {"libver": "v110"})
    keys = {"shape": (1 << 20,), "chunks": (1,), "compression": "gzip"}
    dataset = storage.create("x", arguments(**keys))[0]
    one = np.ones(1, np.int64)
    storage.allocate(dataset, one, 20 * one, 0 * one)
    tracemalloc.start()
    try:
        storage.allocate(dataset, 2 * one, 20 * one, 0 * one)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    storage.discard()
    assert peak < 1 << 20
