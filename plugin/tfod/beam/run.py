"""Runs a pipeline in a process of its own, and is there when something dies.

Beam's runners in Python were made to be ended with the program: the DirectRunner waits for ever
for a worker that was killed, and its threads outlive an interrupt. So a pipeline gets a process
(:mod:`tfod.beam.job`) and a process group, which end together, and whatever Beam has to say goes
to a file. Steps are pure, so that a pipeline whose worker died is run anew, where the runner does
not see to it, as Flink, Spark and Dataflow do.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from tfod.errors import TfodError

if TYPE_CHECKING:
    import apache_beam as beam

REQUEST_FILE = "request.pickle"
OUTCOME_FILE = "outcome.pickle"
LOG_FILE = "beam.log"
WORKER_DIED = 86
"""Exit status of the process that runs a pipeline when a worker of it died."""
UNSAID = 87
"""Exit status of that process when it cannot write down what came out."""
A_WORKER_DIED = "a worker process died"
_ATTEMPTS = 3
_SECONDS_TO_CANCEL = 5


@dataclass(frozen=True)
class Request:
    """The pipeline to run.

    Attributes:
        build: what makes it.
        runner: what runs it.
        folder: the current one, which paths in the options start from.
    """

    build: Callable[[Any], Any]
    runner: PipelineRunner
    folder: str


@dataclass(frozen=True)
class Outcome:
    """What came of a pipeline.

    Attributes:
        elements: what came out of it.
        failure: in one line why nothing did; empty where it did.
        unforeseen: whether what Beam had to say may help to understand it.
        died: whether a process ended before its time, and what it did has to be done again.
    """

    elements: list[Any] = field(default_factory=list)
    failure: str = ""
    unforeseen: bool = False
    died: bool = False


@dataclass(frozen=True)
class PipelineRunner:
    """Where a pipeline runs.

    Attributes:
        name: the runner, as Beam takes it: ``DirectRunner``, ``direct``, the path of a class.
        arguments: Beam's own options, as on a command line.
    """

    name: str
    arguments: Sequence[str] = ()

    @property
    def is_here(self) -> bool:
        """Whether all of its processes are children of ours."""
        return self.name.lower() in ("direct", "directrunner")


def run_pipeline(
    build: Callable[[beam.Pipeline], beam.PCollection[Any]], runner: PipelineRunner
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
    request = Request(build, runner, os.getcwd())
    for attempt in itertools.count(1):
        with _folder_for(request) as folder:
            outcome = _run_once(request, folder)
            if not outcome.failure:
                return outcome.elements
            if not outcome.died or attempt == _ATTEMPTS:
                raise _error_of(outcome, runner.name, os.path.join(folder, LOG_FILE))
        print(
            f"tfod: {runner.name}: {outcome.failure}; all its work is done again "
            f"(attempt {attempt + 1} of {_ATTEMPTS})",
            file=sys.stderr,
        )
    raise AssertionError("the loop has no end")


@contextlib.contextmanager
def _folder_for(request: Request) -> Iterator[str]:
    """A temporary folder with a request in it."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfod-beam-"))
            with open(os.path.join(folder, REQUEST_FILE), "wb") as file:
                pickle.dump(request, file)
        except OSError as error:
            raise TfodError(_no_room(error.strerror or str(error))) from None
        yield folder


def _run_once(request: Request, folder: str) -> Outcome:
    with open(os.path.join(folder, LOG_FILE), "wb") as log, _process(folder, log) as process:
        code = process.wait()
    with (
        contextlib.suppress(FileNotFoundError),
        open(os.path.join(folder, OUTCOME_FILE), "rb") as file,
    ):
        outcome: Outcome = pickle.load(file)
        return outcome
    if code == WORKER_DIED:
        return Outcome(failure=A_WORKER_DIED, died=True)
    if code == UNSAID:
        return Outcome(failure=_no_room("is the disk full?"), unforeseen=True)
    what = f"its process died ({_how(code)})"
    if code < 0 and request.runner.is_here:
        return Outcome(failure=what, died=True)
    return Outcome(failure=f"{what}; the job may be running still", unforeseen=True)


def _no_room(why: str) -> str:
    return (
        f"{tempfile.gettempdir()}: what a pipeline needs cannot be written there ({why}); "
        "make room, or name another folder with TMPDIR"
    )


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
            "PYTHONPATH": os.pathsep.join(_module_folders()),
            # What processes that are killed leave goes with the folder.
            "TMPDIR": folder,
        },
        # Not where the shards are: what lies there would be taken for modules.
        cwd=folder,
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


def _module_folders() -> list[str]:
    """Where this process finds modules, but for what Python has added for the sake of a program.

    That is the folder of the program, or the current one (``python -m``, ``-c``), where anything
    may lie. It stays where PYTHONPATH asks for it.
    """
    added = {os.getcwd(), os.path.dirname(os.path.realpath(sys.argv[0]))}
    asked = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    added.difference_update(map(os.path.abspath, asked))
    return [path for path in map(os.path.abspath, sys.path) if path not in added]


def _error_of(failed: Outcome, runner: str, log: str) -> TfodError:
    if not (failed.unforeseen or failed.died):
        return TfodError(failed.failure)
    said = f"{runner}: {failed.failure}"
    if failed.died:
        said += f", {_ATTEMPTS} times; is there enough memory? try fewer workers"
    try:
        handle, kept = tempfile.mkstemp(prefix="tfod-beam-", suffix=".log")
        os.close(handle)
        shutil.move(log, kept)
    except OSError:  # a full disk
        return TfodError(said)
    return TfodError(f"{said} (all that Beam said is in {kept})")


def _how(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
