"""What can be done with sets of intervals."""


def merge(intervals):
    """The least number of intervals that hold the same numbers, in order."""
    merged = []
    for first, last in intervals:
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged


def size(intervals):
    """How many numbers there are."""
    return sum(last - first for first, last in merge(intervals))


def contains(intervals, number):
    """Whether a number is in any of them."""
    return any(first <= number < last for first, last in intervals)
