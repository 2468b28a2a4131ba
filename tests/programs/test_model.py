"""What the model of the random programs allows, and what it does not."""

from __future__ import annotations

import threading

import h5py
import numpy as np
import pytest

from . import kinds, values
from .machine import Machine
from .model import Dataset, Virtual, WrongError
from .program import Program
from .selection import Picked

RECORD = np.dtype([("a", "<i4"), ("v", "<i2", (3,))])
EVERY = Picked((4,), None)


def never_filled():
    made = Dataset(np.zeros(4, RECORD), 0, {})
    made.unknown = np.ones(4, kinds.flags(RECORD))
    return made


def records(a, v):
    made = np.zeros(4, RECORD)
    made["a"], made["v"] = a, v
    return made


def test_a_member_that_was_never_written_has_any_value_beside_one_that_was():
    model = never_filled()
    model.write(EVERY, records(5, 0)[["a"]])
    model.expected(EVERY).check(records(5, 99), "all")
    model.expected(EVERY).part(slice(1, 3)).check(records(5, 99)[1:3], "a part")


def test_a_member_that_was_written_has_its_value_beside_one_that_was_not():
    model = never_filled()
    model.write(EVERY, records(5, 0)[["a"]])
    with pytest.raises(WrongError):
        model.expected(EVERY).check(records(6, 99), "all")
    with pytest.raises(WrongError):
        model.expected(EVERY).fields(np.dtype([("a", "<i4")])).check(records(6, 0)[["a"]], "a")


def test_a_member_stays_unknown_after_a_write_that_may_have_been_cancelled():
    model = never_filled()
    model.write(EVERY, records(1, 2), doubtful=1)
    model.write(EVERY, records(5, 0)[["a"]])
    for v in (2, 99):
        model.expected(EVERY).check(records(5, v), "all")
    with pytest.raises(WrongError):
        model.expected(EVERY).check(records(1, 2), "all")


def test_members_of_records_with_objects_may_be_of_several_writes_in_doubt():
    dtype = np.dtype([("k", "<i4"), ("name", object)])

    def records(k: int, name: bytes) -> np.ndarray:
        return np.array([(k, name)] * 4, dtype)

    model = Dataset(records(0, b"old"), 0, {})
    model.write(EVERY, records(1, b"new"), doubtful=1)
    model.write(EVERY, records(2, b"")[["k"]], doubtful=2)
    for k, name in ((0, b"old"), (2, b"old"), (1, b"new"), (2, b"new")):
        model.expected(EVERY).check(records(k, name), "all")
    with pytest.raises(WrongError):
        model.expected(EVERY).check(records(3, b"old"), "all")


def test_a_write_of_members_that_took_place_leaves_the_others_in_doubt():
    model = Dataset(records(0, 0), 0, {})
    model.write(EVERY, records(1, 1), doubtful=1)
    model.write(EVERY, records(2, 9)[["a"]], doubtful=2)
    model.took_place(2)
    for v in (0, 1):
        model.expected(EVERY).check(records(2, v), "all")
    with pytest.raises(WrongError):
        model.expected(EVERY).check(records(1, 1), "all")


def test_an_operation_on_members_that_the_dataset_lacks_is_left_out(tmp_path):
    create = {"do": "create", "name": "d", "file": "main", "shape": [4], "dtype": "<f4", "seed": 1}
    create |= {"layout": "contiguous", "fill": 0, "alloc": "late"}
    read = {"do": "read", "name": "d", "select": None, "waits": True, "memory": "c", "via": "main"}
    read |= {"dtype": None, "options": {}, "new": True, "way": "plain", "fields": ["a"]}
    Machine(Program("h5py", 1, 0, "host"), tmp_path).run((create, read))


def test_an_element_of_which_a_cancelled_write_wrote_one_byte_may_be_read_as_a_wider_type():
    model = Dataset(np.full(4, 0x0102, "<i2"), 0, {})
    model.write(EVERY, np.full(4, 0x0304, "<i2"), doubtful=1)
    model.expected(EVERY).check(np.full(4, 0x0104, "<i4"), "torn")
    with pytest.raises(WrongError):
        model.expected(EVERY).check(np.full(4, 0x0105, "<i4"), "another byte")


