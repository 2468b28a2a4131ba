"""`make test` leaves out combinations of parameters, and no value."""

from __future__ import annotations

from collections import Counter
from itertools import product

from tests.combinations import choose

VALUES = {"memory": "host gpu", "version": "1.14.4 2.2.0", "program": "a b c d e f g"}
CASES = [
    [*zip(VALUES, combination, strict=True)]
    for combination in product(*(values.split() for values in VALUES.values()))
]


def test_each_value_is_in_a_case():
    chosen = {value for place in choose(CASES) for value in CASES[place]}
    assert chosen == {value for case in CASES for value in case}


def test_there_are_as_many_cases_as_values_of_the_longest_parameter():
    assert len(choose(CASES)) == 7


def test_values_of_few_take_turns():
    counts = Counter(value for place in choose(CASES) for value in CASES[place])
    assert {counts["memory", "host"], counts["memory", "gpu"]} == {3, 4}
    assert {counts["version", "1.14.4"], counts["version", "2.2.0"]} == {3, 4}


def test_combinations_that_are_not_there_are_not_needed():
    pairs = [[("a", "1"), ("b", "1")], [("a", "2"), ("b", "2")], [("a", "1"), ("b", "2")]]
    assert choose(pairs) == {0, 1}
