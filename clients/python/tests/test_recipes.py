"""The programs of docs/howto/python.md run as they are, on the test image, and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import fumehood
from tests.real import IMAGE, needs, needs_server

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "python.md"
RECIPE = re.compile(r"^## (.+?)\n.*?^```python\n(.*?)^```\n```output\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BUILDS = "Use an image of your own"


@needs_server
class TestRecipes(unittest.TestCase):
    def test_docker(self) -> None:
        self.check("docker")

    def test_native(self) -> None:
        needs("native")
        self.check("native", without=BUILDS)  # that needs BuildKit, which may not be installed

    def check(self, provider: str, without: str = "") -> None:
        text = PAGE.read_text("utf-8")
        recipes = RECIPE.findall(text)
        self.assertEqual(len(recipes), 10)
        self.assertEqual(len(recipes), text.count("\n## "))
        for title, code, want in recipes:
            if title == without:
                continue
            program = code.replace("Client(", f'Client(provider="{provider}", ').replace("python:3.12-slim", IMAGE)
            self.assertNotIn("Client()", program)
            program = program.replace("recipe-notes", f"recipe-{os.getpid()}")
            with self.subTest(title), tempfile.TemporaryDirectory() as folder:
                ended = subprocess.run(
                    [sys.executable, "-W", "error", "-c", program],
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": str(Path(fumehood.__file__).parents[1])},
                    capture_output=True,
                    text=True,
                    timeout=300,
                )
                self.assertNotRegex(ended.stderr, "Traceback|Warning")
                self.assertEqual(ended.returncode, 0)
                self.assertEqual(ended.stdout, want)


if __name__ == "__main__":
    unittest.main()
