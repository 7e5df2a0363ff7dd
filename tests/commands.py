"""Commands as users type them, and waiting for what they do."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

TIMEOUT = 900
"""Seconds until what does not happen is a failure; on a busy machine everything takes its time."""
_Found = TypeVar("_Found")
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["tests.loaded_programs", "tests.commands"])


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]
"""The fixture ``run``."""


def wait_until(condition: Callable[[], _Found]) -> _Found:
    """Wait for something to become true, and give it; fails when it does not."""
    end = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def run_program(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int, str]:
    """Run ``tfod …`` or ``datum …`` in a process of its own: exit status, and what it printed."""
    with tempfile.NamedTemporaryFile() as output:
        arguments = (list(command), folder, dict(environment), output.name)
        process = _FORKED.Process(target=_run_here, args=arguments)
        process.start()
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
            raise AssertionError(f"{command} has not ended: {Path(output.name).read_text()}")
        assert process.exitcode is not None
        return process.exitcode, Path(output.name).read_text(errors="replace")


def _run_here(command: list[str], folder: Path, environment: dict[str, str], output: str) -> None:
    """What the installed script does."""
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
    (program,) = entry_points(group="console_scripts", name=command[0])
    try:
        sys.exit(program.load()())
    finally:
        sys.stdout.flush()


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def require(what: str, is_there: bool) -> None:
    """Skip where something is not installed; fail where it has to be (in CI)."""
    if not is_there:
        assert not os.environ.get("TFOD_REQUIRE"), f"{what} is not installed"
        pytest.skip(f"{what} is not installed")
