# Runs the hidden tests on the solution in the given folder, and prints a score for each test.
import json
import os
import sys

import pytest


class Scores:
    def __init__(self):
        self.of = {}

    def pytest_runtest_logreport(self, report):
        name = report.location[2]
        if report.failed:
            self.of[name] = 0
        elif report.when == "call" and report.passed:
            self.of.setdefault(name, 1)


here = os.path.dirname(os.path.abspath(__file__))
os.environ["SOLUTION"] = sys.argv[1]
answer, sys.stdout = sys.stdout, sys.stderr
scores = Scores()
# Use no configuration and no conftest.py from anywhere.
options = ["-q", "-c", os.devnull, "--rootdir", here, "--noconftest", "-p", "no:cacheprovider", "--tb=line"]
pytest.main([*options, here], plugins=[scores])
reasons = [f"{name} fails" for name, score in scores.of.items() if not score]
json.dump({"scores": scores.of, "reasons": reasons}, answer)
