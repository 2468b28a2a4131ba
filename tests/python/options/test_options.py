"""Options: context managers, keyword arguments, and what wins."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import penstock as ps
from penstock._native import NULL, lib
from penstock._options import resolve


def test_without_options_the_library_decides():
    assert resolve({}) == NULL
    assert resolve({"threads": None}) == NULL


def test_values_reach_the_library_in_its_own_units():
    with ps.options(threads=3, block="8MiB", route="staged", direct=False, durable=True):
        found = resolve({})
    assert (found.threads, found.block) == (3, 8 << 20)
    assert found.route == lib.PENSTOCK_ROUTE_STAGED
    assert found.direct == lib.PENSTOCK_CHOICE_NO
    assert found.durable == lib.PENSTOCK_CHOICE_YES
    assert found.queue_depth == 0


def test_blocks_nest_key_by_key_and_end():
    with ps.options(threads=4, block=1 << 20):
        with ps.options(threads=2):
            inner = resolve({})
        outer = resolve({})
    assert (inner.threads, inner.block) == (2, 1 << 20)
    assert (outer.threads, outer.block) == (4, 1 << 20)
    assert resolve({}) == NULL


def test_a_keyword_of_the_call_wins():
    with ps.options(threads=4, route="host"):
        found = resolve({"threads": 1})
    assert (found.threads, found.route) == (1, lib.PENSTOCK_ROUTE_HOST)


def test_options_end_when_the_block_raises():
    with pytest.raises(KeyError), ps.options(threads=4):
        raise KeyError
    assert resolve({}) == NULL


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"threads": 0}, "threads"),
        ({"threads": 1.5}, "threads"),
        ({"threads": True}, "threads"),
        ({"block": "8 parsecs"}, "block"),
        ({"route": "warp"}, "route"),
        ({"colour": "red"}, "colour"),
        ({"route": "auto;threads=3"}, "route"),
    ],
)
def test_a_bad_option_is_a_value_error_that_names_it(keys, word):
    with pytest.raises(ValueError, match=word), ps.options(**keys):
        pass


def test_a_bad_option_of_a_call_stops_it_before_anything_happens(tmp_path):
    with pytest.raises(ps.InvalidError):
        ps.save(tmp_path / "f.bin", np.zeros(3), route="warp")
    assert list(tmp_path.iterdir()) == []


def test_options_of_one_thread_are_not_those_of_another():
    seen = []
    with ps.options(threads=7):
        thread = threading.Thread(target=lambda: seen.append(resolve({})))
        thread.start()
        thread.join()
    assert seen == [NULL]


def test_options_of_one_task_are_not_those_of_another():
    async def one(threads: int) -> int:
        with ps.options(threads=threads):
            await asyncio.sleep(0.01)
            return resolve({}).threads

    async def both() -> list[int]:
        return await asyncio.gather(one(3), one(5))

    assert asyncio.run(both()) == [3, 5]
