"""`penstock read` against h5py and plain file reads."""

from __future__ import annotations

import json
import os

import h5py
import numpy as np
import pytest

SIZE = 1_500_007


@pytest.fixture(scope="module")
def raw_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("raw") / "with:colon.bin"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture(scope="module")
def hdf5_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("hdf5") / "run.h5"
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        file["plain"] = random.random((300, 200), dtype="float32")
        file["group/zipped"] = random.integers(0, 9, (300, 200))
        file["group/zipped:twice"] = random.integers(0, 9, (30, 20), "int16")
        file.create_dataset("chunked", data=random.random((64, 64)), chunks=(16, 16), shuffle=True)
        file["big"] = random.random(1000).astype(">f8")
        file["scalar"] = 2.5
    return path


def test_file_is_read_byte_for_byte(penstock, raw_file, tmp_path):
    out = tmp_path / "out"
    shown = penstock.json("read", raw_file, "--out", out)
    assert out.read_bytes() == raw_file.read_bytes()
    assert shown["bytes"] == SIZE
    assert sum(shown["paths"].values()) == SIZE


def test_part_of_a_file_is_read(penstock, raw_file, tmp_path):
    out = tmp_path / "out"
    penstock("read", raw_file, "--offset", "1001", "--length", "64KiB", "--out", out)
    assert out.read_bytes() == raw_file.read_bytes()[1001 : 1001 + 65536]


@pytest.mark.either
@pytest.mark.parametrize("name", ["plain", "group/zipped:twice", "chunked", "big", "scalar"])
def test_dataset_is_read_as_h5py_reads_it(penstock, hdf5_file, tmp_path, name):
    out = tmp_path / "out"
    shown = penstock.json("read", f"{hdf5_file}:{name}", "--out", out)
    with h5py.File(hdf5_file) as file:
        expected = np.asarray(file[name])
    found = np.fromfile(out, expected.dtype.newbyteorder("=")).reshape(expected.shape)
    swapped = np.fromfile(out, expected.dtype).reshape(expected.shape)
    # Host memory keeps the order of the file's bytes; a GPU array has the machine's.
    assert np.array_equal(found, expected) or np.array_equal(swapped, expected)
    assert shown["bytes"] == expected.nbytes


def test_datasets_of_an_hdf5_file_are_listed(penstock, hdf5_file):
    found = {row["name"]: row for row in penstock.json("read", hdf5_file)["datasets"]}
    assert found["plain"]["layout"] == "contiguous"
    assert found["plain"]["shape"] == [300, 200]
    assert found["chunked"]["layout"] == "chunked, shuffle"
    assert found["group/zipped"]["bytes"] == 300 * 200 * 8
    assert "penstock read" in penstock("read", hdf5_file).stdout


def test_options_reach_the_transfer(penstock, raw_file):
    options = ["--threads", "1", "--block", "64KiB", "--io", "threads", "--direct", "no"]
    shown = penstock.json("read", raw_file, *options)
    assert shown["threads"] == 1
    assert shown["block"] == 65536


def test_unknown_route_is_refused_by_name(penstock, raw_file):
    assert "teleport" in penstock("read", raw_file, "--route", "teleport", status=2).stderr


def test_trace_is_chrome_json_with_spans(penstock, raw_file, tmp_path):
    trace = tmp_path / "trace.json"
    penstock("read", raw_file, "--trace", trace)
    recorded = json.loads(trace.read_text())
    events = recorded["traceEvents"] if isinstance(recorded, dict) else recorded
    assert any(event.get("ph") in ("X", "B") for event in events)


def test_memory_is_that_of_the_gpu_where_there_is_one(penstock, raw_file, on_gpu):
    shown = penstock.json("read", raw_file)
    assert shown["device"] == ("cuda:0" if on_gpu else "cpu")
    assert shown["route"] in (("staged", "mapped", "gds") if on_gpu else ("host",))


