"""Chunks that are read again are kept, for as long as they are what the file has."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps

SHAPE, CHUNK = (40, 600), (10, 600)
LAYOUTS: dict[str, dict[str, Any]] = {
    "gzip": {"chunks": CHUNK, "compression": "gzip"},
    "shuffle": {"chunks": CHUNK, "compression": "gzip", "shuffle": True},
    "big endian": {"chunks": CHUNK, "compression": "gzip", "dtype": ">i4"},
    "two dimensions": {"chunks": (16, 256), "compression": "lzf"},
}


def values(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 50, SHAPE, "i4")


def fill(path: Path, seed: int = 0, **layout: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values(seed), **(layout or LAYOUTS["gzip"]))


def decoded() -> int:
    report = ps.last_report()
    return report.decoded_cpu + report.decoded_gpu


def python(code: str, *arguments: object, **environment: str) -> None:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def path(tmp_path):
    fill(tmp_path / "f.h5")
    return tmp_path / "f.h5"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", [np.s_[10:20], np.s_[:], np.s_[0:40:1, 0:600]], ids=str)
def test_the_second_read_of_whole_chunks_keeps_them(tmp_path, memory, layout, part):
    path = tmp_path / "f.h5"
    fill(path, **LAYOUTS[layout])
    work = []
    with ps.File(path) as file:
        for _ in range(4):
            out = memory.empty(values()[part].shape, "i4")
            file["x"].read(part, out=out)
            np.testing.assert_array_equal(memory.numpy(out), values()[part])
            work.append(decoded())
    if layout == "two dimensions" and part == np.s_[10:20]:
        assert work[1:] == [0, 0, 0]  # parts of chunks are kept at once
    else:
        assert work[0] == work[1] > 0
        assert work[2:] == [0, 0]


def test_an_asynchronous_read_takes_kept_chunks(path, memory):
    work = []
    with ps.File(path) as file:
        for _ in range(3):
            out = memory.empty(SHAPE, "i4")
            made = file["x"].read_async(out=out)
            made.wait()
            np.testing.assert_array_equal(memory.numpy(out), values())
            work.append(made.report.decoded_cpu + made.report.decoded_gpu)
    assert work[0] > 0
    assert work[2] == 0


def test_part_of_a_kept_chunk_is_read_with_another_type(path, memory):
    with ps.File(path) as file:
        for _ in range(2):
            file["x"].read(np.s_[:10])
        out = memory.empty((3, 100), "f8")
        file["x"].read(np.s_[4:7, 50:150], out=out)
        np.testing.assert_array_equal(memory.numpy(out), values()[4:7, 50:150])
        assert decoded() == 0


def test_a_kept_chunk_goes_to_the_memory_that_is_asked_for(path, memory):
    with ps.File(path) as file:
        for _ in range(2):
            file["x"].read(np.s_[20:30])
        out = memory.empty((10, 600), "i4")
        file["x"].read(np.s_[20:30], out=out)
        np.testing.assert_array_equal(memory.numpy(out), values()[20:30])
        assert decoded() == 0


def test_an_array_that_the_program_changes_does_not_change_the_kept_chunk(path):
    with ps.File(path) as file:
        for _ in range(4):
            found = file["x"].read(np.s_[10:20])
            np.testing.assert_array_equal(found, values()[10:20])
            found[...] = -1


STREAM = """
import sys
import h5py, numpy as np, penstock as ps
numbers = np.random.default_rng(0).integers(0, 9, (64, 65536), "u1")
with h5py.File(sys.argv[1], "w") as file:
    file.create_dataset("x", data=numbers, chunks=(1, 65536), compression="gzip")
with ps.File(sys.argv[1], rdcc_nbytes=1) as file:
    for turn in range(3):
        for row in range(64):
            assert (file["x"].read(row) == numbers[row]).all()
            assert ps.last_report().decoded_cpu == 65536, (turn, row)
    for turn in range(4):
        for row in range(8):
            assert (file["x"].read(row) == numbers[row]).all()
            assert (ps.last_report().decoded_cpu == 0) == (turn > 1), (turn, row)
