"""docs/reference-python.md is what reference.py writes, and lists everything that is public."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference-python.md"


class TestReference(unittest.TestCase):
    def test_up_to_date(self) -> None:
        self.assertTrue(
            reference.page() == PAGE.read_text("utf-8"), f"{PAGE.name} is outdated: run make reference-python"
        )

    def test_every_name(self) -> None:
        shown = re.findall(r"^(?:### |\| `)(\w+)", PAGE.read_text("utf-8"), re.MULTILINE)
        self.assertEqual(sorted(shown), sorted(reference.PUBLIC.keys() - {"__version__", "FumehoodError"}))

    def test_described(self) -> None:
        for name, value in reference.PUBLIC.items():
            if isinstance(value, type):
                self.assertTrue(reference.described(value), name)


if __name__ == "__main__":
    unittest.main()
