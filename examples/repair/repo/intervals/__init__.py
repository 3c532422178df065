"""Sets of whole numbers, as intervals (first, last) with both ends in them."""

from .sets import contains, merge, size

__all__ = ["contains", "merge", "size"]
