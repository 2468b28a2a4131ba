"""Text files that are replaced as a whole."""

from __future__ import annotations

import os
import resource
import stat
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from penstock import text_file


def test_a_file_is_made_or_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "f.json"
    for text in ("first, and longer", "then"):
        text_file.write(path, text)
        assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path):
    path = tmp_path / "f.json"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as raised:
            text_file.replace(path, "new" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_a_device_names_it():
    with pytest.raises(OSError, match="/dev/full"):
        text_file.write(Path("/dev/full"), "text")


def test_a_file_that_is_written_by_its_path_replaces_another_one_after_the_block(tmp_path):
    path = tmp_path / "f.json"
    path.write_text("old")
    with text_file.replacement(path) as new:
        new.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_in_the_block_the_old_file_is_there(tmp_path):
    path = tmp_path / "f.json"
    path.write_text("old")
    with suppress(ValueError), text_file.replacement(path) as new:
        new.write_text("new")
        raise ValueError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_threads_that_replace_a_file_at_once_leave_one_of_their_texts(tmp_path):
    path = tmp_path / "f.json"
    texts = [letter * 1000 for letter in "abcd"]
    failures = []

    def replace(text):
        try:
            for _ in range(20):
                text_file.replace(path, text)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=replace, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_leads_to_the_new_file(tmp_path):
    (tmp_path / "link").symlink_to("f")
    text_file.replace(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "f").read_text() == "new"


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    text_file.require_replaceable(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    text_file.write(tmp_path / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)


def test_a_file_that_cannot_be_replaced_is_an_error_before_the_write(tmp_path):
    for path in (tmp_path, tmp_path / "absent" / "f"):
        with pytest.raises(OSError, match=str(path.name)):
            text_file.require_replaceable(path)
    text_file.require_replaceable(tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o4755])
def test_a_file_keeps_its_mode_without_setuid(tmp_path, mode):
    path = tmp_path / "f.json"
    path.touch()
    path.chmod(mode)
    text_file.write(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == mode & 0o777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")
def test_a_file_keeps_its_owner(tmp_path):
    path = tmp_path / "f.json"
    path.touch()
    os.chown(path, 65534, 65533)
    text_file.write(path, "new")
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65533)


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path):
    text_file.write(tmp_path / "f.json", "new")
    (tmp_path / "usual").touch()
    assert (tmp_path / "f.json").stat().st_mode == (tmp_path / "usual").stat().st_mode