def test_the_bytes_between_the_members_of_an_element_that_is_torn_may_be_any():
    kind = kinds.dtype("padded")
    older, newer = np.zeros(4, kind), np.zeros(4, kind)
    newer["a"], newer["b"] = 1, 2
    found = older.copy()
    found.view("u1")[:] = 0xAA  # then only what is between the members remains
    for name in ("a", "b", "c"):
        found[name] = (newer if name == "a" else older)[name]
    model = Dataset(older, 0, {})
    model.write(EVERY, newer, doubtful=1)
    model.expected(EVERY).check(found, "torn")
    found["b"] = 3
    with pytest.raises(WrongError):
        model.expected(EVERY).check(found, "another member")


def test_a_dataset_in_an_external_file_is_not_copied(tmp_path):
    create = {"do": "create", "name": "d", "file": "main", "shape": [4], "dtype": "<f4", "seed": 1}
    create |= {"layout": "external", "fill": 0, "alloc": "late"}
    copy = {"do": "copy", "name": "d", "to": "e", "flush": True, "plain": True}
    write = {"do": "plain_write", "name": "e", "via": "main", "select": None, "seed": 2}
    Machine(Program("h5py", 1, 0, "host"), tmp_path).run((create, copy, write))


@pytest.mark.parametrize("given", kinds.NUMBERS)
def test_numbers_are_converted_as_hdf5_converts_them(tmp_path, given):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for seed in range(3):
            made = values.make(seed, (200,), given)
            file[f"of seed {seed}"] = made
            for wanted in kinds.NUMBERS:
                found = file[f"of seed {seed}"].astype(wanted)[...]
                Dataset(made, 0, {}).expected(Picked((200,), None)).check(found, wanted)


def test_integers_of_one_length_wrap_between_byte_orders_and_end_at_the_limit_otherwise():
    given = np.array([-1, -32768, 32767], "<i2")
    assert values.convert(given, ">u2").tolist() == [65535, 32768, 32767]
    assert values.convert(given, "<u2").tolist() == [0, 0, 32767]
    assert values.convert(given, ">u4").tolist() == [0, 0, 32767]
    assert values.convert(given, "u1").tolist() == [0, 0, 255]


@pytest.mark.parametrize(("given", "wanted"), [(">f8", "<f4"), ("<f8", ">f4"), (">f4", "<f2")])
def test_floats_halfway_between_two_others_are_rounded_as_hdf5_rounds_them(given, wanted):
    digits = np.finfo(wanted).nmant
    made = (2.0**digits * 2 + np.arange(1, 200, 2)).astype(given)
    with h5py.File.in_memory() as file:
        file["x"] = made
        np.testing.assert_array_equal(
            values.convert(made, wanted), file["x"].astype(wanted)[...], strict=True
        )


def test_a_source_with_a_filter_that_only_hdf5_applies_may_be_an_error_where_it_grew():
    model = of_two_sources((4, 3), (2, 3))
    assert not model.expected(EVERY_ROW).may_fail
    model.replace(Dataset(np.ones((4, 3), "i4"), 0, {"name": "a", "filters": ["BZip2?"]}))
    assert model.expected(EVERY_ROW).may_fail


def test_what_exceeds_half_floats_may_be_read_as_infinity_or_as_the_largest_of_them():
    model = Dataset(np.array([65_510, -65_510, 1, 1]), 0, {})
    model.expected(EVERY).check(np.array([np.inf, -65_504, 1, 1], "<f2"), "halves")
    with pytest.raises(WrongError):
        model.expected(EVERY).check(np.array([np.inf, -np.inf, 2, 1], "<f2"), "halves")


EVERY_ROW = Picked((4, 3), None)


