"""Errors are builtins with the parts of the failure as attributes."""

from __future__ import annotations

import errno
import os
import pickle

import numpy as np
import pytest

import penstock as ps
from penstock import placement


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (ps.NotFoundError, FileNotFoundError),
        (ps.PermissionDeniedError, PermissionError),
        (ps.InvalidError, ValueError),
        (ps.IncompatibleError, TypeError),
        (ps.IOFailure, OSError),
        (ps.EndOfFileError, OSError),
        (ps.EndOfFileError, EOFError),
        (ps.NoSpaceError, OSError),
        (ps.OutOfMemoryError, MemoryError),
        (ps.GpuError, RuntimeError),
        (ps.UnavailableError, RuntimeError),
        (ps.WaitTimeout, TimeoutError),
        (ps.ForkedError, RuntimeError),
    ],
)
def test_an_error_is_also_the_fitting_builtin(kind, builtin):
    error = kind("it failed", path="/x", offset=4, length=8, cause="why", remedy="do this")
    assert isinstance(error, ps.Error)
    assert isinstance(error, builtin)
    assert str(error) == "it failed; do this"
    assert (error.path, error.offset, error.length) == ("/x", 4, 8)
    assert (error.cause, error.remedy) == ("why", "do this")


def test_an_os_error_has_what_os_errors_have():
    error = ps.NoSpaceError("full", path="/x", cause="no space", errno=errno.EDQUOT)
    assert (error.errno, error.strerror, error.filename) == (errno.EDQUOT, "no space", "/x")
    assert ps.NoSpaceError("full").errno == errno.ENOSPC


def test_an_error_survives_pickling():
    for kind in (ps.NotFoundError, ps.InvalidError, ps.OutOfMemoryError, ps.EndOfFileError):
        error = kind("it failed", path="/x", offset=1, length=2, remedy="do this")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == str(error)
        assert (copy.path, copy.offset, copy.remedy) == ("/x", 1, "do this")


def test_a_missing_file_names_itself(tmp_path):
    path = tmp_path / "missing.bin"
    with pytest.raises(FileNotFoundError, match=r"missing\.bin") as caught:
        ps.load(path)
    assert isinstance(caught.value, ps.NotFoundError)
    assert caught.value.filename == caught.value.path == str(path)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_permission_error(tmp_path):
    path = tmp_path / "f.bin"
    path.touch(0)
    with pytest.raises(ps.PermissionDeniedError):
        ps.load(path)


def test_a_file_that_ends_early_names_the_range(tmp_path):
    path = tmp_path / "f.bin"
    path.write_bytes(bytes(100))
    with pytest.raises(EOFError) as caught:
        ps.load(path, shape=200, offset=10)
    assert isinstance(caught.value, ps.EndOfFileError)
    assert caught.value.path == str(path)
    assert caught.value.length


@pytest.mark.parametrize("shape", ["abc", 2.5, (2, None), [[1]]])
def test_a_shape_without_integers_is_refused(tmp_path, shape):
    path = tmp_path / "f.bin"
    path.write_bytes(bytes(100))
    with pytest.raises(ps.IncompatibleError, match="is not a shape"):
        ps.load(path, shape=shape)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ps.Error, match=tmp_path.name):
        ps.load(tmp_path, shape=10)


def test_saving_into_a_missing_folder_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        ps.save(tmp_path / "no" / "f.bin", np.zeros(3))


def test_a_path_with_a_null_byte_is_refused():
    with pytest.raises(ValueError, match="null byte"):
        ps.load("a\0b")


@pytest.mark.gpu
def test_more_memory_than_the_gpu_has_is_a_memory_error():
    with pytest.raises(MemoryError) as caught:
        ps.DeviceArray(1 << 50)
    assert isinstance(caught.value, ps.OutOfMemoryError)


@pytest.mark.gpu
def test_a_gpu_that_is_not_there_is_an_error():
    with pytest.raises(ps.Error):
        ps.DeviceArray(10, device=len(ps.devices()) + 3)


def test_cuda_without_a_gpu_says_so(tmp_path, monkeypatch):
    if ps.devices():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(placement, "_asked_for", lambda: "device")
    path = tmp_path / "f.bin"
    path.write_bytes(bytes(10))
    with pytest.raises(ps.UnavailableError):
        ps.load(path, device="cuda")
