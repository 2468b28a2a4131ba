"""`penstock verify`: what it compares, what it finds, and the files of other packages."""

from __future__ import annotations

import json
import math
import os
import re
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from penstock.cli import app, comparison
from penstock.hdf5 import small

LIMIT = small.LIMIT


@pytest.fixture(autouse=True)
def small_again(monkeypatch):
    """The command changes it for its own process."""
    monkeypatch.setattr(small, "LIMIT", LIMIT)


def verify(*arguments, status=0):
    done = CliRunner().invoke(app, ["verify", *map(str, arguments), "--json"])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def rows(shown):
    return {row["dataset"]: row for report in shown["reports"] for row in report["datasets"]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f.h5"


def test_every_dataset_is_compared(path):
    with h5py.File(path, "w") as file:
        file["group/plain"] = np.arange(1000.0)
        file.create_dataset("zipped", data=np.arange(1000), chunks=(100,), compression="gzip")
        file["text"] = ["a", "bcd"]
        file["scalar"] = 3
        file["null"] = h5py.Empty("f4")
    shown = verify(path)
    assert (shown["datasets"], shown["same"], shown["different"]) == (5, 5, 0)
    found = rows(shown)
    assert set(found) == {"/group/plain", "/zipped", "/text", "/scalar", "/null"}
    assert found["/zipped"]["filters"] == ["deflate"]
    assert found["/zipped"]["decoder"] != "none"
    assert found["/text"]["route"] == "hdf5"
    assert found["/group/plain"]["route"] != "hdf5"
    assert found["/group/plain"]["ratio"] > 0


def test_a_bit_that_differs_is_found_and_fails_the_command(path, monkeypatch):
    with h5py.File(path, "w") as file:
        file["good"], file["bad"] = np.zeros(100), np.zeros(100)
    read = comparison._read

    def one_bit_off(dataset, part, device):
        found = read(dataset, part, "cpu")
        if dataset.name == "/bad":
            found[7] = -0.0
        return found

    monkeypatch.setattr(comparison, "_read", one_bit_off)
    found = rows(verify(path, status=1))
    assert found["/good"]["verdict"] == "same"
    assert (found["/bad"]["verdict"], found["/bad"]["detail"]) == (
        "different",
        "1 of 100 elements differ",
    )


def test_each_field_of_records_is_compared_alone(path, monkeypatch):
    with h5py.File(path, "w") as file:
        kind = np.dtype([("k", "i4"), ("name", h5py.string_dtype()), ("z", "f8")])
        file.create_dataset("x", (500,), kind)["z"] = np.arange(500.0)
    assert verify(path)["same"] == 1
    read = comparison.ps.read

    def wrong(dataset, part=(), **keys):
        found = read(dataset, part, **keys)
        return found + 1 if part == ("z",) else found

    monkeypatch.setattr(comparison.ps, "read", wrong)
    assert rows(verify(path, "--device", "cpu", status=1))["/x"]["detail"].startswith("field z: ")


def test_what_only_h5py_reads_is_a_difference(path, monkeypatch):
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(100)

    def refuse(*_):
        raise OSError("no")

    monkeypatch.setattr(comparison, "_read", refuse)
    assert rows(verify(path, status=1))["/x"]["verdict"] == "different"


def test_what_neither_reads_fails_the_command_which_says_so(path, penstock):
    with h5py.File(path, "w") as file:
        file["good"] = np.zeros(100)
        made = file.create_dataset("x", (100,), chunks=(100,), dtype="u1", compression="gzip")
        made.id.write_direct_chunk((0,), b"this is not a deflate stream")
    shown = verify(path, status=2)
    assert (shown["both_refuse"], rows(shown)["/x"]["verdict"]) == (1, "both refuse")
    assert (shown["same"], shown["different"]) == (1, 0)
    assert re.search(r"the chunk at \[0\], .* at offset \d+.*; h5py: ", rows(shown)["/x"]["detail"])
    printed = penstock("verify", path, status=2).stdout
    assert "both refuse" in printed
    assert "1 not compared, because neither reads them" in printed


def test_a_file_that_is_none_has_a_status_of_its_own(path, tmp_path):
    path.write_bytes(b"no HDF5")
    with h5py.File(tmp_path / "good.h5", "w") as file:
        file["x"] = 1
    shown = verify(path, tmp_path / "absent.h5", tmp_path / "good.h5", status=2)
    assert (shown["unreadable"], shown["same"]) == (2, 1)


def test_a_fifo_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    shown = verify(tmp_path / "fifo", status=2)
    assert shown["reports"][0]["error"] == "it is not a regular file"


def test_host_memory_has_the_names_that_all_commands_take(path):
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(9)
    assert verify(path, "--device", "cpu:0")["same"] == 1


def test_links_are_followed_but_not_in_circles(path, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["far/away"] = np.arange(5)
    with h5py.File(path, "w") as file:
        file["a/x"] = np.arange(3)
        file["a/again"] = file["a/x"]
        file["a/up"] = file["/"]
        file["soft"] = h5py.SoftLink("/a")
        file["circle"] = h5py.SoftLink("/circle")
        file["nowhere"] = h5py.SoftLink("/absent")
        file["other"] = h5py.ExternalLink("other.h5", "/far")
        file["other-too"] = h5py.ExternalLink("other.h5", "/far/away")
        file["gone"] = h5py.ExternalLink("absent.h5", "/x")
    shown = verify(path)
    assert shown["datasets"] == 2
    assert len({Path(name).name for name in rows(shown)} & {"x", "again"}) == 1
    assert {"/other/away", "/other-too"} & set(rows(shown))


def test_nan_equals_itself_and_gaps_do_not_count():
    a = np.zeros(3, np.dtype([("x", "u1"), ("y", "f8")], align=True))
    b = a.copy()
    b.view("u1")[1] = 7  # between x and y
    a["y"][1] = b["y"][1] = np.nan
    assert comparison.difference(a, b) == ""
    b["y"][2] = -0.0
    assert comparison.difference(a, b) == "1 of 3 elements differ"


def test_objects_are_compared_one_by_one():
    a = np.array([np.arange(3), np.array([np.nan])], object)
    b = np.array([np.arange(3), np.array([np.nan])], object)
    assert comparison.difference(a, b) == ""
    b[0] = np.arange(3.0)
    assert comparison.difference(a, b) == "1 of 2 elements differ"


def test_large_datasets_are_compared_slab_by_slab(path, monkeypatch):
    monkeypatch.setattr(comparison, "SLAB", 4096)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(10_000).reshape(100, 100), chunks=(7, 50))
    assert verify(path)["same"] == 1
    with h5py.File(path) as file:
        assert len(list(comparison._parts(file["x"]))) == 30


@pytest.mark.parametrize("chunk", [(16, 4096), (1, 1), (16, 2**30)])
def test_a_part_of_a_dataset_has_a_bounded_size(chunk):
    shape = (2**10, 2**30)
    part = comparison._part_shape(shape, chunk, 1)
    assert math.prod(part) <= max(comparison.SLAB, math.prod(chunk))
    assert math.prod(part) > comparison.SLAB // 2
    assert all(n % side == 0 for n, side in zip(part, chunk, strict=True))


def test_the_table_names_dataset_filters_and_verdict(penstock, path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(1000), compression="gzip", shuffle=True)
    shown = penstock("verify", path).stdout
    for word in ("/x", "shuffle, deflate", "int64", "same", "1 dataset of 1 file"):
        assert word in shown


def test_every_filter_of_hdf5plugin_reads_as_by_h5py(path):
    plugins = pytest.importorskip("hdf5plugin")
    smooth = np.add.outer(np.arange(64.0), np.arange(64.0)).astype("f4")
    images = ("fcidecomp", "htj2k")  # take 16-bit integers only
    with h5py.File(path, "w") as file:
        for kind in plugins.get_filters():
            name = kind.filter_name
            if name == "sz":  # crashes now and then, by itself
                continue
            data = smooth.astype("u2") if name in images else smooth
            file.create_dataset(name, data=data, chunks=(32, 32), **kind())
    shown = verify(path)
    assert shown["same"] == shown["datasets"] >= 8
    for name in ("lz4", "zstd", "blosc", "blosc2", "bshuf"):
        assert rows(shown)[f"/{name}"]["route"] != "hdf5", name


def files_of_other_packages() -> list[Path]:
    """The HDF5 files that the wheels of h5py, PyTables and hdf5plugin bring along."""
    specs = [find_spec(name) for name in ("h5py", "tables", "hdf5plugin")]
    folders = [Path(spec.origin).parent for spec in specs if spec and spec.origin]
    found = [path for folder in folders for path in sorted(folder.rglob("*.h5"))]
    return [path for path in found if h5py.is_hdf5(path)]


def test_files_of_other_packages_read_as_by_h5py():
    files = files_of_other_packages()
    neither = 2 if find_spec("tables") else 0  # PyTables brings types that NumPy lacks
    shown = verify(*files, status=neither)
    assert bool(shown["both_refuse"]) == bool(neither)
    assert shown["different"] == 0
    assert shown["only_penstock"] == 0
    assert shown["same"] >= 150 or not find_spec("tables")


@pytest.mark.parametrize(
    "variables",
    [
        {"PENSTOCK_OPTIONS": "garbage"},
        {"PENSTOCK_OPTIONS": "block=1"},
        {"PENSTOCK_RING": "garbage"},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_read_is_an_error_and_no_difference(penstock, path, variables):
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10.0)
    shown = penstock("verify", path, status=2, **variables)
    assert shown.stdout == ""
    (variable,) = variables
    assert variable in shown.stderr or "garbage" in shown.stderr or "block" in shown.stderr


def test_a_device_that_is_absent_is_an_error_and_no_difference(penstock, path):
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10.0)
    assert penstock("verify", path, "--device", "cuda:99", status=2).stdout == ""


@pytest.mark.parametrize("now", [(6, 20), (12, 10), (24, 40)], ids=str)
@pytest.mark.parametrize("stored", [{}, {"chunks": (5, 7)}], ids=["contiguous", "chunked"])
def test_a_virtual_dataset_that_h5py_would_misread_is_a_difference(path, now, stored):
    with h5py.File(path.parent / "s.h5", "w") as file:
        file.create_dataset("d", data=np.zeros(now), **stored)
    layout = h5py.VirtualLayout((12, 20), "f8")
    layout[...] = h5py.VirtualSource("s.h5", "d", (12, 20))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout)
    row = rows(verify(path, status=1))["/v"]
    assert row["verdict"] == "different"
    assert f"has shape {list(now)}, and its mapping is for shape [12, 20]" in row["detail"]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_of_a_sparse_dataset_only_what_is_stored_is_compared(path, libver):
    with h5py.File(path, "w", libver=libver) as file:
        shape = (10_000_000, 1_000_000)
        made = file.create_dataset("x", shape, "f8", chunks=(500, 700), maxshape=(None, None))
        made[5_000_000, 3] = 1
        file.create_dataset("late", shape, "f4")
        file.create_dataset("none", shape, "f4", chunks=(500, 700), fillvalue=3)
    shown = verify(path)
    assert (shown["datasets"], shown["same"]) == (3, 3)


