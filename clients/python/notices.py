"""Writes NOTICES.txt: the licenses of every Go module that is linked into the program, and of Go itself.

Usage: notices.py BINARY OUTPUT. It reads the modules from the binary and the texts from the module cache. It needs the
go command, and fails if a module has no license.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

_LICENSE = re.compile(r"(licen[cs]e|copying|notice|patents)([.-].*)?", re.IGNORECASE)
_SOURCE = (".go", ".py", ".sh", ".json", ".yml", ".yaml", ".html", ".tmpl")


def run(*command: str) -> str:
    """Return the output of a command."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def modules(binary: str, go: str) -> list[tuple[str, str]]:
    """Return the modules linked into a program, with their versions. A replacement stands for what it replaces."""
    found: list[tuple[str, str]] = []
    for line in run(go, "version", "-m", binary).splitlines():
        fields = line.strip().split("\t")
        if fields[0] == "dep":
            found.append((fields[1], fields[2]))
        elif fields[0] == "=>":
            found[-1] = (fields[1], fields[2])
    if not found:
        raise SystemExit(f"notices: {binary} names no modules")
    return found


def folders(wanted: list[tuple[str, str]], go: str) -> dict[tuple[str, str], Path]:
    """Return where the module cache holds each module."""
    found = {}
    text = run(go, "mod", "download", "-json", *(f"{path}@{version}" for path, version in wanted))
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        module, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found[module["Path"], module["Version"]] = Path(module["Dir"])
    return found


def texts(folder: Path) -> list[tuple[str, str]]:
    """Return the license files of a module, also those of code in its folders, with their names."""
    found = []
    for root, below, names in os.walk(folder):
        below[:] = sorted(b for b in below if not b.startswith(".") and b not in ("testdata", "node_modules"))
        for name in sorted(names):
            if _LICENSE.fullmatch(name) and not name.endswith(_SOURCE):
                path = Path(root, name)
                found.append((str(path.relative_to(folder)), path.read_text("utf-8", "replace").strip()))
    return found


def main(binary: str, output: str) -> None:
    """Write the notices."""
    go = os.environ.get("GO", "go")
    wanted = modules(binary, go)
    where = folders(wanted, go)
    holders: dict[str, list[str]] = {}
    for path, version in wanted:
        licenses = texts(where[path, version])
        if not any("/" not in name for name, _ in licenses):
            raise SystemExit(f"notices: {path} {version} has no license")
        for name, text in licenses:
            holders.setdefault(text, []).append(f"{path} {version}: {name}")
    goroot = Path(run(go, "env", "GOROOT").strip())
    holders.setdefault((goroot / "LICENSE").read_text("utf-8").strip(), []).append(
        "Go and its standard library: LICENSE"
    )
    parts = [
        "The program fumehood in this package is built from the Go modules below, which have these licenses.\n"
        "The source of each is available as the Go module of that path and version.",
        *("\n".join(names) + "\n\n" + text for text, names in holders.items()),
    ]
    Path(output).write_text(("\n\n" + "=" * 80 + "\n\n").join(parts) + "\n", "utf-8")
    print(f"notices: {len(wanted)} modules, {len(holders)} texts", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: notices.py BINARY OUTPUT")
    main(sys.argv[1], sys.argv[2])
