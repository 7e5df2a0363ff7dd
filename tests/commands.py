"""Commands as users type them, and waiting for what they do."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

TIMEOUT = 240
"""Seconds until what does not happen is a failure; on a busy machine everything takes its time."""
_Found = TypeVar("_Found")


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def succeeded(self) -> str:
        """What it said on standard error; it must have gone well."""
        assert self.code == 0, self.err
        return self.err

    def refused(self) -> str:
        """The one line that it said before it began."""
        assert self.code == 2 and self.err.count("\n") == 1, self
        return self.err


Run = Callable[..., Result]
"""The fixture ``run``."""


def wait_until(condition: Callable[[], _Found], lines: Sequence[str] = ()) -> _Found:
    """Wait for something to become true, and give it; where it does not, fail with these lines."""
    end = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < end, f"it did not happen {lines[-20:]}"
        time.sleep(0.02)
    return found


def run_program(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int, str]:
    """Run ``tfod …``, ``datum …`` or ``python -c …`` in a process of its own: status and output."""
    programs = _loaded_programs()
    assert programs.stdin is not None and programs.stdout is not None
    with tempfile.NamedTemporaryFile() as output:
        asked = json.dumps([list(command), str(folder), dict(environment), output.name])
        programs.stdin.write(asked + "\n")
        programs.stdin.flush()
        status = programs.stdout.readline()
        assert status, f"{command}: tests/loaded_programs.py has ended"
        return int(status), Path(output.name).read_text(errors="replace")


@cache
def _loaded_programs() -> subprocess.Popen[str]:
    """Ends with this process, which holds its standard input."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.loaded_programs"],
        cwd=Path(__file__).parents[1],
        # Torch asks when it is loaded.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_python(
    *arguments: object,
    folder: Path | None = None,
    largest_file: int | None = None,
    **environment: str,
) -> Result:
    """Run Python with these arguments in a process of its own.

    Where a file grows beyond ``largest_file`` bytes, writing to it fails as on a full disk.
    """

    def limit() -> None:
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, **environment},
        preexec_fn=None if largest_file is None else limit,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def parent_of(pid: int) -> int:
    """The process that started this one; 0 when it is gone."""
    with contextlib.suppress(OSError):
        # Behind the name, which may hold anything: state, parent.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


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
