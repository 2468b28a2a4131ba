"""Whatever a program does, and whenever it waits: it sees what it would see if nothing went on."""

from __future__ import annotations

import ctypes
import random

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5 import small

# HDF5 is among what h5py's module needs, so its functions are found through it.
HDF5 = ctypes.CDLL(h5py.h5.__file__)
HDF5.H5EScreate.restype = ctypes.c_int64
HDF5.H5ESclose.argtypes = [ctypes.c_int64]
HDF5.H5ESwait.argtypes = [ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
_PLACE = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint]
for _function in (HDF5.H5Dread_async, HDF5.H5Dwrite_async):
    _function.argtypes = [*_PLACE, *[ctypes.c_int64] * 5, ctypes.c_void_p, ctypes.c_int64]
for _function in (HDF5.H5Dclose_async, HDF5.H5Fflush_async):
    _function.argtypes = [*_PLACE, ctypes.c_int64, ctypes.c_int64]
HDF5.H5Fflush_async.argtypes = [*_PLACE, ctypes.c_int64, ctypes.c_int, ctypes.c_int64]
HDF5.H5Dset_extent_async.argtypes = [*_PLACE, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
HDF5.H5Dopen2.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64]
HDF5.H5Dopen2.restype = ctypes.c_int64

HERE = (b"file", b"function", 1)
FOREVER = ctypes.c_uint64(-1).value
FILL = 7
LENGTH = 300

LAYOUTS = {
    "plain": {"maxshape": None},
    "swapped": {"dtype": ">i4"},
    "chunked": {"chunks": (64, 40), "maxshape": (None, LENGTH)},
    "filtered": {"chunks": (64, 40), "compression": 1, "maxshape": (None, LENGTH)},
}
SETTINGS = {
    "copied": {},
    "in place": {"copy": "never"},
    "little memory": {"max_mem_mb": 1},
    "implicit": {"implicit": True},
    "implicit, little memory": {"implicit": True, "max_mem_mb": 1},
}


