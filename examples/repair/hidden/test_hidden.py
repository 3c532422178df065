# The tests that a solution must pass. The authors of solutions do not see them.
import random

import pytest
from solution import contains, merge, size


def test_any_order_will_do():
    assert merge([(5, 9), (1, 3)]) == [(1, 3), (5, 9)]


def test_neighbors_become_one():
    assert merge([(1, 3), (4, 6)]) == [(1, 6)]


def test_one_within_another_does_not_end_it():
    assert merge([(1, 10), (2, 3)]) == [(1, 10)]


def test_nothing_is_nothing():
    assert merge([]) == []
    assert size([]) == 0
    assert contains([], 1) is False


def test_both_ends_count():
    assert size([(7, 7)]) == 1
    assert contains([(1, 3)], 1) and contains([(1, 3)], 3) and not contains([(1, 3)], 4)


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_sets_of_numbers(seed):
    r = random.Random(seed)
    intervals = [(first, first + r.randint(0, 5)) for first in (r.randint(0, 60) for _ in range(8))]
    numbers = {n for first, last in intervals for n in range(first, last + 1)}
    merged = merge(intervals)
    assert {n for first, last in merged for n in range(first, last + 1)} == numbers
    assert all(last + 1 < first for (_, last), (first, _) in zip(merged, merged[1:]))
    assert size(intervals) == len(numbers)
