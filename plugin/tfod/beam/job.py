"""The process that runs one pipeline: ``python -m tfod.beam.job FOLDER``, for :mod:`tfod.beam.run`.

It ends at once when a worker process dies, and with the process that has started it. It works in
the private FOLDER: whatever Python starts with ``-m`` takes modules from the current one first.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import shutil
import signal
import socket
import sys
import threading
import traceback
import uuid
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from tfod.beam.run import (
    A_WORKER_DIED,
    OUTCOME_FILE,
    REQUEST_FILE,
    UNSAID,
    WORKER_DIED,
    Outcome,
    PipelineRunner,
    Request,
)
from tfod.errors import TfodError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from apache_beam.options.pipeline_options import PipelineOptions

# An error crosses from a worker as text: the traceback that Python prints there, with
# ``[while running 'step']`` behind the message, and around it what the runner has to add.
_OURS = re.compile(
    r"^(?:[\w.]*RuntimeError: )?tfod(?:_\w+)?\.[\w.]*Error: (?P<message>.*)$", re.MULTILINE
)
_NAMED = re.compile(
    r"^(?:Caused by: )?(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*(?:(?<=:)\s+.*)?$",
    re.MULTILINE,
)
_SECONDS_TO_CONNECT = 10
_WORKER_LOST = "Channel closed prematurely"  # what Beam's own job server says of it
_WORKER_THREAD = "run_worker"  # of apache_beam.runners.portability.fn_api_runner.worker_handlers


def main(folder: str) -> None:
    """Do what is asked for in the folder, and put there what came out."""
    status = UNSAID
    try:
        threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()
        threading.excepthook = _end_with_worker
        _put(outcome_of(folder), folder)
        status = 0
    except BaseException:
        with contextlib.suppress(OSError):  # a full disk
            traceback.print_exc()
    finally:
        # Beam's threads need not be waited for.
        os._exit(status)


def _put(outcome: Outcome, folder: str) -> None:
    aside = os.path.join(folder, OUTCOME_FILE + ".tmp")
    with open(aside, "wb") as file:
        pickle.dump(outcome, file)
    os.replace(aside, os.path.join(folder, OUTCOME_FILE))


def outcome_of(folder: str) -> Outcome:
    """Run the pipeline that is asked for in a folder, in this process."""
    try:
        with open(os.path.join(folder, REQUEST_FILE), "rb") as file:
            request: Request = pickle.load(file)
        signal.signal(signal.SIGTERM, _end if request.runner.is_here else _leave)
        return Outcome(_run(request, folder))
    except BaseException as error:  # of Beam's parsers too, which want to end the program
        text = str(error)
        if isinstance(error, TfodError):
            return Outcome(failure=_without_step(text))
        if ours := _OURS.search(text):
            return Outcome(failure=_without_step(ours["message"]))
        if _WORKER_LOST in text:
            return Outcome(failure=A_WORKER_DIED, died=True)
        with contextlib.suppress(OSError):  # a full disk
            traceback.print_exception(error)
        return Outcome(failure=_innermost_cause(error), unforeseen=True)


def _innermost_cause(error: BaseException) -> str:
    """The line that says best what has gone wrong."""
    text = "".join(traceback.format_exception_only(error))
    found = [" ".join(match[0].split()) for match in _NAMED.finditer(text)] or text.splitlines()
    return _without_step(found[-1].removeprefix("Caused by: "))


def _without_step(message: str) -> str:
    """A message without the name of the step that Beam has put behind it."""
    before, found, _ = message.strip().rpartition(" [while running '")
    return before.strip() if found and message.endswith("']") else message.strip()


def _run(request: Request, folder: str) -> list[Any]:
    import apache_beam as beam
    from apache_beam.io.filesystems import FileSystems

    from tfod.beam.result_file import ResultFile

    runner, options = _make_runner(request.runner)
    FileSystems.set_options(options)
    result = ResultFile(_result_folder(options, request.folder, folder))
    try:
        pipeline = beam.Pipeline(runner, options)
        result.take(request.build(pipeline))
        _wait(pipeline.run())
        return result.read()
    finally:
        result.remove()


def _make_runner(runner: PipelineRunner) -> tuple[Any, PipelineOptions]:
    """Beam's object for the runner, and for its options.

    The DirectRunner is its FnApiRunner: Beam's own choice would try Prism first, for which it
    downloads a program.

    Raises:
        TfodError: it is unknown, or Beam was installed without it; an option of the DirectRunner is
            unknown, which Beam would pass over, or has a value that it cannot have.
    """
    from apache_beam.options.pipeline_options import PortableOptions
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle
    from apache_beam.runners.runner import create_runner

    if not runner.is_here:
        try:
            made = create_runner(runner.name)  # before the options: a module brings its own
        except (ImportError, ValueError, AttributeError) as error:
            raise TfodError(f"--runner {runner.name}: {str(error).splitlines()[0]}") from None
        options = _options(runner)
        _require_job_server(options.view_as(PortableOptions).job_endpoint)
        return made, options
    options = _options(runner)
    # Worker processes learn from it how to reach file systems, for example.
    told = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    information = beam_provision_api_pb2.ProvisionInfo(pipeline_options=told)
    return fn_runner.FnApiRunner(
        provision_info=fn_runner.ExtendedProvisionInfo(information)
    ), options


def _options(runner: PipelineRunner) -> PipelineOptions:
    from apache_beam.options.pipeline_options import PipelineOptions

    parsers: list[ArgumentParser] = []

    def see(parser: ArgumentParser) -> None:
        # Beam makes the parser, whose errors would end the process with a page of usage.
        parser.error = _refuse  # type: ignore[method-assign]
        parsers.append(parser)

    arguments = list(runner.arguments)
    options = PipelineOptions(arguments)
    options.get_all_options(add_extra_args_fn=see)
    _, unknown = parsers[0].parse_known_args(arguments)
    if unknown and runner.is_here:  # a job server may know more options than Beam in Python
        raise TfodError(f"-- {unknown[0]}: {runner.name} has no such option")
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


def _refuse(message: str) -> NoReturn:
    raise TfodError(f"-- {message.removeprefix('argument ')}")


def _wait(running: Any) -> None:
    """Wait for the end of a pipeline; cancel it when this process shall end."""
    try:
        running.wait_until_finish()
    except (KeyboardInterrupt, SystemExit):
        running.cancel()
        raise


def _result_folder(options: PipelineOptions, current: str, folder: str) -> str:
    """Where the result goes: below ``--temp_location``, else in our own folder."""
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    shared = options.view_as(GoogleCloudOptions).temp_location
    name = f"tfod-{uuid.uuid4().hex}"
    if not shared:
        return os.path.join(folder, name)
    if "://" not in shared:
        shared = os.path.join(current, shared)
    try:
        return str(FileSystems.join(shared, name))
    except ValueError as error:
        raise TfodError(f"--temp_location {shared}: {error}") from None


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
        os._exit(WORKER_DIED if isinstance(ended.exc_value, RuntimeError) else UNSAID)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing is to be cancelled: the workers are ended from outside."""
    os._exit(128 + number)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main(sys.argv[1])
