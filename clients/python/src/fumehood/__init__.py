"""Run untrusted code in disposable sandboxes."""

from ._version import __version__ as __version__
