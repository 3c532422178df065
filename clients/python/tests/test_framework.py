"""Errors for a framework that is missing, and paths that lead out of a folder."""

import re
import tempfile
import unittest
from importlib import metadata
from pathlib import Path
from unittest import mock

from fumehood._framework import importing, outside
from tests.adapters.ends import documented

PYTHON = Path(__file__).parents[1]
REPOSITORY = PYTHON.parents[1]


def adapters() -> set[str]:
    """Return the modules and packages of this package that import a framework."""
    found = set()
    for path in (PYTHON / "src" / "fumehood").glob("[a-z]*"):
        files = path.glob("*.py") if path.is_dir() else [path]
        found |= {path.stem for file in files if "importing(" in file.read_text("utf-8")}
    return found


class TestAdapters(unittest.TestCase):
    def test_documented(self) -> None:
        """All adapters have rows in the tables of the docs, a how-to, an extra, and tests."""
        names = adapters()
        self.assertGreaterEqual(len(names), 8)
        for name in names:
            with self.subTest(name):
                documented(name)
                self.assertTrue((REPOSITORY / "docs" / "howto" / f"{name}.md").exists())
                tests = next((PYTHON / "tests").glob(f"**/test_{name}.py")).read_text("utf-8")
                self.assertRegex(tests, r"\bENDS\b")
                self.assertRegex(tests, r"\bREAL\b")
        for page, rows in [
            (REPOSITORY / "docs" / "frameworks.md", r"^\| `(\w+)` \|.*\| killed \|$"),
            (PYTHON / "README.md", r"^\| `fumehood\.(\w+)` \|"),
        ]:
            self.assertEqual(set(re.findall(rows, page.read_text("utf-8"), re.MULTILINE)), names, page.name)
        project = (PYTHON / "pyproject.toml").read_text("utf-8").partition("[project.optional-dependencies]")[2]
        extras = re.findall(r"^([\w-]+) = \[", project.partition("\n[")[0], re.MULTILINE)
        self.assertEqual({each.replace("-", "_") for each in extras} - {"trio"}, names - {"slopcodebench"})


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


class TestOutside(unittest.TestCase):
    def test_links(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            top = Path(name).resolve()
            for each in ("task/sub", "task-2", "other"):
                (top / each).mkdir(parents=True)
            (top / "other" / "file").touch()
            (top / "task" / "link").symlink_to(top / "other")
            (top / "task" / "up").symlink_to("..")
            (top / "task" / "inner").symlink_to("sub")
            (top / "alias").symlink_to("task")
            for path, leads in {
                "task": None, "task/sub/file": None, "task/inner": None, "alias/sub": None, "task/../task/sub": None,
                "task/link": "other", "task/link/file": "other/file", "task/up/other": "other", "task-2": "task-2",
                "task/sub/../../other": "other", "alias/link": "other",
            }.items():  # fmt: skip
                with self.subTest(path):
                    self.assertEqual(outside(top / path, [top / "task"]), leads and top / leads)
                    self.assertEqual(outside(top / path, [top / "alias"]), leads and top / leads)
            self.assertIsNone(outside(top / "task" / "link", [top / "task", top / "other"]))


if __name__ == "__main__":
    unittest.main()
