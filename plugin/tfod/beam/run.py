"""Runs a pipeline in a process of its own, and is there when something dies.

Beam's runners in Python were made to be ended with the program: the DirectRunner waits for ever
for a worker that was killed, and its threads outlive an interrupt. So a pipeline gets a process
(:mod:`tfod.beam.job`) and a process group, which end together, and whatever Beam has to say goes
to a file. Steps are pure, so that a pipeline whose worker died is run anew, where the runner does
not see to it: Flink, Spark, Dataflow and Dask do what a dead worker did elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
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

from tfod.beam.errors import errors_in_utf8, require_shared
from tfod.beam.runners import is_on_this_machine, known_runner
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
_ROOM = 512 << 10


@dataclass(frozen=True)
class Request:
    """The pipeline to run.

    Attributes:
        build: what makes it.
        runner: Beam's name of the runner.
        arguments: Beam's own options.
        folder: the current one, which paths in the options start from.
    """

    build: Callable[[Any], Any]
    runner: str
    arguments: tuple[str, ...]
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
class _Task:
    """What one worker does. Not a tuple: a path need be no UTF-8, as strings of Beam's are."""

    number: int
    task: Any


@dataclass(frozen=True)
class PipelineRunner:
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
    request = Request(build, runner.name, tuple(runner.arguments), os.getcwd())
    for attempt in itertools.count(1):
        with _folder_for(request) as folder:
            outcome = _run_once(request, folder)
            if not outcome.failure:
                return outcome.elements
            if not outcome.died:
                raise _error_of(outcome, runner.name, os.path.join(folder, LOG_FILE))
            if attempt == _ATTEMPTS:
                fix = f"{_ATTEMPTS} times; is there enough memory? try fewer workers"
                outcome = Outcome(failure=f"{outcome.failure}, {fix}", unforeseen=True)
                raise _error_of(outcome, runner.name, os.path.join(folder, LOG_FILE))
        print(
            f"tfod: {runner.name}: {outcome.failure}; all its work is done again "
            f"(attempt {attempt + 1} of {_ATTEMPTS})",
            file=sys.stderr,
        )
    raise AssertionError("the loop has no end")


def run_tasks(
    function: Callable[[Any], Any], tasks: Sequence[Any], work: str, runner: PipelineRunner
) -> list[Any]:
    """Let workers do tasks, one after the other or at once; the results are in their order.

    A task is done anew where a worker has died. The workers have to see the folder ``work``.

    Raises:
        TfodError: the function raised it, a worker does not see the folder, or as
            :func:`run_pipeline`.
    """
    done = run_pipeline(functools.partial(_task_steps, function, tasks, work), runner)
    return [result for _, result in sorted(done, key=operator.itemgetter(0))]


def _task_steps(
    function: Callable[[Any], Any], tasks: Sequence[Any], work: str, pipeline: beam.Pipeline
) -> beam.PCollection[tuple[int, Any]]:
    import apache_beam as beam

    return (
        pipeline
        | "tasks" >> beam.Create([_Task(number, task) for number, task in enumerate(tasks)])
        | "deal tasks" >> beam.Reshuffle()
        | "do" >> beam.Map(functools.partial(_do, function, work))
    )


@errors_in_utf8()
def _do(function: Callable[[Any], Any], work: str, task: _Task) -> tuple[int, Any]:
    require_shared(work)
    return task.number, function(task.task)


@contextlib.contextmanager
def _folder_for(request: Request) -> Iterator[str]:
    """A temporary folder with a request in it."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfod-beam-"))
            with open(os.path.join(folder, REQUEST_FILE), "wb") as file:
                pickle.dump(request, file)
            _require_room(folder)
        except OSError as error:
            raise TfodError(_no_room(error.strerror or str(error))) from None
        yield folder


def _require_room(folder: str) -> None:
    """Write as much as any pipeline does: Beam waits for ever for a worker that finds no room."""
    path = os.path.join(folder, "room")
    with open(path, "wb") as file:
        file.write(bytes(_ROOM))
    os.unlink(path)


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
    if code < 0 and is_on_this_machine(request.runner):
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
    if not failed.unforeseen:
        return TfodError(failed.failure)
    said = f"{runner}: {failed.failure}"
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
