from intervals import contains, merge, size


def test_intervals_that_overlap_become_one():
    assert merge([(1, 4), (3, 6)]) == [(1, 6)]


def test_intervals_may_come_in_any_order():
    assert merge([(5, 9), (1, 3)]) == [(1, 3), (5, 9)]


def test_both_ends_count():
    assert size([(1, 3)]) == 3
    assert contains([(1, 3)], 3)
