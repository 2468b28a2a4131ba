"""The folder of files that a file with virtual datasets leads to, and what of it is removed."""

from __future__ import annotations

import os
import resource
import stat

import h5py
import numpy as np
import pytest

from penstock.dist.mpi import parts

OWN, OTHER, UNUSED = (
    f"{name}.{digit * 16}.parts" for name, digit in [("x.h5", "a"), ("y.h5", "b"), ("x.h5", "c")]
)


@pytest.fixture
def path(tmp_path):
    """A file that leads to a folder of its own and to one of another file."""
    layout = h5py.VirtualLayout((20,), "f4")
    for at, folder in enumerate((OWN, OTHER)):
        (tmp_path / folder).mkdir()
        with h5py.File(tmp_path / folder / "0.h5", "w") as file:
            file["x/0"] = np.full(10, at, "f4")
        layout[10 * at : 10 * at + 10] = h5py.VirtualSource(f"{folder}/0.h5", "x/0", (10,))
    (tmp_path / UNUSED).mkdir()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_virtual_dataset("group/x", layout)
    return tmp_path / "x.h5"


def test_only_folders_that_have_its_name_and_that_it_leads_to_are_a_files_own(path):
    assert parts.folders_of(path) == [path.with_name(OWN)]


@pytest.mark.parametrize("contents", [None, b"", b"no HDF5"])
def test_what_cannot_be_read_has_no_folders(path, contents):
    if contents is None:
        path.unlink()
    else:
        path.write_bytes(contents)
    assert parts.folders_of(path) == []


def test_only_files_of_ranks_are_removed(path):
    folder = path.with_name(OWN)
    (folder / "notes.txt").write_text("of the user")
    parts.remove(folder)
    assert [entry.name for entry in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    parts.remove(folder)
    assert not folder.exists()
    parts.remove(folder)  # another process may have been first


def test_the_folder_of_a_long_name_is_found_by_the_beginning_of_it(tmp_path):
    path = tmp_path / ("x" * 255)
    folder = parts.Folder(path)
    folder.finish(durable=False)
    folder.keep()
    layout = h5py.VirtualLayout((10,), "f4")
    layout[:] = h5py.VirtualSource(f"{folder.name}/0.h5", "x/0", (10,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)
    assert parts.folders_of(path) == [tmp_path / folder.name]


def test_a_folder_that_is_a_link_is_neither_a_files_own_nor_removed(path):
    own = path.with_name(OWN)
    victim = own.rename(path.with_name("victim"))
    own.symlink_to(victim)
    assert parts.folders_of(path) == []
    parts.remove(own)
    parts.Part(str(own), 0, {}).discard()
    assert own.is_symlink()
    assert [entry.name for entry in victim.iterdir()] == ["0.h5"]


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize(
    ("file", "folder"), [(0o600, 0o700), (0o640, 0o750), (0o4644, 0o755), (0o666, 0o755)]
)
def test_who_may_read_the_file_that_is_replaced_may_read_those_of_the_ranks(tmp_path, file, folder):
    path = tmp_path / "x.h5"
    path.touch()
    path.chmod(file)
    made = parts.Folder(path)
    assert mode(made.path) == 0o700
    (made.path / "0.h5").touch()
    (made.path / "notes.txt").touch()
    before = mode(made.path / "notes.txt")
    made.finish(durable=True)
    made.keep()
    assert mode(tmp_path / made.name) == folder
    assert mode(tmp_path / made.name / "0.h5") == file & 0o777
    assert mode(tmp_path / made.name / "notes.txt") == before


def test_a_folder_of_a_new_file_has_the_rights_of_any_new_folder(tmp_path):
    made = parts.Folder(tmp_path / "x.h5")
    assert mode(made.path) == 0o700
    made.finish(durable=False)
    made.keep()
    umask = os.umask(0)
    os.umask(umask)
    assert mode(tmp_path / made.name) == 0o755 & ~umask


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")
def test_folder_and_files_have_the_owner_of_the_file_that_is_replaced(tmp_path):
    path = tmp_path / "x.h5"
    path.touch()
    os.chown(path, 65534, 65533)
    made = parts.Folder(path)
    (made.path / "0.h5").touch()
    made.finish(durable=False)
    made.keep()
    for one in (tmp_path / made.name, tmp_path / made.name / "0.h5"):
        assert (one.stat().st_uid, one.stat().st_gid) == (65534, 65533)


@pytest.mark.parametrize("rows", [10, 100])
@pytest.mark.parametrize(
    "storage", [{}, {"chunks": (100, 100)}, {"chunks": (100, 100), "compression": "gzip"}]
)
def test_a_part_that_cannot_be_written_is_an_error_of_the_write(tmp_path, rows, storage):
    values = np.random.default_rng(1).integers(1, 1 << 60, (rows, 100))
    part = parts.Part(str(tmp_path), 0, {"libver": "v110"})
    ranges = (range(rows), range(100))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        with pytest.raises(OSError, match="write"):
            part.write("x", ranges, values, {"dtype": values.dtype, **storage}, None, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    part.discard()
    assert not tmp_path.exists()