def test_host_memory_can_be_requested(penstock, raw_file):
    assert penstock.json("read", raw_file, "--device", "cpu")["route"] == "host"


def test_table_names_path_and_rate(penstock, raw_file):
    shown = penstock("read", raw_file).stdout
    assert f"{SIZE:,} bytes" in shown
    assert "GB/s" in shown


def test_missing_file_is_an_error_without_a_traceback(penstock):
    shown = penstock("read", "/absent/file", status=1)
    assert "/absent/file" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_missing_dataset_is_an_error_that_names_it(penstock, hdf5_file):
    assert "nothing" in penstock("read", f"{hdf5_file}:nothing", status=2).stderr


@pytest.mark.parametrize("option", ["--out", "--trace"])
def test_an_hdf5_file_without_a_dataset_is_an_error_if_it_is_to_be_read(
    penstock, hdf5_file, tmp_path, option
):
    shown = penstock("read", hdf5_file, option, tmp_path / "made", status=2)
    assert "NAME" in shown.stderr
    assert shown.stdout == ""
    assert not (tmp_path / "made").exists()


def test_there_is_no_progress_bar_where_there_is_no_terminal(penstock, raw_file, hdf5_file):
    assert penstock("read", raw_file, FORCE_COLOR="1").stderr == ""
    assert penstock("read", f"{hdf5_file}:plain").stderr == ""


def test_range_past_the_end_is_an_error(penstock, raw_file):
    shown = penstock("read", raw_file, "--offset", "1MiB", "--length", "1MiB", status=1)
    assert "Traceback" not in shown.stderr
    assert str(raw_file) in shown.stderr


def test_missing_gpu_is_an_error_that_says_so(penstock, raw_file, on_gpu):
    device = "cuda:99" if on_gpu else "cuda"
    shown = penstock("read", raw_file, "--device", device, status=1)
    assert "Traceback" not in shown.stderr


def test_a_name_that_is_no_text_is_listed(penstock, tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file[b"\xff"] = 1.0
    assert len(penstock.json("read", path)["datasets"]) == 1
    penstock("read", path)


@pytest.fixture
def related(tmp_path):
    """A file whose datasets have their elements in other files, too, and other names of it."""
    path, source, raw = (tmp_path / name for name in ("f.h5", "source.h5", "raw.bin"))
    with h5py.File(source, "w") as file:
        file["y"] = np.arange(10.0)
    raw.write_bytes(np.arange(10.0).tobytes())
    layout = h5py.VirtualLayout((10,), "f8")
    layout[:] = h5py.VirtualSource(str(source), "y", (10,))
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10.0)
        file["linked"] = h5py.ExternalLink("source.h5", "/y")
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", (10,), "f8", external=[(str(raw), 0, 80)])
    os.link(path, tmp_path / "hard.h5")
    os.symlink(path, tmp_path / "soft.h5")
    return tmp_path


@pytest.mark.parametrize("flag", ["--out", "--trace"])
@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("f.h5:x", "f.h5"),
        ("f.h5:x", "hard.h5"),
        ("f.h5:x", "soft.h5"),
        ("f.h5:x", "./f.h5"),
        ("raw.bin", "raw.bin"),
        ("f.h5:linked", "source.h5"),
        ("f.h5:virtual", "source.h5"),
        ("f.h5:external", "raw.bin"),
    ],
)
def test_an_output_that_is_an_input_is_refused(
    penstock, related, monkeypatch, source, output, flag
):
    monkeypatch.chdir(related)
    before = (related / output).read_bytes()
    shown = penstock("read", source, flag, output, status=2)
    assert "is an input" in " ".join(shown.stderr.replace("│", " ").split())
    assert (related / output).read_bytes() == before


def test_outputs_of_one_command_are_different_files(penstock, related):
    new = related / "new"
    penstock("read", f"{related}/f.h5:x", "--out", new, "--trace", related / "." / "new", status=2)
    assert not new.exists()