def test_stored_chunks_are_compared_wherever_they_are(path, monkeypatch):
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", (70_000, 1000), "f8", chunks=(100, 100), fillvalue=2)
        made[150, 150] = made[69_999, 999] = made[35_000, 0] = 1
        made[40_000:48_000] = 5
    read = comparison._read
    for row, column in ((150, 150), (69_999, 999), (41_234, 567), (10, 10)):

        def changed(dataset, part, device, row=row, column=column):
            found = read(dataset, part, device)
            rows_, columns = part
            if rows_.start <= row < rows_.stop and columns.start <= column < columns.stop:
                found[row - rows_.start, column - columns.start] += 1
            return found

        with h5py.File(path) as file, monkeypatch.context() as change:
            change.setattr(comparison, "_read", changed)
            found = comparison.compare("/x", file["x"], "cpu")
        assert found.verdict == "different", (row, column)


HUGE = 10**12
UNLIMITED = h5py.h5s.UNLIMITED


def virtual(path, sizes, mappings):
    """Make a virtual dataset of i4 from sources of given sizes, each with a selection as of h5s."""
    with h5py.File(path, "w", libver="latest") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_fill_value(np.array(-1, "i4"))
        for slabs, name, shape in mappings:
            space = h5py.h5s.create_simple(*sizes)
            for at, slab in enumerate(slabs):
                space.select_hyperslab(*slab, op=h5py.h5s.SELECT_OR if at else h5py.h5s.SELECT_SET)
            of = h5py.h5s.create_simple(shape, (UNLIMITED,) * len(shape))
            if any(UNLIMITED in slab[1] for slab in slabs) and "%" not in name:
                of.select_hyperslab((0,), (UNLIMITED,))
            else:
                of.select_all()
            properties.set_virtual(space, name.encode(), b"x", of)
            for part in range(3 if "%" in name else 1):
                with h5py.File(path.parent / name.replace("%b", str(part)), "w") as source:
                    data = np.arange(1, 1 + math.prod(shape), dtype="i4").reshape(shape)
                    source.create_dataset("x", data=data, maxshape=(None,) * len(shape))
        h5py.h5d.create(
            file.id, b"v", h5py.h5t.STD_I32LE, h5py.h5s.create_simple(*sizes), properties
        )


