"""Errors for a framework that is missing."""

import unittest
from importlib import metadata
from unittest import mock

from fumehood._framework import importing


class TestImporting(unittest.TestCase):
    def message(self, requires: object) -> str:
        with (
            mock.patch.object(metadata, "requires", side_effect=[requires]),
            self.assertRaises(ImportError) as raised,
            importing("some_agents", "no-such-agents"),
        ):
            raise ModuleNotFoundError("no module")
        return str(raised.exception)

    def test_missing(self) -> None:
        text = "fumehood.some_agents: no-such-agents is not installed: pip install "
        named = ["trio>=1; extra == 'trio'", "no-such-agents<2,>=1; extra == 'some-agents'"]
        self.assertEqual(self.message(named), text + "'no-such-agents<2,>=1'")
        self.assertEqual(self.message(None), text + "'no-such-agents'")
        self.assertEqual(self.message(metadata.PackageNotFoundError()), text + "'no-such-agents'")


if __name__ == "__main__":
    unittest.main()
