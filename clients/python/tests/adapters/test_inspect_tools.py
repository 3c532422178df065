"""The tools of inspect_ai in sandboxes of Fumehood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalLog
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, bash_session, grep, list_files, python, read_file, text_editor

from fumehood.inspect import FumehoodConfig
from tests.adapters.evals import COMPOSE, PLAIN, call, containers, evaluate, text
from tests.real import IMAGE


def results(log: EvalLog) -> list[str]:
    """Return what the tools returned in the only sample."""
    assert log.status == "success", log.error
    assert log.samples
    return [m.text for m in log.samples[0].messages if m.role == "tool"]


def test_eval_tools(tmp_path: Path) -> None:
    """The tools run in a sandbox of two services with metadata, files and a set-up, and leave nothing."""
    code = "import urllib.request as u; print(u.urlopen('http://store:8000/hostname').status)"
    outputs = [
        call("bash", command="cat given.txt set-up.txt; echo $SAMPLE; id -un"),
        call("python", code=code),
        call("text_editor", command="create", path="/tmp/answer", file_text="fourty"),
        call("text_editor", command="str_replace", path="/tmp/answer", old_str="fourty", new_str="forty-two"),
        text("done"),
    ]
    log = evaluate(
        tmp_path,
        ("fumehood", COMPOSE),
        [use_tools(bash(timeout=30), python(timeout=30), text_editor()), generate()],
        outputs,
        id="s1",
        target="forty-two",
        files={"given.txt": "a file", "store:/tmp/other.txt": "for the other service"},
        setup="echo ' and a set-up' > set-up.txt",
        metadata={"image": IMAGE},
    )
    found = results(log)
    assert found[:2] == ["a file and a set-up\ns1\nnobody\n", "200\n"]
    assert log.samples and log.samples[0].scores
    assert log.samples[0].scores["finds"].value == 1, found
    assert not containers()


def test_eval_files_tools(tmp_path: Path) -> None:
    """The tools that search and read files find what a sample has."""
    outputs = [
        call("grep", pattern="def .*two", path="code", glob="*.py"),
        call("grep", pattern="three", path="code", output_mode="count"),
        call("read_file", file_path="code/a.py", offset=1, limit=1),
        call("read_file", file_path="code/none.py"),
        call("list_files", path="code", depth=1),
        text("done"),
    ]
    files = {"code/a.py": "one = 1\ndef two(): ...\n", "code/sub/b.txt": "def two\n"}
    steps = [use_tools(grep(timeout=30), read_file(timeout=30), list_files(timeout=30)), generate()]
    config = FumehoodConfig(image=IMAGE, cwd="/tmp")
    assert results(evaluate(tmp_path, config, steps, outputs, files=files)) == [
        "code/a.py:2:def two(): ...",
        "No matches found.",
        "2\tdef two(): ...",
        "",
        "code/a.py\ncode/sub",
    ]


@pytest.mark.parametrize("config", [PLAIN, FumehoodConfig(image=IMAGE, user="nobody", cwd="/tmp")])
def test_eval_bash_session(tmp_path: Path, config: FumehoodConfig) -> None:
    """A bash session keeps its state, is interrupted, and runs as the sandbox's user."""
    steps = [
        ("type_submit", "cd /tmp && kept=$((6*7)); true"),
        ("type_submit", "id -un; echo $PWD $kept"),
        ("type_submit", "echo started; sleep 300"),
        ("interrupt", None),
        ("type_submit", "echo ended $?"),
        ("restart", None),
        ("type_submit", "echo again $((6*7)) $kept"),
    ]
    outputs: list[Any] = [call("bash_session", action=a, **({"input": i} if i else {})) for a, i in steps]
    log = evaluate(tmp_path, config, [use_tools(bash_session(wait_for_output=5)), generate()], [*outputs, text("done")])
    found = "".join(results(log))  # what a shell prints may arrive with its next call
    for part in (f"{config.user or 'root'}\n/tmp 42\n", "started\n", "ended 130\n", "again 42\n"):
        assert part in found, found
    assert not containers()