MAPPED = {
    "two ends": ((HUGE,), [([((3,), (100,))], "a", (100,)), ([((HUGE - 9,), (9,))], "b", (9,))]),
    "strided": ((HUGE,), [([((7,), (50,), (10**9,), (2,))], "a", (100,))]),
    "irregular": ((HUGE,), [([((7,), (5,)), ((10**11,), (5,))], "a", (10,))]),
    "a column": ((10**6, 10**6), [([((0, 9), (10**5, 2))], "a", (10**5, 2))]),
    "unlimited": ((10**12,), (UNLIMITED,), [([((10**12 - 50,), (UNLIMITED,))], "a", (50,))]),
    "numbered": (
        (10**12,),
        (UNLIMITED,),
        [([((0,), (UNLIMITED,), (10**11,), (5,))], "p%b", (5,))],
    ),
}


@pytest.mark.parametrize("which", MAPPED)
def test_of_a_huge_virtual_dataset_what_is_mapped_is_compared(path, which):
    *sizes, mappings = MAPPED[which]
    virtual(path, sizes, mappings)
    assert rows(verify(path))["/v"]["verdict"] == "same"


@pytest.mark.parametrize("seed", range(30))
def test_all_that_is_mapped_is_compared_and_some_of_the_rest(path, monkeypatch, seed):
    monkeypatch.setattr(comparison, "SLAB", 128)
    monkeypatch.setattr(comparison, "_BLOCKS", 20)
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(10, 30, 1 + seed % 3).tolist())
    mappings = []
    for number in range(random.integers(1, 5)):
        stride = random.integers(1, 12, len(shape))
        block = np.minimum(random.integers(1, 4, len(shape)), stride)
        start = random.integers(0, 6, len(shape))
        count = random.integers(1, (shape - start - block) // stride + 2)
        slabs = [[tuple(map(int, one)) for one in (start, count, stride, block)]]
        if number % 2 and (start + (count - 1) * stride + block < shape).all():
            slabs.append((tuple(n - 1 for n in shape), (1,) * len(shape)))  # irregular
        size = math.prod((count * block).tolist()) + len(slabs) - 1
        mappings.append((slabs, f"s{number}", (size,)))
    virtual(path, (shape,), mappings)
    with h5py.File(path) as file:
        mapped = file["v"][:] != -1
        compared = np.zeros(shape, int)
        for part in comparison._parts(file["v"]):
            compared[part] += 1
            assert compared[part].size * 4 <= comparison.SLAB
    assert compared[mapped].all()
    assert mapped.all() or compared[~mapped].any()


@pytest.mark.parametrize("source", ["source.h5", "."])
def test_of_a_sparse_source_what_is_stored_is_compared(path, source):
    with h5py.File(path, "w") as file, h5py.File(path.parent / "source.h5", "w") as other:
        holder = file if source == "." else other
        holder.create_dataset("x", (HUGE,), "i4", chunks=(1000,))[HUGE // 2] = 7
        layout = h5py.VirtualLayout((HUGE,), "i4")
        layout[100:] = h5py.VirtualSource(source, "x", (HUGE,))[: HUGE - 100]
        file.create_virtual_dataset("v", layout, fillvalue=-1)
    assert rows(verify(path))["/v"]["verdict"] == "same"
    with h5py.File(path) as file:
        place = HUGE // 2 + 100
        assert any(part[0].start <= place < part[0].stop for part in comparison._parts(file["v"]))


def test_a_source_that_is_a_group_stops_no_other_comparison(path):
    with h5py.File(path, "w") as file:
        file.create_group("x")
        file["y"] = np.arange(10.0)
        layout = h5py.VirtualLayout((1 << 25,), "i4")
        layout[:] = h5py.VirtualSource(".", "x", (1 << 25,))
        file.create_virtual_dataset("v", layout)
    found = rows(verify(path, status=2))
    assert found["/y"]["verdict"] == "same"
    assert found["/v"]["verdict"] != "same"