def of_two_sources(first, second):
    """A virtual dataset that maps two rows of three columns of each source."""
    mapped = [Dataset(np.zeros((2, 3), "i4"), 0, {"name": name}) for name in ("a", "b")]
    made = Virtual(mapped, {"sources": ["a", "b"]})
    for name, shape in (("a", first), ("b", second)):
        values = np.arange(np.prod(shape), dtype="i4").reshape(shape) + 1
        made.replace(Dataset(values, 0, {"name": name}))
    return made


def test_elements_stay_at_their_coordinates_where_a_source_grew():
    model = of_two_sources((4, 5), (2, 3))
    expected = model.expected(Picked((4, 3), None))
    right = np.array([[1, 2, 3], [6, 7, 8], [1, 2, 3], [4, 5, 6]], "i4")
    expected.check(right, "all")
    assert not expected.may_fail
    with pytest.raises(WrongError):
        expected.check(np.arange(12, dtype="i4").reshape(4, 3) + 1, "displaced")


def test_elements_stay_in_order_where_a_source_has_as_many():
    expected = of_two_sources((3, 2), (2, 3)).expected(Picked((4, 3), None))
    expected.check(np.array([[1, 2, 3], [4, 5, 6]] * 2, "i4"), "all")
    assert not expected.may_fail


def test_a_read_gives_what_a_source_has_left_or_an_error():
    model = of_two_sources((2, 3), (1, 3))
    last = Picked((4, 3), [slice(3, 4, 1), slice(0, 3, 1)])
    left = Picked((4, 3), [slice(2, 3, 1), slice(0, 3, 1)])
    for picked in (last, left):
        assert model.expected(picked).may_fail
    model.expected(left).check(np.array([[1, 2, 3]], "i4"), "left")
    for other in ([[1, 2, 3]], [[0, 0, 0]], [[4, 5, 6]]):
        with pytest.raises(WrongError):
            model.expected(last).check(np.array(other, "i4"), "last")


def test_a_source_that_shrank_lets_a_read_fail_but_not_give_other_elements(tmp_path):
    create = {"do": "create", "name": "a", "file": "main", "shape": [4], "dtype": "<i4", "seed": 1}
    create |= {"layout": "contiguous", "fill": 0, "alloc": "late"}
    virtual = {"do": "virtual", "name": "v", "sources": ["a"]}
    again = create | {"do": "recreate", "shape": [2], "seed": 2}
    read = {"do": "read", "name": "v", "select": None, "waits": True, "memory": "c", "via": "main"}
    read |= {"dtype": None, "options": {}, "new": True, "way": "plain"}
    machine = Machine(Program("h5py", 1, 0, "host"), tmp_path)
    machine.interface.maps = True
    machine.interface.read = lambda request: (_ for _ in ()).throw(OSError("another shape"))
    machine.run((create, virtual, again, read))
    with pytest.raises(WrongError, match="another shape"):
        machine.run((read | {"name": "a"},))


def damaged(read_many, tmp_path):
    """Run a read of two datasets, one with a damaged chunk, by an interface with this method."""
    part = {"length": 1000, "dtype": "<i4", "chunked": True, "memory": "c", "seed": 1}
    operation = {"do": "damaged", "parts": [part, part], "bad": 1, "chunk": 2, "by_name": False}
    operation |= {"options": {}, "pause": 0.2}
    machine = Machine(Program("h5py", 1, 0, "host"), tmp_path)
    machine.interface.read_many = read_many
    machine.run((operation,))


def read_one_by_one(request):
    for name, picked, memory in request.parts:
        memory.array[...] = request.file[name][picked.argument]


def test_a_read_of_a_damaged_chunk_fails(tmp_path):
    damaged(read_one_by_one, tmp_path)
    with pytest.raises(WrongError, match="damaged chunk"):
        damaged(lambda request: None, tmp_path)


def test_a_read_that_failed_fills_no_memory_later(tmp_path):
    def read_many(request):
        late = threading.Timer(0.05, lambda: request.memories[0].array.fill(7))
        late.start()
        raise OSError("damaged")

    with pytest.raises(WrongError, match="1000 bytes of x0"):
        damaged(read_many, tmp_path)
