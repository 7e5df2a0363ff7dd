"""The commands of a page, and their expected output.

A ``console`` block has commands, which begin with ``$ `` and continue after a backslash, each with
its standard output and error; ``...`` matches any text, and on a separate line any lines. A command
without output only has to succeed. A ``python`` block is a script.
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
_PROGRAMS = ("tfod ", "datum ")
_OF_A_SHELL = re.compile(r"[|&;<>$`*?~#{}\[\]()]|\n.")


@dataclass(frozen=True)
class Step:
    """A command for bash, or a script for Python, in a line of the page; no output fits any."""

    line: int
    command: str
    script: bool = False
    output: str = ""


def steps_of(text: str) -> Iterator[Step]:
    """Yield the commands and scripts of a page."""
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        if block[1] == "console":
            yield from _commands(block[2], line)
        elif block[1] == "python":
            yield Step(line, block[2], script=True)


def _commands(block: str, line: int) -> Iterator[Step]:
    before, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    if before:
        raise ValueError(f"line {line}: output without a command: {before!r}")
    for part in parts:
        lines = part.splitlines(keepends=True)
        end = next(n for n, text in enumerate(lines, 1) if not text.endswith("\\\n"))
        command = "".join(text.removeprefix("> ") for text in lines[:end])
        yield Step(line, command, output="".join(lines[end:]))
        line += len(lines)


def run(step: Step, folder: Path, environment: Mapping[str, str]) -> str | None:
    """Run a step, and return its difference from the page, or None."""
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
    """Return the environment of a user whose home is in a folder, with the commands on the path."""
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
    got = "".join(line.rstrip() + "\n" for line in printed.splitlines())
    if doctest.OutputChecker().check_output(step.output or "...", got, doctest.ELLIPSIS):
        return None
    return f"prints:\n{printed}\nbut the page has:\n{step.output}"
