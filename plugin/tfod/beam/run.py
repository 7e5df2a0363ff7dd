"""Runs a pipeline in a process of its own, and is there when something dies.

Beam's runners in Python were made to be ended with the program: the DirectRunner waits for ever
for a worker that was killed, and its threads outlive an interrupt. So a pipeline gets a process
(:mod:`tfod.beam.job`) and a process group, which end together, and whatever Beam has to say goes
to a file. Steps are pure, so that a pipeline whose worker died is run anew, where the runner does
not see to it: Flink, Spark, Dataflow and Dask do what a dead worker did elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from tfod.beam.messages import (
    A_WORKER_DIED,
    LOG_FILE,
    OUTCOME_FILE,
    REQUEST_FILE,
    WORKER_DIED,
    Died,
    Failed,
    Request,
    Succeeded,
)
from tfod.beam.runners import is_on_this_machine, known_runner
from tfod.errors import TfodError

if TYPE_CHECKING:
    import apache_beam as beam

_ATTEMPTS = 3
_SECONDS_TO_CANCEL = 5


@dataclass(frozen=True)
class Runner:
    """Where a pipeline runs.

    Attributes:
        name: Beam's name of the runner: DirectRunner, PortableRunner, FlinkRunner, SparkRunner,
            DataflowRunner, DaskRunner, PySparkRunner; may be given in small letters and without
            "Runner".
        arguments: Beam's own options, as on a command line.

    Raises:
        TfodError: there is no such runner.
    """

    name: str
    arguments: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", known_runner(self.name))


def run_pipeline(
    build: Callable[[beam.Pipeline], beam.PCollection[Any]], runner: Runner
) -> list[Any]:
    """Run the pipeline that ``build`` makes; return the elements of the PCollection it returns.

    The elements pass through one file: in a temporary folder of this machine, or below Beam's
    ``--temp_location`` where that is given, which workers on other machines need.

    Args:
        build: adds its steps to the pipeline. It is pickled, and called in another process.
        runner: where the pipeline runs.

    Returns:
        The elements, in no order.

    Raises:
        TfodError: a step raised it; or an option is unknown, a job server does not answer, a
            step failed, workers died again and again, or the result never came.
    """
    request = Request(build, runner.name, tuple(runner.arguments))
    attempt = 1
    while True:
        with tempfile.TemporaryDirectory(prefix="tfod-beam-") as folder:
            outcome = _run_once(request, folder)
            if isinstance(outcome, Succeeded):
                return outcome.elements
            if isinstance(outcome, Failed):
                raise _error_of(outcome, os.path.join(folder, LOG_FILE))
        attempt += 1
        what = f"{runner.name}: {outcome.what}"
        if attempt > _ATTEMPTS:
            raise TfodError(f"{what}, {_ATTEMPTS} times; is there enough memory? try fewer workers")
        print(
            f"tfod: {what}; all its work is done again (attempt {attempt} of {_ATTEMPTS})",
            file=sys.stderr,
        )


def _run_once(request: Request, folder: str) -> Succeeded | Failed | Died:
    with open(os.path.join(folder, REQUEST_FILE), "wb") as file:
        pickle.dump(request, file)
    with open(os.path.join(folder, LOG_FILE), "wb") as log, _process(folder, log) as process:
        code = process.wait()
    with (
        contextlib.suppress(FileNotFoundError),
        open(os.path.join(folder, OUTCOME_FILE), "rb") as file,
    ):
        outcome: Succeeded | Failed | Died = pickle.load(file)
        return outcome
    if code == WORKER_DIED:
        return Died(A_WORKER_DIED)
    what = f"its process died ({_how(code)})"
    if is_on_this_machine(request.runner):
        return Died(what)
    return Failed(f"{request.runner}: {what}; the job may be running still")


@contextlib.contextmanager
def _process(folder: str, log: BinaryIO) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a pipeline, which is gone with all its workers when this is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tfod.beam.job", folder],
        # It ends itself when this pipe does: when we are killed.
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={
            **os.environ,
            # Modules are found where this process finds them, by the workers too.
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            # What processes that are killed leave goes with the folder.
            "TMPDIR": folder,
        },
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            # A job elsewhere has to be cancelled there.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(_SECONDS_TO_CANCEL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _error_of(failed: Failed, log: str) -> TfodError:
    if not failed.unforeseen:
        return TfodError(failed.message)
    handle, kept = tempfile.mkstemp(prefix="tfod-beam-", suffix=".log")
    os.close(handle)
    shutil.move(log, kept)
    return TfodError(f"{failed.message} (all that Beam said is in {kept})")


def _how(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
