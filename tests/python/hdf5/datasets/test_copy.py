"""Copies of objects, from which HDF5 alone loses elements, or crashes."""

from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps

VALUES = np.arange(40_000, dtype="i4").reshape(200, 200)
LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (20, 200)},
    "gzip": {"chunks": (20, 200), "compression": "gzip"},
    "scaleoffset": {"chunks": (20, 200), "scaleoffset": 0},
    "one chunk": {"chunks": (200, 200), "compression": "gzip"},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f.h5"


@pytest.mark.parametrize("keys", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("writer", ["the same handle", "another handle", "an async write"])
@pytest.mark.parametrize("source", ["path", "dataset", "h5py", "group"])
def test_a_copy_has_what_was_written_before(path, keys, writer, source):
    with ps.File(path, "w") as file:
        file.create("g/x", data=VALUES, **keys)
    with ps.File(path, "r+") as file, ps.File(path, "r+") as other:
        written = (other if writer == "another handle" else file)["g/x"]
        if writer == "an async write":
            request = written.write_async(VALUES[::-1].copy())
            expected = VALUES[::-1].copy()
        else:
            written[3, 4:60:3] = 7
            expected = VALUES.copy()
            expected[3, 4:60:3] = 7
        given = {
            "path": "g/x",
            "dataset": file["g/x"],
            "h5py": file.h5py["g/x"],
            "group": file["g"],
        }[source]
        file.copy(given, "copied")
        found = file["copied/x" if source == "group" else "copied"]
        np.testing.assert_array_equal(found[...], expected)
        if writer == "an async write":
            request.wait()
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[found_name(source)][...], expected)


def found_name(source: str) -> str:
    return "copied/x" if source == "group" else "copied"


_PROGRAM = """
import sys
import numpy as np
import penstock as ps

values = np.zeros((1000, 200), "i4")
with ps.File(sys.argv[1], "w") as file:
    file.create("x", data=values, chunks=(50, 200), scaleoffset=0)
for number in range(20):
    with ps.File(sys.argv[1], "r+") as file:
        x = file.h5py["x"]
        x[...]
        x[3:900:7] = values[3:900:7] = number
        file.copy("x", f"y{number}")
        assert (file[f"y{number}"][...] == values).all()
print("fine")
"""


def test_a_copy_that_expands_external_links_waits_for_writes_to_the_other_file(path, tmp_path):
    values = np.full(4_000_000, 7, "i4")
    with h5py.File(path, "w") as file, h5py.File(tmp_path / "other.h5", "w") as other:
        other.create_dataset("x", data=np.zeros_like(values), chunks=(80_000,), compression="gzip")
        file.create_group("g")["link"] = h5py.ExternalLink("other.h5", "x")
    with ps.File(path, "r+") as file, ps.File(tmp_path / "other.h5", "r+") as other:
        request = other["x"].write_async(values)
        file.copy("g", "copy", expand_external=True)
        np.testing.assert_array_equal(file["copy/link"][...], values)
        request.wait()


def test_a_copy_of_cached_chunks_leaves_the_heap_intact(path):
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, path], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")


def test_a_copy_goes_to_another_file_with_the_arguments_of_h5py(path, tmp_path):
    with ps.File(path, "w") as file, ps.File(tmp_path / "other.h5", "w") as other:
        file["a/x"] = VALUES
        file["a/b/y"] = 1
        file["a/x"].attrs["unit"] = "m"
        file["a/soft"] = h5py.SoftLink("/a/x")
        file.copy("a", other, "whole", expand_soft=True)
        file.copy(file["a/x"], other["whole"], "bare", without_attrs=True)
        file.copy(file["a"], other, name="shallow", shallow=True)
        other.copy(file["a/x"], "here")
        other.copy(file.h5py["a/b"], other.h5py)
        for name in ("whole/x", "whole/soft", "whole/bare", "shallow/x", "here"):
            np.testing.assert_array_equal(other[name][...], VALUES)
        assert dict(other["whole/x"].attrs) == {"unit": "m"}
        assert not other["whole/bare"].attrs
        assert "y" not in other["shallow/b"]
        assert other["b/y"][()] == 1
        assert isinstance(other.get("whole/soft", getlink=True), h5py.HardLink)
        with pytest.raises((KeyError, RuntimeError), match="missing"):
            file.copy("missing", "z")
        with pytest.raises(TypeError):
            file.copy("a/x", other["here"])


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("keys", [{"compression": "gzip"}, {"shuffle": True}, {"fletcher32": True}])
@pytest.mark.parametrize("maxshape", [(100, 40), (None, 40), (100, None)])
def test_a_copy_of_an_open_dataset_lacks_the_chunks_that_are_not_stored(
    path, keys, maxshape, is_written
):
    with h5py.File(path, "w", libver="latest") as file:
        made = file.create_dataset("x", (100, 40), "i4", chunks=(10, 10), maxshape=maxshape, **keys)
        if is_written:
            made[20:50, 25] = 7
        expected = made[...]
    with ps.File(path, "r+") as file:
        source = file["x"]
        file.copy("x", "y")
        np.testing.assert_array_equal(file["y"][...], expected)
        assert file["y"].id.get_num_chunks() == source.id.get_num_chunks() == 3 * is_written