"""


def test_chunks_of_a_dataset_that_does_not_fit_are_not_kept(tmp_path):
    python(STREAM, tmp_path / "f.h5", PENSTOCK_CHUNK_CACHE="1MiB")


@pytest.mark.parametrize("size", ["0", "16KiB"])
def test_a_chunk_of_more_than_the_limit_is_decoded_each_time(path, size):
    code = """
import sys, penstock as ps
with ps.File(sys.argv[1], rdcc_nbytes=1) as file:
    for part in [slice(10)] * 3 + [3] * 3:
        file["x"].read(part)
        assert ps.last_report().decoded_cpu == 24000
"""
    python(code, path, PENSTOCK_CHUNK_CACHE=size)


FIFTH = """
import sys
from pathlib import Path
import h5py, numpy as np, penstock as ps
MIB = 1 << 20
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
files = []
for number in range(6):
    path = Path(sys.argv[1], f"{number}.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (64, MIB), "u1", chunks=(1, MIB), compression="gzip")[...] = number
    files.append(ps.File(path))
before = resident()
for number, file in enumerate(files):
    for row in range(64):
        assert file["x"].read((row, 5)) == number
    assert file["x"].read((63, 6)) == number
    assert ps.last_report().decoded_cpu == 0, number
assert resident() - before < 300 * MIB, resident() - before
assert files[0]["x"].read((63, 7)) == 0
assert ps.last_report().decoded_cpu == MIB
"""


def test_a_later_file_takes_the_room_of_files_that_are_idle(tmp_path):
    python(FIFTH, tmp_path)


MANY = """
import sys
from pathlib import Path
import h5py, numpy as np, penstock as ps
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
numbers = np.random.default_rng(0).integers(0, 9, (16, 16384), "u1")
path = Path(sys.argv[1])
with h5py.File(path, "w") as file:
    for name in range(40):
        file.create_dataset(f"x{name}", data=numbers, chunks=(1, 16384), compression="gzip")
def turn():
    with ps.File(path, rdcc_nbytes=1) as file:
        for name in range(40):
            for _ in range(3):
                assert (file[f"x{name}"].read() == numbers).all()
for _ in range(5):
    turn()
before = resident()
for _ in range(40):
    turn()
assert resident() - before < 8 << 20, resident() - before
"""


def test_the_memory_of_many_datasets_and_files_does_not_grow(tmp_path):
    python(MANY, tmp_path / "f.h5", PENSTOCK_CHUNK_CACHE="4MiB")


def by_h5py(path: Path, seed: int) -> None:
    with h5py.File(path, "r+", locking=False) as file:
        file["x"][...] = values(seed)


def by_penstock(path: Path, seed: int) -> None:
    with ps.File(path, "r+", locking=False) as file:
        file["x"].write(values(seed))


def by_the_driver(path: Path, seed: int) -> None:
    with ps.File(path, "r+", locking=False, driver="penstock") as file:
        file["x"][...] = values(seed)


def by_the_connector(path: Path, seed: int) -> None:
    with ps.File(path, "r+", locking=False, connector="penstock_async") as file:
        file["x"].write_async(values(seed)).wait()


def by_another_process(path: Path, seed: int) -> None:
    code = f"""
import sys, h5py, numpy as np
with h5py.File(sys.argv[1], "r+", locking=False) as file:
    file["x"][...] = np.random.default_rng({seed}).integers(0, 50, {SHAPE}, "i4")
"""
    python(code, path)


def by_a_stored_chunk(path: Path, seed: int) -> None:
    with h5py.File(path, "r+", locking=False) as file:
        chunks, dataset = values(seed), file["x"]
        for first in range(0, SHAPE[0], CHUNK[0]):
            part = chunks[first : first + CHUNK[0]].tobytes()
            dataset.id.write_direct_chunk((first, 0), part, filter_mask=1)


def in_a_new_file(path: Path, seed: int) -> None:
    other = path.with_suffix(".new")
    fill(other, seed)
    os.replace(other, path)


WRITERS = (by_h5py, by_penstock, by_the_driver, by_the_connector, by_another_process)
WRITERS += (by_a_stored_chunk, in_a_new_file)
Writer = Callable[[Path, int], None]


def read_again(dataset: Any, seed: int, memory: Any) -> None:
    for part in (np.s_[:], np.s_[10:20], np.s_[13, 5:9], np.s_[:]):
        out = memory.empty(values()[part].shape, "i4")
        dataset.read(part, out=out)
        np.testing.assert_array_equal(memory.numpy(out), values(seed)[part])


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_file_that_was_written_while_it_was_closed_is_read_anew(path, memory, write: Writer):
    for seed in range(3):
        if seed:
            write(path, seed)
        with ps.File(path) as file:
            read_again(file["x"], seed, memory)
            read_again(file["x"], seed, memory)


@pytest.mark.parametrize("locking", [True, False], ids=["locked", "unlocked"])
@pytest.mark.parametrize("write", [by_the_driver, by_another_process], ids=lambda w: w.__name__)
def test_chunks_that_a_writer_without_a_lock_changes_are_dropped(
    tmp_path, memory, write: Writer, locking
):
    path = tmp_path / "f.h5"
    # The chunks of each writer have the places of those before, which the reader knows.
    fill(path, chunks=CHUNK, shuffle=True)
    time.sleep(0.05)  # the next write gives the file other times
    with ps.File(path, locking=locking) as file:
        dataset = file["x"]
        read_again(dataset, 0, memory)
        read_again(dataset, 0, memory)
        write(path, 1)
        time.sleep(0.05)
        read_again(dataset, 1, memory)
        read_again(file["x"], 1, memory)


def test_a_file_that_is_replaced_is_read_as_it_was_by_those_that_have_it_open(path, memory):
    with ps.File(path) as old:
        read_again(old["x"], 0, memory)
        in_a_new_file(path, 1)
        with ps.File(path) as new:
            for _ in range(2):
                read_again(new["x"], 1, memory)
                read_again(old["x"], 0, memory)


@pytest.mark.parametrize("by", ["h5py", "penstock", "connector"])
def test_a_file_that_is_open_for_writing_has_what_was_written_last(path, memory, by):
    connector = {"connector": "penstock_async"} if by == "connector" else {}
    with ps.File(path, "r+", **connector) as file:
        for seed in range(3):
            if by == "h5py":
                file["x"].h5py[...] = values(seed)
            else:
                file["x"].write(values(seed))
            read_again(file["x"], seed, memory)
            read_again(file["x"], seed, memory)


def test_a_dataset_that_was_resized_is_read_with_its_new_elements(tmp_path, memory):
    path = tmp_path / "f.h5"
    fill(path, chunks=CHUNK, compression="gzip", maxshape=(None, 600))
    with ps.File(path) as file:
        read_again(file["x"], 0, memory)
    for rows, kept in ((45, 40), (25, 25), (40, 25)):
        with h5py.File(path, "r+") as file:
            file["x"].resize(rows, 0)
        expected = np.zeros((rows, 600), "i4")
        expected[:kept] = values()[:kept]
        with ps.File(path) as file:
            for _ in range(3):
                out = memory.empty(expected.shape, "i4")
                file["x"].read(out=out)
                np.testing.assert_array_equal(memory.numpy(out), expected)


def test_a_swmr_reader_reads_what_was_rewritten(tmp_path, memory):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as writer:
        made = writer.create_dataset("x", data=values(), maxshape=(None, 600), **LAYOUTS["gzip"])
        writer.swmr_mode = True
        with ps.File(path, "r", swmr=True, libver="latest") as reader:
            dataset = reader["x"]
            for seed in range(3):
                made[...] = values(seed)
                made.flush()
                dataset.refresh()
                read_again(dataset, seed, memory)
                read_again(dataset, seed, memory)


def test_a_virtual_dataset_has_what_was_written_to_its_source(tmp_path, memory):
    fill(tmp_path / "s.h5")
    layout = h5py.VirtualLayout(SHAPE, "i4")
    layout[...] = h5py.VirtualSource("s.h5", "x", SHAPE)
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    for seed in range(3):
        with ps.File(tmp_path / "v.h5") as file, ps.File(tmp_path / "s.h5") as source:
            for _ in range(2):
                read_again(source["x"], seed, memory)
                read_again(file["x"], seed, memory)
        by_h5py(tmp_path / "s.h5", seed + 1)


def test_a_closed_file_has_no_kept_chunk(path, memory):
    file = ps.File(path)
    dataset = file["x"]
    for _ in range(3):
        dataset.read(np.s_[:10])
    file.close()
    out = memory.empty((10, 600), "i4")
    with pytest.raises(ps.InvalidError):
        dataset.read(np.s_[:10], out=out)


THREADS = """
import sys, threading
import h5py, numpy as np, penstock as ps
numbers = np.random.default_rng(0).integers(0, 9, (64, 16384), "u1")
with h5py.File(sys.argv[1], "w") as file:
    file.create_dataset("x", data=numbers, chunks=(1, 16384), compression="gzip")
failed = []
def work(seed):
    random = np.random.default_rng(seed)
    for _ in range(400):
        first = int(random.integers(24))
        count = int(random.integers(1, 5))
        part = (slice(first, first + count), slice(*sorted(random.integers(0, 16385, 2).tolist())))
        part = part[0] if random.random() < 0.7 else part
        if not np.array_equal(dataset.read(part), numbers[part]):
            failed.append((seed, part))
with ps.File(sys.argv[1], rdcc_nbytes=1) as file:
    dataset = file["x"]
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert not failed, failed
"""


@pytest.mark.parametrize("size", ["64MiB", "256KiB", "64KiB"])
def test_threads_read_the_same_chunks_while_others_are_dropped(tmp_path, size):
    python(THREADS, tmp_path / "f.h5", PENSTOCK_CHUNK_CACHE=size)


def test_a_file_is_closed_while_threads_read_its_kept_chunks(path):
    failed: list[Any] = []

    def work(dataset: Any) -> None:
        try:
            for _ in range(200):
                if not np.array_equal(dataset.read(), values()):
                    failed.append("wrong")
        except (ps.InvalidError, ValueError, RuntimeError, OSError):
            pass  # Penstock's or h5py's error of a closed file

    for _ in range(5):
        file = ps.File(path)
        threads = [threading.Thread(target=work, args=(file["x"],)) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        file.close()
        for thread in threads:
            thread.join()
    assert not failed


def test_a_forked_child_reads_what_its_parent_has_kept(path):
    code = """
import os, sys
import numpy as np, penstock as ps
with ps.File(sys.argv[1]) as file:
    expected = file["x"].h5py[...]
    for _ in range(3):
        file["x"].read()
    child = os.fork()
    for _ in range(3):
        assert (file["x"].read() == expected).all()
        assert (file["x"].read((3, slice(5, 9))) == expected[3, 5:9]).all()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    python(code, path)


RANDOM = """
import sys
from pathlib import Path
import h5py, numpy as np, penstock as ps
seed, folder = int(sys.argv[1]), Path(sys.argv[2])
random = np.random.default_rng(seed)
LAYOUTS = [
    {"chunks": (8, 50), "compression": "gzip", "compression_opts": 1},
    {"chunks": (5, 17), "compression": "lzf", "shuffle": True},
    {"chunks": (1, 50), "compression": "gzip", "fletcher32": True},
    {"chunks": (30, 50), "compression": "gzip", "dtype": ">i4"},
    {"chunks": (7, 20)},
]
SHAPE = (30, 50)
known, files = {}, {}
for number in range(4):
    path = folder / f"{number}.h5"
    with h5py.File(path, "w") as file:
        for name, layout in enumerate(LAYOUTS):
            known[number, name] = random.integers(0, 99, SHAPE, "i4")
            file.create_dataset(str(name), data=known[number, name], **layout)
def part():
    if random.random() < 0.5:
        return ()
    axes = []
    for side in SHAPE:
        start, stop = sorted(random.integers(0, side + 1, 2).tolist())
        axes.append(slice(start, stop, int(random.integers(1, 4))))
    return axes[0] if random.random() < 0.5 else tuple(axes)
for step in range(400):
    number, name = int(random.integers(4)), int(random.integers(len(LAYOUTS)))
    path, values = folder / f"{number}.h5", known[number, name]
    act = random.random()
    if act < 0.05 and number in files:
        files.pop(number).close()
    elif act < 0.12:
        if number in files:
            files.pop(number).close()
        where = part()
        new = random.integers(0, 99, values[where].shape, "i4")
        opened = ps.File(path, "r+") if random.random() < 0.5 else h5py.File(path, "r+")
        with opened as file:
            file[str(name)][where] = values[where] = new
            again = np.asarray(file[str(name)][...])
            assert (again == values).all(), step
    else:
        if number not in files:
            files[number] = ps.File(path, rdcc_nbytes=1)  # not more than PENSTOCK_CHUNK_CACHE
        where, dataset = part(), files[number][str(name)]
        if TO_GPU:
            found = dataset.read(where, device="cuda", like="device").numpy()
        else:
            found = dataset.read(where)
        assert np.array_equal(found, values[where]), (step, number, name, where)
"""


@pytest.mark.parametrize("size", ["64MiB", "20KiB", "7KiB"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("seed", range(3))
def test_random_reads_and_writes_of_several_files_have_the_right_elements(
    tmp_path, seed, device, size
):
    code = f"TO_GPU = {device == 'cuda'}\n{RANDOM}"
    python(code, seed, tmp_path, PENSTOCK_CHUNK_CACHE=size)


PLAIN: dict[str, dict[str, Any]] = {
    "rows": {"chunks": CHUNK},
    "two dimensions": {"chunks": (16, 256)},
    "big endian": {"chunks": (7, 600), "dtype": ">i4"},
}


@pytest.mark.parametrize("layout", PLAIN)
def test_the_second_read_of_scattered_elements_keeps_chunks_without_filters(tmp_path, layout):
    path = tmp_path / "f.h5"
    fill(path, **PLAIN[layout])
    chunks = []
    with ps.File(path) as file:
        for part in (np.s_[:, 5], np.s_[:, 7], np.s_[:, 3:5], np.s_[::2, 11]):
            np.testing.assert_array_equal(file["x"][part], values()[part])
            chunks.append(ps.last_report().chunks)
        found = file["x"].read(np.s_[:, 9], dtype="f8")
        np.testing.assert_array_equal(found, values()[:, 9])
        np.testing.assert_array_equal(file["x"][3], values()[3])
        assert ps.last_report().stored > 0, "a row is read from the file"
    assert chunks[0] > 0
    assert chunks[2:] == [0, 0]


@pytest.mark.parametrize("size", ["0", "16KiB"])
def test_a_chunk_without_filters_of_more_than_the_limit_is_read_each_time(tmp_path, size):
    fill(tmp_path / "f.h5", **PLAIN["rows"])
    python(
        """
import sys
import penstock as ps
with ps.File(sys.argv[1], rdcc_nbytes=1) as file:
    for column in range(4):
        assert file["x"][:, column].shape == (40,)
        assert ps.last_report().chunks == 4
""",
        tmp_path / "f.h5",
        PENSTOCK_CHUNK_CACHE=size,
    )


def test_scattered_elements_that_a_writer_without_a_lock_changes_are_read_soon(tmp_path):
    path = tmp_path / "f.h5"
    fill(path, **PLAIN["rows"])
    time.sleep(0.05)  # the next write gives the file other times
    with ps.File(path, locking=False) as file:
        for _ in range(3):
            np.testing.assert_array_equal(file["x"][:, 5], values()[:, 5])
        write = "import h5py, sys\nh5py.File(sys.argv[1], 'r+', locking=False)['x'][...] = 70"
        python(write, path)
        time.sleep(0.03)
        assert (file["x"][:, 5] == 70).all()
