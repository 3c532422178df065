"""Globs of paths, as those of an environment spec.

`*` and `?` match all characters or one of a name, `[a-z]` one of some and `[^a-z]` one of all others, `{a,b}` either
part, and `**` as a whole name any number of folders. A backslash takes the next character as it is. A glob is relative
to the folder, and a folder that matches includes everything in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ._errors import ConfigError

MAX_ALTERNATIVES = 1000  # globs that the braces of one stand for

_Glob = list["re.Pattern[str] | None"]  # of the names; None stands for **


class Globs:
    """Globs, of which one matches or none does. They take time in proportion to the length of a path."""

    def __init__(self, globs: Sequence[str]) -> None:
        if isinstance(globs, (str, bytes)):
            raise ConfigError("exclude: a text in the place of a list", hint='write exclude=["build", "**/*.pyc"]')
        self._globs = [_compile(glob, each) for glob in globs for each in _alternatives(glob)]

    def match(self, names: Sequence[str]) -> bool:
        """Report whether a path or a folder above it matches."""
        return any(_match(glob, names) for glob in self._globs)


def _match(glob: _Glob, names: Sequence[str]) -> bool:
    states = _closed(glob, {0})  # how many parts of the glob have matched
    for name in names:
        following = set()
        for state in states - {len(glob)}:  # which all of ** has before the first name
            part = glob[state]
            if part is None:
                following.add(state)
            elif part.fullmatch(name):
                following.add(state + 1)
        states = _closed(glob, following)
        if len(glob) in states:
            return True
    return False


def _closed(glob: _Glob, states: set[int]) -> set[int]:
    """Add what follows a **, which may match no folder."""
    for state in range(len(glob)):
        if state in states and glob[state] is None:
            states.add(state + 1)
    return states


def _compile(glob: str, text: str) -> _Glob:
    parts = text.split("/")
    if any(part in ("", ".", "..") for part in parts):
        hint = "write a relative path without . or .. and without a slash at its end, such as build or **/*.pyc"
        raise ConfigError(f"exclude: the glob {glob!r} matches nothing", hint=hint)
    return [None if part == "**" else _name(glob, part) for part in parts]


def _name(glob: str, text: str) -> re.Pattern[str]:
    """Return the expression of a name. Like fnmatch.translate, it never tries a star that is not the last again."""
    segments, at = [""], 0
    while at < len(text):
        char, at = text[at], at + 1
        if char == "*":
            segments.append("")
        elif char == "?":
            segments[-1] += "."
        elif char == "[":
            found, at = _class(glob, text, at)
            segments[-1] += found
        elif char == "\\":
            if at == len(text):
                raise _invalid(glob)
            segments[-1] += re.escape(text[at])
            at += 1
        else:
            segments[-1] += re.escape(char)
    first, *rest = segments
    if rest:
        *middle, last = rest
        first += "".join(f"(?=(?P<g{n}>.*?{each}))(?P=g{n})" for n, each in enumerate(middle)) + ".*" + last
    return re.compile(first, re.DOTALL)


def _class(glob: str, text: str, at: int) -> tuple[str, int]:
    """Return the expression of the characters in brackets, which begin at a position, and where they end."""
    negated = text[at : at + 1] in ("^", "!")
    at += negated
    chars: list[str] = []  # escaped, or "-" for a range
    while at < len(text) and (text[at] != "]" or not chars):
        char, at = text[at], at + 1
        if char == "\\":
            char, at = text[at : at + 1], at + 1
        elif char == "-" and chars and text[at : at + 1] not in ("", "]"):
            chars.append("-")
            continue
        chars.append(re.escape(char))
    try:
        expression = f"[{'^' if negated else ''}{''.join(chars)}]"
        re.compile(expression)
    except re.error:
        raise _invalid(glob) from None
    if at >= len(text):
        raise _invalid(glob)
    return expression, at + 1


def _alternatives(glob: str) -> list[str]:
    """Return the globs without braces that a glob stands for."""
    done: list[str] = []
    todo = [glob]
    while todo:
        text = todo.pop()
        opened, commas, closed = _braces(glob, text)
        if opened < 0:
            done.append(text)
        else:
            ends = [*commas, closed]
            parts = [text[a + 1 : b] for a, b in zip([opened, *commas], ends, strict=True)]
            todo += [text[:opened] + part + text[closed + 1 :] for part in parts]
        if len(done) + len(todo) > MAX_ALTERNATIVES:
            raise ConfigError(f"exclude: the glob {glob!r} stands for more than {MAX_ALTERNATIVES} globs")
    return done


def _braces(glob: str, text: str) -> tuple[int, list[int], int]:
    """Return where the first braces open, the positions of their commas, and where they close; -1 without any."""
    opened, commas, depth, at = -1, list[int](), 0, 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "[":
            at = _class(glob, text, at + 1)[1] - 1
        elif char == "{":
            opened, depth = (at if depth == 0 else opened), depth + 1
        elif char == "," and depth == 1:
            commas.append(at)
        elif char == "}":
            depth -= 1
            if depth < 0:
                raise _invalid(glob)
            if depth == 0:
                return opened, commas, at
        at += 1
    if depth:
        raise _invalid(glob)
    return -1, [], -1


def _invalid(glob: str) -> ConfigError:
    return ConfigError(f"exclude: invalid glob {glob!r}", hint="a backslash takes the next character as it is")