@pytest.fixture
def several(path):
    """Yield a file, and a function that names the open datasets whose changes are in the file."""
    names = ["g/a", "g/b", "plain"]
    with h5py.File(path, "w") as file:
        for name in [*names, "g/c"]:
            file.create_dataset(name, (600,), "i8", chunks=(600,), fletcher32=True)[...] = 7
        file["other"] = h5py.SoftLink("/g/c")
    with ps.File(path, "r+") as file:
        kept = [file[name] for name in names for _ in range(2)]
        marks = {name: np.int64(0x5A5A_5A5A_0000 + at) for at, name in enumerate(names)}
        for name, mark in marks.items():
            file[name].h5py[:599] = mark  # a part of a chunk stays in HDF5's cache

        def written() -> list[str]:
            found = path.read_bytes()
            return [name for name, mark in marks.items() if mark.tobytes() in found]

        assert written() == []
        yield file, written
        del kept


@pytest.mark.parametrize(
    ("source", "names"),
    [("g/a", ["g/a"]), ("g/c", []), ("other", []), ("g", ["g/a", "g/b"])],
)
def test_a_copy_prepares_only_open_datasets_that_it_copies(several, source, names):
    file, written = several
    file.copy(source, "copied")
    assert written() == names


def test_a_copy_that_expands_links_prepares_what_they_lead_to(several):
    file, written = several
    file["links/deeper/group"] = h5py.SoftLink("/again")
    file["again/dangling"] = h5py.SoftLink("/nowhere")
    file["again/back"] = h5py.SoftLink("/links")
    file["again/plain"] = h5py.SoftLink("/plain")
    file.copy("links", "copied")
    assert written() == []
    file.copy("links", "whole", expand_soft=True)
    assert written() == ["plain"]


def test_a_copy_that_expands_references_prepares_all_open_datasets_of_the_file(several):
    file, written = several
    file.copy("plain", "copied", expand_refs=True)
    assert written() == ["g/a", "g/b", "plain"]


def test_a_copy_in_a_visit_leaves_a_file_that_can_be_flushed(path):
    with ps.File(path, "w") as file:
        file.create("g/x", data=VALUES, chunks=(20, 200))[3] = 7
        file.create_group("copies")
        file["g"].visit(lambda name: file.copy(f"g/{name}", f"copies/{name}"))
        file.flush()
        assert (file["copies/x"][3] == 7).all()


@pytest.mark.parametrize("keys", [{}, {"compression": "gzip"}], ids=["plain", "gzip"])
def test_chunks_that_are_only_in_the_cache_are_copied(path, keys):
    with ps.File(path, "w", libver="latest") as file:
        made = file.create_dataset(
            "x", (29, 26), "i4", chunks=(14, 13), maxshape=(29, None), fillvalue=9, **keys
        )
        made.h5py[:14] = 7
        made.h5py.resize((29, 52))
        expected = made.h5py[...]
        file.copy("x", "y")
        np.testing.assert_array_equal(file["y"][...], expected)


_VIRTUAL = """
import contextlib
import sys
import h5py
import numpy as np
import penstock as ps

path, place = sys.argv[1:3]
values = np.zeros((1000, 200), "i4")
with h5py.File(path, "w", libver="latest") as file:
    file.create_dataset("g/x%", data=values, chunks=(50, 200), scaleoffset=0)
shape = {"shape": values.shape, "dtype": "i4"}
inner, outer = h5py.VirtualLayout(**shape), h5py.VirtualLayout(**shape)
inner[...] = h5py.VirtualSource("." if place == "the same file" else path, "g/x%%", **shape)
outer[...] = h5py.VirtualSource(".", "inner", **shape)
whole = path if place == "the same file" else path + ".virtual"
with h5py.File(whole, "a", libver="latest") as file:
    file.create_virtual_dataset("inner", inner)
    file.create_virtual_dataset("outer", outer)
with h5py.File(whole, "a", libver="latest") as file:
    file["link"] = h5py.ExternalLink(path, "g") if place != "the same file" else h5py.SoftLink("g")
for name in ("inner", "outer"):
    with ps.File(whole, "r+") as other, contextlib.ExitStack() as stack:
        file = other
        if place == "another file":
            file = stack.enter_context(ps.File(path, "r+"))
        kept = other.h5py[name]
        kept[...]
        group = "g" if file is not other else "link"
        for number, source in enumerate((f"{group}/x%", group)):
            copy = f"{name}{number}"
            file.copy(source, copy)
            found = file[copy] if source != group else file[copy]["x%"]
            assert (found[...] == values).all()
        kept.id.close()
print("fine")
"""


@pytest.mark.parametrize("place", ["the same file", "another file", "a file without an identifier"])
def test_a_copy_of_what_an_open_virtual_dataset_has_read_leaves_the_heap_intact(path, place):
    done = subprocess.run(
        [sys.executable, "-c", _VIRTUAL, path, place], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")
