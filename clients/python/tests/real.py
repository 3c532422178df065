"""The real program, for tests that need a server."""

from __future__ import annotations

import os
import unittest

IMAGE = "fumehood-test/python"
BINARY = os.environ.get("FUMEHOOD_BINARY", "")

needs_server = unittest.skipUnless(BINARY, "FUMEHOOD_BINARY names no program: run make test-client")
