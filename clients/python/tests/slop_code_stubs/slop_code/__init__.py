"""A stand-in for SlopCodeBench, which no package index has: the names and signatures that fumehood.slopcodebench uses.

It follows SprocketLab/slop-code-bench at feeab5ab6a11 (version 0.1.0). Only tests import it. Its models are
dataclasses, so that the tests need no pydantic.
"""
