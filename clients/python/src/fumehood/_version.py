"""The version of this package, and of the server's API that it speaks."""

__version__ = "0.1.0.dev0"

API = 1
