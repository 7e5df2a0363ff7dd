"""The same map on Apache Beam: examines shards that are too many for one machine.

It may import ``checker`` and what is below it, and is imported only where a runner is asked for.

Shards are numbered and spread over the workers; what they have come to is written into one file,
which is read in the order of the numbers.

Beam's runners in Python were made to be ended with the program: the DirectRunner waits for ever
for a worker that was killed, and its threads outlive an interrupt. So a pipeline gets a process
(``python -m tfod.beam FOLDER``), a process group and a private folder, which end together.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import uuid
from argparse import ArgumentError, ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tfod.checker.analysis.examine import Instructions, examine
from tfod.checker.analysis.result import ShardResult
from tfod.errors import TfodError, how_to_install
from tfod.sources.resolved import Shard

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

# Looked for and not imported: the pipeline is made in a process of its own.
if importlib.util.find_spec("apache_beam") is None:
    raise TfodError(f"--runner needs Apache Beam; {how_to_install('beam')}")

_REQUEST, _RESULTS, _FAILURE, _LOG = "request.pickle", "results.pickle", "failure.txt", "beam.log"
"""Files in the folder of a pipeline: what is asked for, and what comes of it."""
_REFUSED, _FAILED, _WORKER_DIED = 84, 85, 86
"""How its process ends where it fails: by a fault of the user's; by any; because a worker died."""
_HERE = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
"""The DirectRunner. Beam's own choice would try Prism first, for which it downloads a program."""
_SECONDS_TO_CANCEL = 5
_SECONDS_TO_CONNECT = 10
_WORKER_LOST = "Channel closed prematurely"  # what Beam's own job server says of it
_WORKER_THREAD = "run_worker"  # of apache_beam.runners.portability.fn_api_runner.worker_handlers
# An error comes from a worker as text: the traceback that Python prints there, with the name of the
# step behind the message, and around it what the runner has to add.
_EXCEPTION = re.compile(
    r"^(?:Caused by: )?(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit)\b.*(?:(?<=:)\s+.*)?)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Runner:
    """Where pipelines run.

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

    def examine(self, shards: Sequence[Shard], instructions: Instructions) -> Iterator[ShardResult]:
        """Examine shards; the results are in their order.

        The results pass through one file: in a temporary folder of this machine, or below Beam's
        ``--temp_location`` where that is given, which workers on other machines need.

        Raises:
            TfodError: the examination raised it; workers cannot reach a shard; an option is
                unknown, a job server does not answer, a worker died, or a step failed.
        """
        if not shards:
            return
        reachable = [self._for_workers(one) for one in shards]
        request = self, os.getcwd(), reachable, instructions._replace(threads=1)
        try:
            with tempfile.TemporaryDirectory(prefix="tfod-beam-") as folder:
                Path(folder, _REQUEST).write_bytes(pickle.dumps(request))
                self._run(folder)
                yield from _read_results(os.path.join(folder, _RESULTS))
        except OSError as error:
            raise TfodError(
                f"{tempfile.gettempdir()}: what Beam needs cannot be written there "
                f"({error.strerror or error}); make room, or name another folder with TMPDIR"
            ) from None

    def _for_workers(self, shard: Shard) -> Shard:
        """The same by a path that does not depend on the working directory."""
        if shard.is_remote:
            return shard
        name, path, entry = shard.name, shard.path, shard.entry
        if entry:  # whose path is absolute already
            name, path = name.removesuffix(f":{entry.shown}"), entry.archive
        if not self.is_here and os.path.abspath(name) != os.path.abspath(path):
            raise TfodError(
                f"{shard.name}: is read through a copy on this machine, which workers of "
                f"{self.name} may not see; put the file where they can read it, and name it there"
            )
        # /dev/stdin is another file in another process.
        return shard if entry else replace(shard, path=os.path.realpath(path))

    def _run(self, folder: str) -> None:
        """Run the pipeline that is asked for in a folder, and wait for its end."""
        log_path = os.path.join(folder, _LOG)
        with open(log_path, "wb") as log, _process(folder, log, self.is_here) as process:
            status = process.wait()
        if status == 0:
            return
        if status == _WORKER_DIED or (status < 0 and self.is_here):
            raise TfodError(f"{self.name}: a worker died; fewer workers or more memory may help")
        failure = f"its process ended with status {status}; is the disk full, is a job left?"
        with contextlib.suppress(OSError):
            failure = Path(folder, _FAILURE).read_text("utf-8") or failure
        if status == _REFUSED:
            raise TfodError(failure)
        os.replace(log_path, f"{folder}.log")
        raise TfodError(f"{self.name}: {failure} (all that Beam said is in {folder}.log)")


@contextlib.contextmanager
def _process(folder: str, log: BinaryIO, is_here: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a pipeline, which is gone with all its workers when this is left."""
    modules = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    with subprocess.Popen(
        [sys.executable, "-m", "tfod.beam", folder],
        # It ends itself when this pipe does: when we are killed.
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, modules)),
            "TMPDIR": folder,  # what processes that are killed leave goes with it
        },
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None and not is_here:
                process.terminate()  # it cancels the job
                with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                    process.wait(_SECONDS_TO_CANCEL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _read_results(path: str) -> Iterator[ShardResult]:
    """The results in the order of their numbers, one at a time."""
    places: dict[int, int] = {}
    with open(path, "rb") as stream:
        end = os.fstat(stream.fileno()).st_size
        while (place := stream.tell()) < end:
            places[pickle.load(stream)[0]] = place
        for number in sorted(places):
            stream.seek(places[number])
            result = pickle.loads(pickle.load(stream)[1])
            if isinstance(result, TfodError):
                raise result
            yield result


# What is below runs in the process of the pipeline, and on its workers.


def _main(folder: str) -> None:
    """Run the pipeline that is asked for in a folder, and put there what comes of it."""
    status, failure = 0, ""
    try:
        threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()
        threading.excepthook = _end_with_worker
        _run_pipeline(folder, *pickle.loads(Path(folder, _REQUEST).read_bytes()))
    except TfodError as error:
        status, failure = _REFUSED, str(error)
    except BaseException as error:  # of Beam's parsers too, which want to end the program
        status = _WORKER_DIED if _WORKER_LOST in str(error) else _FAILED
        failure = _innermost_cause(error)
        with contextlib.suppress(OSError):  # a full disk
            traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            Path(folder, _FAILURE).write_text(failure, "utf-8")
        os._exit(status)  # Beam's threads need not be waited for


def _innermost_cause(error: BaseException) -> str:
    """The line that says best what has gone wrong."""
    text = "".join(traceback.format_exception_only(error))
    found = [match[1] for match in _EXCEPTION.finditer(text)] or text.splitlines()
    line = re.sub(r" \[while running '[^']*'\]$", "", " ".join(found[-1].split()))
    return line.removeprefix("TfodError: ")


def _end_with_parent(folder: str) -> None:
    """End this process and its workers when the process that started it is gone."""
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _end_with_worker(ended: threading.ExceptHookArgs) -> None:
    """A thread has ended: the one that waits for a worker does when the worker died."""
    with contextlib.suppress(OSError):  # a full disk
        threading.__excepthook__(ended)
    if ended.thread is not None and ended.thread.name == _WORKER_THREAD:
        os._exit(_WORKER_DIED if isinstance(ended.exc_value, RuntimeError) else _FAILED)


def _run_pipeline(
    folder: str, runner: Runner, current: str, shards: Sequence[Shard], instructions: Instructions
) -> None:
    import apache_beam as beam
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import GoogleCloudOptions, PortableOptions
    from apache_beam.runners.runner import create_runner

    try:
        # Before the options: a module brings its own.
        made = create_runner(_HERE if runner.is_here else runner.name)
    except (ImportError, ValueError, AttributeError) as error:
        raise TfodError(f"--runner {runner.name}: {str(error).splitlines()[0]}") from None
    options = _options(runner)
    _require_job_server(options.view_as(PortableOptions).job_endpoint)
    FileSystems.set_options(options)
    shared = options.view_as(GoogleCloudOptions).temp_location or folder
    if "://" not in shared:
        shared = os.path.join(current, shared)
    with _result_file(shared, os.path.join(folder, _RESULTS)) as path:
        pipeline = beam.Pipeline(made, options)
        (
            pipeline
            | "shards" >> beam.Create(list(enumerate(shards)))
            | "spread" >> beam.Reshuffle()
            | "examine" >> beam.Map(_examine, instructions).with_output_types(tuple[int, bytes])
            | "collect" >> beam.GroupBy(lambda _: 0)
            | "write" >> beam.Map(_write, path)
        )
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        running = pipeline.run()
        try:
            running.wait_until_finish()
        except SystemExit:
            running.cancel()
            raise


def _examine(numbered: tuple[int, Shard], instructions: Instructions) -> tuple[int, bytes]:
    """The number of a shard, and what it has come to; the error where it cannot be examined."""
    number, shard = numbered
    try:
        return number, pickle.dumps(examine(shard, instructions))
    except TfodError as error:
        return number, pickle.dumps(TfodError(str(error)))


def _write(group: tuple[int, Iterable[tuple[int, bytes]]], path: str) -> None:
    """Write a file, which has its name only when it is complete: this may be done twice."""
    from apache_beam.io.filesystems import FileSystems

    temporary_path = f"{path}.{uuid.uuid4().hex}"
    try:
        with FileSystems.create(temporary_path, "application/octet-stream") as stream:
            for one in group[1]:
                pickle.dump(one, stream)
        FileSystems.rename([temporary_path], [path])
    except OSError as error:
        raise TfodError(
            f"{path}: the result cannot be written ({error.strerror or error}); make room there, "
            "or name another folder with --temp_location"
        ) from None


@contextlib.contextmanager
def _result_file(shared: str, here: str) -> Iterator[str]:
    """A file in a place that workers share with this machine; when this is left, it is here."""
    from apache_beam.io.filesystems import FileSystems

    try:
        folder = FileSystems.join(shared, f"tfod-{uuid.uuid4().hex}")
        FileSystems.mkdirs(folder)
    except Exception as error:  # each file system has its own
        raise TfodError(f"--temp_location {shared}: cannot be written ({error})") from None
    try:
        path = FileSystems.join(folder, _RESULTS)
        yield path
        if not FileSystems.exists(path):
            lost = f"the job ended and its results are not in {folder}"
            raise TfodError(f"{lost}; name a folder that workers can reach with --temp_location")
        with FileSystems.open(path) as stream, open(here, "wb") as file:
            shutil.copyfileobj(stream, file)
    finally:
        FileSystems.delete([folder])


def _options(runner: Runner) -> PipelineOptions:
    from apache_beam.options.pipeline_options import PipelineOptions

    arguments = list(runner.arguments)
    options = PipelineOptions(arguments)

    def require_valid_upload(parser: ArgumentParser) -> None:
        parser.exit_on_error = False  # with a page of usage
        try:
            _, unknown = parser.parse_known_args(arguments)
        except ArgumentError as error:
            raise TfodError(f"-- {str(error).removeprefix('argument ')}") from None
        if unknown and runner.is_here:  # a job server may know more options than Beam in Python
            raise TfodError(f"-- {unknown[0]}: {runner.name} has no such option")

    options.get_all_options(add_extra_args_fn=require_valid_upload)  # Beam makes the parser
    return options


def _require_job_server(endpoint: str | None) -> None:
    """Beam itself would wait for five minutes for one that is not there."""
    host, _, port = (endpoint or "").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_CONNECT).close()
        except OSError as error:
            why = f"no job server answers at {endpoint} ({error.strerror or error})"
            raise TfodError(f"-- --job_endpoint: {why}") from None


if __name__ == "__main__":
    # Steps and request belong to tfod.beam, which workers import too; this here is another module.
    from tfod.beam import _main as main

    main(sys.argv[1])
