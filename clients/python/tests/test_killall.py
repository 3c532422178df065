"""Processes that commands left behind, on several providers."""

from __future__ import annotations

import unittest

import fumehood
from fumehood import Client, Limits, UnsupportedError
from tests.real import BOMB, IMAGE, WAITS, OnProvider, needs, needs_server, wait_for

LEAVE = "(setsid sh -c 'sleep 1000; true' left-behind &); sh -c 'sleep 1000; true' left-behind & kill -STOP $!"
COUNT = "grep -l 'left-[b]ehind' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"


class KillAll(OnProvider):
    def test_left_behind(self) -> None:
        for user in ("", "nobody"):
            self.assertTrue(self.sb.run(["sh", "-c", LEAVE], user=user).success)
        running = self.sb.start(["sleep", "1000"], user="nobody")
        self.assertTrue(wait_for(lambda: self.sb.run(["sh", "-c", COUNT]).stdout.text == "4\n"))
        self.sb.kill_all()
        self.assertEqual(self.sb.run(["sh", "-c", COUNT]).stdout.text, "0\n")
        result = running.wait(timeout=WAITS)
        self.assertEqual((result.outcome, result.signal, result.reason), ("signaled", 9, "killed by the caller"))
        self.sb.kill_all()  # nothing is left to kill

    def test_process_limit(self) -> None:
        with self.client.start(IMAGE, limits=Limits(pids=100)) as sb:
            bomb = sb.start(["python3", "-c", BOMB])
            errors: list[fumehood.LimitError] = []

            def limited() -> list[fumehood.LimitError]:
                try:
                    sb.run(["true"])
                except fumehood.LimitError as e:
                    errors.append(e)
                return errors

            self.assertTrue(wait_for(limited))
            self.assertRegex(errors[0].message, r"limit of 100 processes and threads is reached: its programs have \d+")
            self.assertIn("kill_all()", errors[0].hint)
            self.assertIn("kill_rest=True", errors[0].hint)
            self.assertIn("Limits(pids=...)", errors[0].hint)
            sb.kill_all()
            self.assertEqual(bomb.wait(timeout=WAITS).reason, "killed by the caller")
            self.assertTrue(sb.run(["true"]).success)


class TestDocker(KillAll):
    provider = "docker"


class TestNative(KillAll):
    provider = "native"


class TestKubernetes(KillAll):
    provider = "kubernetes"

    def test_process_limit(self) -> None:
        with self.assertRaisesRegex(UnsupportedError, "podPidsLimit"):
            self.client.start(IMAGE, limits=Limits(pids=100))


@needs_server
class TestLocal(unittest.TestCase):
    def test_unsupported(self) -> None:
        needs("local")
        with Client(provider="local") as client, client.start() as sb:
            with self.assertRaises(fumehood.UnsupportedError) as caught:
                sb.kill_all()
            self.assertIn("kill the commands", caught.exception.hint)


del KillAll  # its subclasses run it

if __name__ == "__main__":
    unittest.main()
