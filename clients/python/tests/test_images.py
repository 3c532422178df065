"""Images that are built, on Docker and on the native provider."""

from __future__ import annotations

import json
import subprocess
import unittest
from pathlib import Path
from typing import Any

import fumehood
from fumehood import Client
from fumehood._images import build_of
from tests.real import IMAGE, OnProvider


class Builds(OnProvider):
    def test_build(self) -> None:
        folder = self.temporary()
        (folder / "own").write_text(f"of the context of {folder}")  # so that no image has this content
        (folder / "left-out").write_text("not needed")
        (folder / ".dockerignore").write_text("left-out\nother\n")
        text = f"FROM {IMAGE}\nENV A='$B' B=1\nCOPY . /built/\nRUN ls /built >/list && echo ${{B}}x >>/list\n"
        (folder / "Dockerfile").write_text(text)
        (folder / "other").write_text(text)
        steps: list[fumehood.Progress] = []
        with Client(provider=self.provider, allow_egress=True, allow_host_paths=[folder]) as client:
            images = set[str]()
            remove = ["docker", "image", "rm", "-f"]
            self.addCleanup(lambda: subprocess.run([*remove, *images], capture_output=True, check=False))
            image = client.build(context=folder, progress=steps.append)
            images.add(image)
            self.assertTrue(any(step.build for step in steps))
            self.assertEqual(client.build(folder / "Dockerfile"), image)
            with client.start(image) as sb:
                self.assertEqual(sb.read_text("/list").split(), ["Dockerfile", "own", "1x"])
                self.assertEqual(sb.run(["printenv", "A"]).stdout.text, "$B\n")
            for image in (client.build(text, context=folder), client.build(folder / "other", context=str(folder))):
                images.add(image)
                with client.start(image) as sb:
                    self.assertIn("own", sb.read_text("/list").split())
            image = client.build(f"FROM {IMAGE}\nRUN echo alone >/alone")
            images.add(image)
            with client.start(image) as sb:
                self.assertEqual(sb.read_text("/alone"), "alone\n")
            with self.assertRaises(fumehood.ConfigError) as failed:
                client.build(f"FROM {IMAGE}\nRUN echo why it fails; exit 3")
            self.assertIn("why it fails", str(failed.exception))
            with self.assertRaises(fumehood.PermissionDeniedError) as refused:
                client.build(f"FROM {IMAGE}", context="/")
            self.assertIn("Client(allow_host_paths=[...])", refused.exception.hint)

    def test_not_allowed(self) -> None:
        with self.assertRaises(fumehood.PermissionDeniedError) as refused:
            self.client.build(f"FROM {IMAGE}")
        self.assertIn("Client(allow_egress=True)", refused.exception.hint)


class TestDocker(Builds):
    provider = "docker"


class TestNative(Builds):
    provider = "native"


class TestArguments(unittest.TestCase):
    def test_wrong(self) -> None:
        wrong: list[tuple[Any, Any]] = [(None, None), ("", None), (" \n", "."), ("\ud800", None)]
        for dockerfile, context in wrong:
            with self.subTest(dockerfile=dockerfile), self.assertRaises(fumehood.ConfigError):
                build_of(dockerfile, context)
        types: list[tuple[Any, Any, str]] = [(5, None, "dockerfile"), (None, 5, "context")]
        for dockerfile, context, name in types:
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"^{name}: "):
                build_of(dockerfile, context)
        self.assertEqual(build_of(None, "/a").dockerfile, str(Path("/a/Dockerfile")))
        self.assertEqual(build_of(Path("/a/b"), None).dir, "/a")
        project = json.loads(build_of("FROM x\nRUN $(a)", None).content)
        inline = project["services"]["default"]["build"]["dockerfile_inline"]
        self.assertEqual(inline, "FROM x\nRUN $$(a)")  # Compose replaces variables


del Builds  # its subclasses run it

if __name__ == "__main__":
    unittest.main()
