"""Beam's own job server with its pool of workers, as processes on loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.commands import free_port, parent_of, wait_until

_REPOSITORY = Path(__file__).parents[2]


@contextlib.contextmanager
def portable_cluster(folder: Path) -> Iterator[list[str]]:
    """A job server and a pool of worker processes; gives the options that lead there."""
    pool = free_port()
    port_file = folder / "port"
    server = ["apache_beam.runners.portability.local_job_service_main", "--port_file", port_file]
    workers = ["apache_beam.runners.worker.worker_pool_main", f"--service_port={pool}"]
    with (
        running(folder / "server.log", *server),
        running(folder / "workers.log", *workers),
    ):
        wait_until(port_file.exists)
        wait_until(lambda: answers(pool))
        yield [
            f"--job_endpoint=localhost:{port_file.read_text().strip()}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool}",
        ]


@contextlib.contextmanager
def running(log: Path, module: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A Python module as a program, which is gone with all its children afterwards."""
    here = os.path.dirname(sys.executable)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                # The pool of workers runs whatever is called python.
                "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
                # Workers find the steps of the tests.
                "PYTHONPATH": str(_REPOSITORY),
                "TMPDIR": str(log.parent),
            },
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def children_of(parent: int) -> list[int]:
    """The processes that a process has started, and those that they have started."""
    parents = {pid: parent_of(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    found = [parent]
    for one in found:
        found += [pid for pid, above in parents.items() if above == one]
    return found[1:]


def command_of(pid: int) -> str:
    """The command line of a process; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def answers(port: int) -> bool:
    """Whether somebody listens at a port of loopback."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
