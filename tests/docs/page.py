"""A page of docs/recipes as something that can be typed: its commands and what they are to print.

A ``console`` block holds commands, which begin with ``$ `` and go on behind a backslash, each
followed by what it prints, standard output and error together; ``...`` stands for anything, on a
line of its own for any lines. Without output a command has only to succeed. A ``python`` block is
a script.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.commands import TIMEOUT, run_program

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT, _CONTINUED = "$ ", "\\"
_PROGRAMS = ("tfod ", "datum ")
_OF_A_SHELL = re.compile(r"[|&;<>$`*?~#{}\[\]()]|\n.")


@dataclass(frozen=True)
class Step:
    """Something to type.

    Attributes:
        line: of the page, from 1.
        command: for bash, or a script for Python.
        script: whether it is a script.
        output: what it is to print; empty where that does not matter.
    """

    line: int
    command: str
    script: bool = False
    output: str = ""


def steps_of(text: str) -> Iterator[Step]:
    """What a page says to type, in order."""
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        if block[1] == "console":
            yield from _commands(block[2], line)
        elif block[1] == "python":
            yield Step(line, block[2], script=True)


def _commands(block: str, line: int) -> Iterator[Step]:
    command, output, at, continued = "", "", line, False
    for number, text in enumerate(block.splitlines(), line):
        if continued or text.startswith(_PROMPT):
            if not continued:
                if command:
                    yield Step(at, command, output=output)
                command, output, at = "", "", number
            command += text.removeprefix("> " if continued else _PROMPT) + "\n"
            continued = text.endswith(_CONTINUED)
        elif command:
            output += text + "\n"
        else:
            raise ValueError(f"line {number}: output without a command: {text!r}")
    if command:
        yield Step(at, command, output=output)


def run(step: Step, folder: Path, environment: Mapping[str, str]) -> str | None:
    """Type a step; return what is wrong with what came, or None."""
    if step.script:
        return _difference(step, *run_program(["python", "-c", step.command], folder, environment))
    command = step.command.replace("\\\n", " ")
    if command.startswith(_PROGRAMS) and not _OF_A_SHELL.search(command):
        code, printed = run_program(shlex.split(command), folder, environment)
        return _difference(step, code, printed)
    return run_alone(step, folder, environment)


def run_alone(step: Step, folder: Path, environment: Mapping[str, str]) -> str | None:
    """Run a step with the programs on the path of this environment, which may have another tfod."""
    program = ["python", "-c"] if step.script else ["bash", "-e", "-o", "pipefail", "-c"]
    done = subprocess.run(
        [*program, step.command],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return _difference(step, done.returncode, done.stdout)


def environment(desk: Path) -> dict[str, str]:
    """What a user has whose home is within a folder, with the commands on the path."""
    home = desk / ".home"
    home.mkdir(exist_ok=True)
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "COLUMNS": "100",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Threads that wait for each other take longer than the small networks of the pages.
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
    }


def _difference(step: Step, code: int, printed: str) -> str | None:
    if code:
        return f"exit status {code}:\n{printed}"
    if step.output and not _is_as_said(step.output, printed):
        return f"prints:\n{printed}\nwhere the page has:\n{step.output}"
    return None


def _is_as_said(wanted: str, got: str) -> bool:
    checker = doctest.OutputChecker()
    got = "".join(line.rstrip() + "\n" for line in got.splitlines())
    return checker.check_output(wanted, got, doctest.ELLIPSIS)
