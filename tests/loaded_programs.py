"""Run ``tfod``, ``datum`` and scripts in forks of this process, which has imported them.

A line of standard input has the arguments of `_run`, as JSON. A line of standard output is the exit
status.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import sys
from importlib.metadata import entry_points
from types import ModuleType

import tfod.cli.check  # what most commands need
import tfod.cli.main  # noqa: F401


def _import_datumaro() -> None:
    """Run a command, which imports all formats; with pandas and Torch, that takes seconds."""
    with contextlib.suppress(ImportError, SystemExit), contextlib.redirect_stdout(io.StringIO()):
        from datumaro.cli.__main__ import main

        main(["convert", "-h"])


def _run(command: list[str], folder: str, environment: dict[str, str], output: str) -> None:
    """Run an installed program, or ``python -c SCRIPT``."""
    for descriptor, path in enumerate((os.devnull, output, output)):
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    try:
        if command[0] == "python":
            _run_script(command[2])
        else:
            (program,) = entry_points(group="console_scripts", name=command[0])
            sys.exit(program.load()())
    finally:
        sys.stdout.flush()


def _run_script(script: str) -> None:
    """Run a script as the main module, where its workers look for functions."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    sys.path.insert(0, "")
    exec(compile(script, "<string>", "exec"), module.__dict__)


def main() -> None:
    _import_datumaro()
    context = multiprocessing.get_context("fork")  # skips the slow cleanup of Torch
    for line in sys.stdin:
        process = context.Process(target=_run, args=json.loads(line))
        process.start()
        process.join()
        print(process.exitcode, flush=True)


if __name__ == "__main__":
    main()
