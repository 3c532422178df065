"""Writes the reference of the package from its signatures, docstrings and comments of fields.

python reference.py >../../docs/reference-python.md
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
import typing
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import fumehood
from fumehood import session
from fumehood._sync import blocking_text

HEAD = """# Python reference
[Recipes](howto/python.md) show how to use the package, and [its page](../clients/python/README.md) explains it. This
page lists everything that programs may use. `make reference-python` generates it from the source.

Methods are those of the blocking classes. [The classes for asyncio and trio](#asyncio-and-trio) have the same ones. The
fields of a value are the arguments of its constructor, in this order.
"""
# The names of each section. test_reference checks that none is missing.
SECTIONS = {
    "Client": "Client",
    "Sandboxes": "Sandbox Service Limits Mount Port Compose Provider Progress SandboxInfo ServiceInfo ConnectInfo",
    "Commands": "CommandOptions Stdin Rlimits Result Outcome Output Usage Process ProcessInfo",
    "Output while it is written": "Stream Events Event Chunk End",
    "Files": "FileInfo Walk UploadResult DownloadResult SkippedFile FolderProgress",
    "Ports": "Forward PortStream",
    "Journals": "Journal JournalEntry JournalSandbox JournalNetwork JournalPhase JournalCommand JournalEnd JournalFile "
    "JournalLost JournalService",
    "Evaluations": "Evaluation EvaluateOptions EvaluationProgress BuildStep SampleResult Score Failure StepResult",
    "Runs": "Run ResumeOptions Results RunInfo RunSummary Rate PassAt Group PhaseTimes",
    "Sessions": "Session SpawnOptions Runtime RuntimeInfo ExecuteOptions SessionResult SessionStream SessionEvent "
    "SessionChunk SessionEnd Phase Checkpoint Change Entry Asset Input WorkspaceLimits",
}
PUBLIC = {name: getattr(module, name) for module in (fumehood, session) for name in sorted(module.__all__)}
# What a type of a field is for those who read or give it.
PLAIN = {
    "Text": "str", "Seconds": "float", "Bytes": "bytes", "GivenText": "StrPath", "GivenTexts": "Sequence[StrPath]",
    "GivenSize": "Size", "GivenLimit": "Size", "GivenWhole": "Duration", "GivenSeconds": "Duration",
}  # fmt: skip


def plain(text: object) -> str:
    """Return an annotation with the types that programs see."""
    return blocking_text(re.sub(r"\w+", lambda found: PLAIN.get(found[0], found[0]), str(text or None))) or ""


def block(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])


def described(value: Any) -> str:
    """Return a docstring as Markdown."""
    parts = re.split("(`[^`]*`)", blocking_text(inspect.getdoc(value)) or "")
    parts[::2] = [re.sub(r"([*<|])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


@cache
def source(module: ModuleType) -> tuple[str, ast.Module, dict[int, str]]:
    """Return the text of a module, its tree, and its comments by line."""
    text = inspect.getsource(module)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return (
        text,
        ast.parse(text),
        {each.start[0]: f"  {each.string}" for each in tokens if each.type == tokenize.COMMENT},
    )


@cache
def aliases() -> dict[str, str]:
    """Return the assignments of all modules of the package, such as aliases of types, by name."""
    found = {}
    for module in [value for name, value in sorted(sys.modules.items()) if name.startswith("fumehood.")]:
        text, tree, comments = source(module)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
                line = plain(ast.get_source_segment(text, node.value))
                found[target.id] = f"{target.id} = {line}{comments.get(node.end_lineno or 0, '')}"
    return found


def definition(kind: type[Any]) -> ast.ClassDef:
    _, tree, _ = source(sys.modules[kind.__module__])
    return next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == kind.__name__)


def bases(kind: type[Any]) -> list[type[Any]]:
    """Return the nearest public base of a class, and the bases of that."""
    for base in definition(kind).bases if typing.is_typeddict(kind) else ():
        if isinstance(base, ast.Name) and base.id in PUBLIC:
            return [PUBLIC[base.id]]
    return next(([*each.__mro__] for each in kind.__mro__[1:] if each.__name__ in PUBLIC), [])


def variables(kind: type[Any]) -> Iterator[str]:
    """Return the fields of a class, or the attributes that it declares, with their comments."""
    text, _, comments = source(sys.modules[kind.__module__])
    for node in definition(kind).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            kind_of, value = plain(ast.get_source_segment(text, node.annotation)), ""
            if node.value:
                value = re.sub(
                    r"field\(default_factory=(\w+)\)", r"\1()", f" = {ast.get_source_segment(text, node.value)}"
                )
            yield f"{node.target.id}: {kind_of}{value}{comments.get(node.end_lineno or 0, '')}"


def members(kinds: list[type[Any]]) -> dict[str, Any]:
    """Return the public methods and properties of classes."""
    found = {name: value for kind in kinds for name, value in vars(kind).items() if not name.startswith("_")}
    calls = {name: value for name, value in found.items() if isinstance(value, (FunctionType, property))}
    return {name: value for name, value in calls.items() if name not in ("parse", "encode")}


def signature(name: str, function: Any) -> str:
    """Return a call of a function, on a line or with a line for each parameter."""
    found, parts = inspect.signature(function), list[str]()
    for each in found.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else f" = {each.default!r}".replace("'", '"')
        parts.append(f"{stars}{each.name}: {plain(each.annotation)}{default}")
    result = name if isinstance(function, type) else plain(found.return_annotation)
    line = f"{name}({', '.join(parts)}) -> {result}"
    return line if len(line) <= 100 else "\n".join([f"{name}(", *(f"    {each}," for each in parts), f") -> {result}"])


def of_class(kind: type[Any]) -> Iterator[str]:
    above = bases(kind)
    if kind is fumehood.Client:
        yield block(signature("Client", kind))
    yield described(kind)
    if above:
        yield f"It has all that [{above[0].__name__}](#{above[0].__name__.lower()}) has, and:"
    own = [each for each in kind.__mro__[::-1] if each.__module__.startswith("fumehood") and each not in above]
    if declared := [line for each in own for line in variables(each)]:
        yield block(*declared)
    found = members(own)
    for name, value in found.items():
        if isinstance(value, property) and value.fget:
            result = plain(value.fget.__annotations__["return"])
            yield f"`{kind.__name__}.{name}: {result}` (property): {described(value)}"
    for name, value in found.items():
        if not isinstance(value, property):
            yield from (
                f"#### {kind.__name__}.{name}",
                block(signature(f"{kind.__name__}.{name}", value)),
                described(value),
            )


def of_names(names: str) -> Iterator[str]:
    for name in names.split():
        yield f"### {name}"
        yield from of_class(PUBLIC[name]) if isinstance(PUBLIC[name], type) else [block(aliases()[name])]


def of_errors() -> Iterator[str]:
    yield described(fumehood.FumehoodError)
    rows = ["| error | is also | when |", "|---|---|---|"]
    for name, kind in PUBLIC.items():
        if name.endswith("Error") and kind is not fumehood.FumehoodError:
            also = ", ".join(each.__name__ for each in kind.__bases__ if each is not fumehood.FumehoodError)
            rows.append(f"| `{name}` | {also} | {described(kind)} |")
    yield "\n".join(rows)


def of_async() -> Iterator[str]:
    yield "All methods are coroutines, except these. Iterate with `async for`, and enter with `async with`."
    rows = ["| class | blocking | not coroutines |", "|---|---|---|"]
    for name, kind in PUBLIC.items():
        if name.startswith("Async"):
            found = members(
                [each for each in kind.__mro__[::-1] if each.__name__ != "Lines" and each not in bases(kind)]
            )
            known = members([*PUBLIC[plain(name)].__mro__])
            at_once = [
                f"`{each}`"
                for each in found
                if each in known
                and not inspect.iscoroutinefunction(found[each])
                and not isinstance(found[each], property)
            ]
            rows.append(f"| `{name}` | [{plain(name)}](#{plain(name).lower()}) | {', '.join(at_once)} |")
    yield "\n".join(rows)


def of_types(code: str) -> Iterator[str]:
    """Return the types in code that are not public, but are in signatures."""
    yield "The signatures use these names. The package does not export them."
    names = sorted(set(re.findall(r"\b[A-Z][a-z]\w+", code)) - PUBLIC.keys())
    yield block(*(aliases()[name] for name in names if name in aliases()))


def page() -> str:
    parts = []
    for title, names in SECTIONS.items():
        links = ", ".join(f"[{name}](#{name.lower()})" for name in names.split())
        parts += [f"## {title}", *[described(session)] * (title == "Sessions"), links, *of_names(names)]
    parts += ["## Types of arguments", *of_types("\n".join(each for each in parts if each.startswith("```")))]
    parts += ["## Errors", *of_errors(), "## asyncio and trio", *of_async()]
    return "\n\n".join([HEAD.strip(), *parts]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
