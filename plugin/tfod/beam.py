"""Examination of shards on Apache Beam, for ``tfod check --runner``.

May import ``checker`` and the packages below it. Shards are numbered and distributed to workers;
their results are collected in one file, which is read in the order of the numbers.

A pipeline has its own process (``python -m tfod.beam FOLDER``), process group and folder, which end
together: the DirectRunner waits forever for a killed worker, and its threads survive an interrupt.
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

# Beam is only imported in the process of the pipeline.
if importlib.util.find_spec("apache_beam") is None:
    raise TfodError(f"--runner needs Apache Beam; {how_to_install('beam')}")

_REQUEST, _RESULTS, _FAILURE, _LOG = "request.pickle", "results.pickle", "failure.txt", "beam.log"
"""The files in the folder of a pipeline."""
_REFUSED, _FAILED, _WORKER_DIED = 84, 85, 86
"""Exit statuses of the process: invalid input, another failure, and the death of a worker."""
_LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
"""The class of the DirectRunner. By name, Beam would first try Prism, which it downloads."""
_SECONDS_TO_CANCEL = 5
_SECONDS_TO_CONNECT = 10
_WORKER_LOST = "Channel closed prematurely"  # an error message of Beam's job server
_WORKER_THREAD = "run_worker"  # in apache_beam.runners.portability.fn_api_runner.worker_handlers
# Workers report errors as text: a traceback, with the step after the message, in other text.
_EXCEPTION = re.compile(
    r"^(?:Caused by: )?(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit)\b.*(?:(?<=:)\s+.*)?)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Runner:
    """A Beam runner.

    Attributes:
        name: name for Beam: ``DirectRunner``, ``direct``, or the path of a class.
        arguments: command-line options of Beam.
    """

    name: str
    arguments: Sequence[str] = ()

    @property
    def is_local(self) -> bool:
        """Whether all its processes are children of this process."""
        return self.name.lower() in ("direct", "directrunner")

    def examine(self, shards: Sequence[Shard], instructions: Instructions) -> Iterator[ShardResult]:
        """Examine shards and yield the results in order.

        The results are written to a file in ``--temp_location`` of Beam, which is needed if workers
        run on other machines, or in a local temporary folder.

        Raises:
            TfodError: the examination or another step failed, workers cannot reach a shard, an
                option is unknown, a job server does not answer, or a worker died.
        """
        if not shards:
            return
        reachable = [self._make_reachable(shard) for shard in shards]
        request = self, os.getcwd(), reachable, instructions._replace(threads=1)
        try:
            with tempfile.TemporaryDirectory(prefix="tfod-beam-") as folder:
                Path(folder, _REQUEST).write_bytes(pickle.dumps(request))
                self._run(folder)
                yield from _read_results(os.path.join(folder, _RESULTS))
        except OSError as error:
            raise TfodError(
                f"{tempfile.gettempdir()}: Beam's temporary files cannot be written "
                f"({error.strerror or error}); free disk space, or set TMPDIR to another folder"
            ) from None

    def _make_reachable(self, shard: Shard) -> Shard:
        """Return a copy whose path does not depend on the working directory."""
        if shard.is_remote:
            return shard
        name, path, entry = shard.name, shard.path, shard.entry
        if entry:  # its path is absolute already; compare that of the zip
            name, path = name.removesuffix(f":{entry.shown}"), entry.archive
        if not self.is_local and os.path.abspath(name) != os.path.abspath(path):
            raise TfodError(
                f"{shard.name}: is read from a local copy, which workers of {self.name} may be "
                "unable to read; put the file where they can read it, and pass that path"
            )
        # Resolve /dev/stdin, which is a different file in another process.
        return shard if entry else replace(shard, path=os.path.realpath(path))

    def _run(self, folder: str) -> None:
        log_path = os.path.join(folder, _LOG)
        with open(log_path, "wb") as log, _process(folder, log, self.is_local) as process:
            status = process.wait()
        if status == 0:
            return
        if status == _WORKER_DIED or (status < 0 and self.is_local):
            raise TfodError(f"{self.name}: a worker died; try fewer workers or more memory")
        failure = f"its process exited with status {status}; is the disk full, or a job running?"
        with contextlib.suppress(OSError):
            failure = Path(folder, _FAILURE).read_text("utf-8") or failure
        if status == _REFUSED:
            raise TfodError(failure)
        os.replace(log_path, f"{folder}.log")
        raise TfodError(f"{self.name}: {failure} (see Beam's log: {folder}.log)")


@contextlib.contextmanager
def _process(folder: str, log: BinaryIO, is_local: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Start the process of a pipeline, and kill it with all its workers on exit."""
    modules = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    with subprocess.Popen(
        [sys.executable, "-m", "tfod.beam", folder],
        # The process exits when this pipe is closed, even if we are killed.
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, modules)),
            "TMPDIR": folder,  # so that temporary files of killed processes are deleted
        },
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None and not is_local:
                process.terminate()  # cancels the job
                with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                    process.wait(_SECONDS_TO_CANCEL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _read_results(path: str) -> Iterator[ShardResult]:
    """Yield the results in the order of their numbers, loading only one at a time."""
    offsets: dict[int, int] = {}
    with open(path, "rb") as stream:
        end = os.fstat(stream.fileno()).st_size
        while (offset := stream.tell()) < end:
            offsets[pickle.load(stream)[0]] = offset
        for number in sorted(offsets):
            stream.seek(offsets[number])
            result = pickle.loads(pickle.load(stream)[1])
            if isinstance(result, TfodError):
                raise result
            yield result


# The following functions run in the process of the pipeline and on its workers.


def _main(folder: str) -> None:
    """Run the pipeline of a folder, and write its results, or the reason for a failure, there."""
    status, failure = 0, ""
    try:
        threading.Thread(target=_exit_with_parent, args=[folder], daemon=True).start()
        threading.excepthook = _exit_with_worker
        _run_pipeline(folder, *pickle.loads(Path(folder, _REQUEST).read_bytes()))
    except TfodError as error:
        status, failure = _REFUSED, str(error)
    except BaseException as error:  # also SystemExit, which Beam's parsers raise
        status = _WORKER_DIED if _WORKER_LOST in str(error) else _FAILED
        failure = _innermost_cause(error)
        with contextlib.suppress(OSError):  # the disk may be full
            traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            Path(folder, _FAILURE).write_text(failure, "utf-8")
        os._exit(status)  # without waiting for threads of Beam


def _innermost_cause(error: BaseException) -> str:
    """Return the message of the exception that was raised first."""
    text = "".join(traceback.format_exception_only(error))
    lines = [match[1] for match in _EXCEPTION.finditer(text)] or text.splitlines()
    line = re.sub(r" \[while running '[^']*'\]$", "", " ".join(lines[-1].split()))
    return line.removeprefix("TfodError: ")


def _exit_with_parent(folder: str) -> None:
    """Kill this process and its workers when the parent process ends."""
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _exit_with_worker(arguments: threading.ExceptHookArgs) -> None:
    """Exit if the thread that waits for a worker ended with an exception."""
    with contextlib.suppress(OSError):  # the disk may be full
        threading.__excepthook__(arguments)
    if arguments.thread is not None and arguments.thread.name == _WORKER_THREAD:
        os._exit(_WORKER_DIED if isinstance(arguments.exc_value, RuntimeError) else _FAILED)


def _run_pipeline(
    folder: str, runner: Runner, cwd: str, shards: Sequence[Shard], instructions: Instructions
) -> None:
    import apache_beam as beam
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import GoogleCloudOptions, PortableOptions
    from apache_beam.runners.runner import create_runner

    try:
        # Before the options are parsed, since the module of a runner may add some.
        beam_runner = create_runner(_LOCAL_RUNNER if runner.is_local else runner.name)
    except (ImportError, ValueError, AttributeError) as error:
        raise TfodError(f"--runner {runner.name}: {str(error).splitlines()[0]}") from None
    options = _parse_options(runner)
    _require_job_server(options.view_as(PortableOptions).job_endpoint)
    FileSystems.set_options(options)
    shared = options.view_as(GoogleCloudOptions).temp_location or folder
    if "://" not in shared:
        shared = os.path.join(cwd, shared)
    with _result_file(shared, os.path.join(folder, _RESULTS)) as path:
        pipeline = beam.Pipeline(beam_runner, options)
        (
            pipeline
            | "shards" >> beam.Create(list(enumerate(shards)))
            | "spread" >> beam.Reshuffle()
            | "examine" >> beam.Map(_examine, instructions).with_output_types(tuple[int, bytes])
            | "collect" >> beam.GroupBy(lambda _: 0)
            | "write" >> beam.Map(_write, path)
        )
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        job = pipeline.run()
        try:
            job.wait_until_finish()
        except SystemExit:
            job.cancel()
            raise


def _examine(numbered_shard: tuple[int, Shard], instructions: Instructions) -> tuple[int, bytes]:
    """Return the number of a shard and its pickled result, or the error of the examination."""
    number, shard = numbered_shard
    try:
        return number, pickle.dumps(examine(shard, instructions))
    except TfodError as error:
        return number, pickle.dumps(TfodError(str(error)))


def _write(group: tuple[int, Iterable[tuple[int, bytes]]], path: str) -> None:
    """Write a file, and rename it when it is complete, since Beam may repeat this step."""
    from apache_beam.io.filesystems import FileSystems

    temporary_path = f"{path}.{uuid.uuid4().hex}"
    try:
        with FileSystems.create(temporary_path, "application/octet-stream") as stream:
            for result in group[1]:
                pickle.dump(result, stream)
        FileSystems.rename([temporary_path], [path])
    except OSError as error:
        raise TfodError(
            f"{path}: the result cannot be written ({error.strerror or error}); free disk space, "
            "or pass another folder with --temp_location"
        ) from None


@contextlib.contextmanager
def _result_file(shared: str, local_path: str) -> Iterator[str]:
    """Yield the path of a file that workers can write; copy it to a local path on exit."""
    from apache_beam.io.filesystems import FileSystems

    try:
        folder = FileSystems.join(shared, f"tfod-{uuid.uuid4().hex}")
        FileSystems.mkdirs(folder)
    except Exception as error:  # each file system raises other exceptions
        raise TfodError(f"--temp_location {shared}: cannot be written ({error})") from None
    try:
        path = FileSystems.join(folder, _RESULTS)
        yield path
        if not FileSystems.exists(path):
            problem = f"the job ended, but its results are not in {folder}"
            raise TfodError(f"{problem}; pass a folder that workers can reach as --temp_location")
        with FileSystems.open(path) as stream, open(local_path, "wb") as file:
            shutil.copyfileobj(stream, file)
    finally:
        FileSystems.delete([folder])


def _parse_options(runner: Runner) -> PipelineOptions:
    from apache_beam.options.pipeline_options import PipelineOptions

    arguments = list(runner.arguments)
    options = PipelineOptions(arguments)

    def require_valid(parser: ArgumentParser) -> None:
        parser.exit_on_error = False  # raise an error instead of printing the usage
        try:
            _, unknown = parser.parse_known_args(arguments)
        except ArgumentError as error:
            raise TfodError(f"-- {str(error).removeprefix('argument ')}") from None
        if unknown and runner.is_local:  # a job server may know options that Beam does not
            raise TfodError(f"-- {unknown[0]}: {runner.name} has no such option")

    options.get_all_options(add_extra_args_fn=require_valid)  # calls it with Beam's parser
    return options


def _require_job_server(endpoint: str | None) -> None:
    """Check that the job server answers; Beam would wait five minutes for it."""
    host, _, port = (endpoint or "").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_CONNECT).close()
        except OSError as error:
            problem = f"no job server answers at {endpoint} ({error.strerror or error})"
            raise TfodError(f"-- --job_endpoint: {problem}") from None


if __name__ == "__main__":
    # Pickles refer to tfod.beam, which is not this module, __main__.
    from tfod.beam import _main as main

    main(sys.argv[1])
