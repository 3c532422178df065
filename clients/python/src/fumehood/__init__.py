"""Run untrusted code in disposable sandboxes, and learn exactly how each command ended.

    from fumehood import Client

    with Client() as c:
        with c.start(image="python:3.12-slim") as sb:
            r = sb.run(["python3", "-c", "print(6*7)"])
            print(r.outcome, r.exit_code, r.stdout.text)

AsyncClient has the same methods for asyncio and, with the package anyio, for trio. A program's end is a value, see
Result. Failures of Fumehood are exceptions, see FumehoodError.
"""

from ._version import __version__ as __version__
