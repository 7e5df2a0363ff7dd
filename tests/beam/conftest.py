"""Runners of Beam, and a temporary folder that must be empty after each test."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tfod.beam import Runner

from tests.commands import free_port, wait_until

DIRECT = Runner("DirectRunner")
"""One worker, in the process of the pipeline."""
PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


@pytest.fixture(scope="package")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Beam's job server and a pool of workers, with a shared folder for results."""
    pool, folder = free_port(), tmp_path_factory.mktemp("portable")
    port_file, shared = folder / "port", folder / "shared"
    server = ["apache_beam.runners.portability.local_job_service_main", f"--port_file={port_file}"]
    workers = ["apache_beam.runners.worker.worker_pool_main", f"--service_port={pool}"]
    with _running(folder / "server.log", *server), _running(folder / "workers.log", *workers):
        wait_until(port_file.exists)
        wait_until(lambda: _answers(pool))
        job = f"--job_endpoint=localhost:{port_file.read_text().strip()}"
        environment = ("--environment_type=EXTERNAL", f"--environment_config=localhost:{pool}")
        yield Runner("PortableRunner", (job, *environment, f"--temp_location={shared}"))
    assert list(shared.iterdir()) == []


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Runner:
    """A runner by its name: ``@pytest.mark.parametrize("runner", ["direct-2"], indirect=True)``."""
    local = {"direct-1": DIRECT, "direct-2": Runner("direct", PROCESSES)}
    return local.get(request.param) or request.getfixturevalue("portable")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, which must be empty at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    # Workers must be able to import the classes of the tests.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []


@contextlib.contextmanager
def _running(log: Path, module: str, argument: str) -> Iterator[None]:
    """Run a Python module as a program, and kill it with all its children at the end."""
    here = os.path.dirname(sys.executable)
    environment = {
        # The pool of workers runs any program with the name python.
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[2]), *sys.path)),
        "TMPDIR": str(log.parent),
    }
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, argument],
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
