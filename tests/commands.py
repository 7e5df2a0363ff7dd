"""Running commands as users type them, and waiting for conditions."""

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
from typing import Any, NamedTuple, TypeVar

import pytest

TIMEOUT = 240
"""Seconds until waiting is a failure; on a busy machine, everything is slow."""
_Value = TypeVar("_Value")


class Result(NamedTuple):
    """The exit status and the output of a command."""

    code: int
    out: str
    err: str

    def succeeded(self) -> str:
        """Assert that the command succeeded, and return its standard error."""
        assert self.code == 0, self.err
        return self.err

    def refused(self) -> str:
        """Assert that the command refused its arguments, and return its only line."""
        assert self.code == 2 and self.err.count("\n") == 1, self
        return self.err


Run = Callable[..., Result]
"""The fixture ``run``."""


def wait_until(condition: Callable[[], _Value], lines: Sequence[str] = ()) -> _Value:
    """Wait until a condition is true and return it, or fail with these lines."""
    end = time.monotonic() + TIMEOUT
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain: {lines[-20:]}"
        time.sleep(0.02)
    return value


def run_program(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int, str]:
    """Run ``tfod …``, ``datum …`` or ``python -c …`` in a new process; return status and output."""
    programs = _loaded_programs()
    assert programs.stdin is not None and programs.stdout is not None
    with tempfile.NamedTemporaryFile() as output:
        request = json.dumps([list(command), str(folder), dict(environment), output.name])
        programs.stdin.write(request + "\n")
        programs.stdin.flush()
        status = programs.stdout.readline()
        assert status, f"{command}: tests/loaded_programs.py has ended"
        return int(status), Path(output.name).read_text(errors="replace")


@cache
def _loaded_programs() -> subprocess.Popen[str]:
    """Start the process, which ends with this one, since that closes its standard input."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.loaded_programs"],
        cwd=Path(__file__).parents[1],
        # Torch reads the variable when it is imported.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_python(*arguments: object, **options: Any) -> Result:
    """Run Python in a new process, with the options of `run_command`."""
    return run_command(sys.executable, *arguments, **options)


def run_command(
    *command: object,
    folder: Path | None = None,
    largest_file: int | None = None,
    **environment: str,
) -> Result:
    """Run a program in a new process, with changes of its environment.

    Writing more than ``largest_file`` bytes to a file fails, as on a full disk.
    """
    if sys.platform == "emscripten":
        pytest.skip("a browser has no processes")

    def limit() -> None:
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    done = subprocess.run(
        list(map(str, command)),
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
    """Return the id of the process that started another one, or 0 if that has ended."""
    with contextlib.suppress(OSError):
        # After the name, which may contain any character: state, parent.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def free_port() -> int:
    """Return a port on which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def require(name: str, is_installed: bool) -> None:
    """Skip the test if something is not installed; fail in CI, which installs all of it."""
    if not is_installed:
        assert not os.environ.get("TFOD_REQUIRE"), f"{name} is not installed"
        pytest.skip(f"{name} is not installed")


def schema_errors(schema: str, path: Path) -> str:
    """Return the errors of a file by a schema of check-jsonschema, or by pre-commit."""
    pytest.importorskip("check_jsonschema")
    command = ["check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    if schema.startswith("validate-"):
        command = ["pre_commit", schema]
    elif schema == "gitlab-ci":
        command += ["--data-transform", "gitlab-ci"]
    done = run_python("-m", *command, path)
    return done.out + done.err if done.code else ""