class Program:
    """Random calls on one file, with what each dataset holds by rights beside it."""

    def __init__(self, path, seed, settings, on_gpu):
        self.random = random.Random(seed)
        self.path, self.settings, self.on_gpu = path, settings, on_gpu
        self.copies = settings.get("copy") != "never"
        self.file = ps.File(
            path, "w", connector="penstock_async", connector_options=settings, libver="latest"
        )
        self.truth = {}
        for name, layout in LAYOUTS.items():
            data = np.full((LENGTH, LENGTH), self.random.randrange(1000), "i4")
            self.file.h5py.create_dataset(name, data=data, fillvalue=FILL, **layout)
            self.truth[name] = data
        # It shows two others, which are written.
        halves = h5py.VirtualLayout((2 * LENGTH, LENGTH), "i4")
        halves[:LENGTH] = h5py.VirtualSource(".", "plain", (LENGTH, LENGTH))
        halves[LENGTH:] = h5py.VirtualSource(".", "swapped", (LENGTH, LENGTH), ">i4")
        self.file.h5py.create_virtual_dataset("virtual", halves)
        self.events = [HDF5.H5EScreate() for _ in range(2)]
        self.kept, self.expected = [], []
        self.said = []

    def run(self, steps):
        calls = [
            *[self.write_later] * 6,
            *[self.read_later] * 4,
            *[self.write] * 2,
            *[self.read] * 2,
            self.write_by_penstock,
            self.read_by_penstock,
            self.read_both,
            self.change_extent,
            self.copy,
            self.flush,
            self.open_again,
            *[self.wait] * 2,
            *[self.poll] * 3,
        ]
        for _ in range(steps):
            call = self.random.choice(calls)
            self.said.append(call.__name__)
            call()
        self.finish()

    def finish(self):
        for events in self.events:
            self.wait(events)
        self.file.close()
        with h5py.File(self.path) as file:
            for name, truth in self.truth.items():
                assert np.array_equal(file[name], truth), (name, self.said)
        for events in self.events:
            assert HDF5.H5ESclose(events) >= 0

    def pick(self):
        """A dataset and a box of it."""
        name = self.random.choice(list(self.truth))
        truth = self.truth[name]
        box = []
        for length in truth.shape:
            ends = sorted(self.random.choices(range(length + 1), k=2))
            whole = self.random.random() < 0.3 or ends[0] == ends[1]
            box.append(slice(0, length) if whole else slice(*ends))
        return self.file.h5py[name], truth, tuple(box)

    def values(self, truth, box):
        """Numbers that each of these types can hold."""
        kind = self.random.choice(["i4", "i4", "i8", "f8", "f4"])
        return np.full(truth[box].shape, self.random.randrange(1 << 24), kind)

    def memory(self, array):
        return ps.DeviceArray.from_numpy(array) if self.on_gpu() else np.array(array)

    def later(self, function, dataset, box, array):
        """Sometimes by an identifier that is closed right after, which has to wait, too."""
        whole, part = dataset.id.get_space(), h5py.h5s.create_simple(array.shape)
        whole.select_hyperslab(tuple(s.start for s in box), tuple(s.stop - s.start for s in box))
        on_gpu = isinstance(array, ps.DeviceArray)
        address = array.data_ptr if on_gpu else array.ctypes.data
        spaces = (part.id, whole.id, 0)
        kind = h5py.h5t.py_create(np.dtype(array.dtype))
        events = self.random.choice(self.events)
        own = dataset.id.id
        closes = self.random.random() < 0.4
        if closes:
            own = HDF5.H5Dopen2(self.file.h5py.id.id, dataset.name.encode(), 0)
        assert function(*HERE, own, kind.id, *spaces, address, events) >= 0, self.said
        if closes:
            events = self.random.choice(self.events)
            assert HDF5.H5Dclose_async(*HERE, own, events) >= 0, self.said

    def write_later(self):
        dataset, truth, box = self.pick()
        values = self.values(truth, box)
        array = self.memory(values)
        self.later(HDF5.H5Dwrite_async, dataset, box, array)
        truth[box] = values
        if not self.copies:
            self.kept.append(array)
        elif isinstance(array, np.ndarray):
            array[...] = -1

    def read_later(self):
        dataset, truth, box = self.pick()
        array = self.memory(np.zeros_like(self.values(truth, box)))
        self.later(HDF5.H5Dread_async, dataset, box, array)
        self.expected.append((array, truth[box].copy(), len(self.said)))

    def write(self):
        dataset, truth, box = self.pick()
        values = self.values(truth, box)
        dataset[box] = values
        truth[box] = values

    def read(self):
        dataset, truth, box = self.pick()
        assert np.array_equal(dataset[box], truth[box]), self.said

    def write_by_penstock(self):
        dataset, truth, box = self.pick()
        values = self.values(truth, box)
        ps.write(dataset, self.memory(values), box)
        truth[box] = values

    def read_by_penstock(self):
        dataset, truth, box = self.pick()
        array = self.memory(np.zeros_like(truth[box]))
        ps.read(dataset, box, out=array)
        assert np.array_equal(self.numpy(array), truth[box]), self.said

    def read_both(self):
        dataset = self.file.h5py["virtual"]
        truth = np.concatenate([self.truth["plain"], self.truth["swapped"]])
        if self.random.random() < 0.5:
            assert np.array_equal(dataset, truth), self.said
        else:
            array = self.memory(np.zeros_like(truth))
            box = (slice(0, 2 * LENGTH), slice(0, LENGTH))
            self.later(HDF5.H5Dread_async, dataset, box, array)
            self.expected.append((array, truth, len(self.said)))

    def numpy(self, array):
        return array.numpy() if isinstance(array, ps.DeviceArray) else array

    def change_extent(self):
        dataset, truth, _ = self.pick()
        if dataset.maxshape[0] is not None or "again" in dataset.name:
            return
        rows = self.random.randrange(100, 400)
        extent = (ctypes.c_uint64 * 2)(rows, LENGTH)
        events = self.random.choice(self.events)
        assert HDF5.H5Dset_extent_async(*HERE, dataset.id.id, extent, events) >= 0, self.said
        changed = np.full((rows, LENGTH), FILL, "i4")
        kept = min(rows, len(truth))
        changed[:kept] = truth[:kept]
        self.truth[dataset.name[1:]] = changed

    def copy(self):
        """Copies a dataset over another, whose storage is free then."""
        source = self.random.choice(list(self.truth))
        target = f"{self.random.choice(list(LAYOUTS))} again"
        if source != target:
            if target in self.truth:
                del self.file.h5py[target]
            self.file.h5py.copy(source, target)
            self.truth[target] = self.truth[source].copy()

    def flush(self):
        events = self.random.choice(self.events)
        if self.random.random() < 0.5:
            self.file.h5py.flush()
        else:
            assert HDF5.H5Fflush_async(*HERE, self.file.h5py.id.id, 0, events) >= 0, self.said

    def open_again(self):
        self.file.close()
        options = {"connector": "penstock_async", "connector_options": self.settings}
        self.file = ps.File(self.path, "r+", **options)

    def wait(self, events=None):
        events = self.random.choice(self.events) if events is None else events
        self.ask(events, FOREVER, left=0)

    def poll(self):
        self.ask(self.random.choice(self.events), 0, left=None)

    def ask(self, events, timeout, left):
        running, failed = ctypes.c_size_t(), ctypes.c_bool()
        places = (ctypes.byref(running), ctypes.byref(failed))
        assert HDF5.H5ESwait(events, timeout, *places) >= 0, self.said
        assert not failed.value, self.said
        assert left in (None, running.value), self.said
        if left == 0 and self.is_over():
            for array, expected, step in self.expected:
                assert np.array_equal(self.numpy(array), expected), (step, self.said)
            self.expected.clear()
            self.kept.clear()

    def is_over(self):
        """Whether the other event set has nothing under way, either."""
        counts = []
        for events in self.events:
            found = ctypes.c_size_t()
            assert HDF5.H5ESget_count(ctypes.c_int64(events), ctypes.byref(found)) >= 0
            counts.append(found.value)
        return not any(counts)


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch):
    monkeypatch.setattr(small, "LIMIT", 0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_calls_in_any_order_give_what_the_serial_program_gives(tmp_path, settings, seed, on_gpu):
    chance = random.Random(seed)
    sometimes = (lambda: chance.random() < 0.6) if on_gpu else (lambda: False)
    Program(tmp_path / "file.h5", seed, settings, sometimes).run(120)
