"""The examples of the README run as they are, on the test image."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import unittest
from pathlib import Path

from tests.real import IMAGE, needs_server

README = Path(__file__).parent.parent / "README.md"


@needs_server
class TestReadme(unittest.TestCase):
    def test_examples(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        wants = [
            "exited 0 42",
            "timed-out",
            "stdout one",
            "signaled killed by the caller",
            "/tmp/example/missing",
            "42\n pipe",
            "a page of the sandbox",
            "ready",
            "built",
            "finished 0.5\n[('right', 2), ('wrong', 0)]",
            "exited ['python3', '-c', 'print(6*7)']",
            "changed main.py",
            "['0', '1', '2'",
            "timeout: 'soon' is not a duration",
            "allow_egress=True))\nwith a network",
        ]
        self.assertEqual(len(blocks), len(wants))
        before = Path.cwd()
        for block, want in zip(blocks, wants, strict=True):
            code = block.replace("python:3.12-slim", IMAGE)
            self.assertNotEqual(code, block)
            printed = io.StringIO()
            with self.subTest(want), tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
                os.chdir(folder)
                try:
                    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
                finally:
                    os.chdir(before)
            self.assertIn(want, printed.getvalue())


if __name__ == "__main__":
    unittest.main()
