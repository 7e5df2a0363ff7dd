"""The process that runs one pipeline: ``python -m tfod.beam.job FOLDER``, for :mod:`tfod.beam.run`.

It ends at once when a worker process dies, and with the process that has started it. It works in
the private FOLDER: whatever Python starts with ``-m`` takes modules from the current one first.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
import uuid
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from tfod.beam.errors import innermost_cause, missing_job_server, tfod_error_in, without_step
from tfod.beam.run import (
    A_WORKER_DIED,
    OUTCOME_FILE,
    REQUEST_FILE,
    UNSAID,
    WORKER_DIED,
    Outcome,
    Request,
)
from tfod.beam.runners import DIRECT, PYSPARK, make_runner
from tfod.errors import TfodError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

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
        signal.signal(signal.SIGTERM, _end if request.runner == DIRECT else _leave)
        return Outcome(_run(request, folder))
    except BaseException as error:  # of Beam's parsers too, which want to end the program
        text = str(error)
        known = without_step(text) if isinstance(error, TfodError) else tfod_error_in(text)
        known = known or missing_job_server(text)
        if known is not None:
            return Outcome(failure=known)
        if _WORKER_LOST in text:
            return Outcome(failure=A_WORKER_DIED, died=True)
        with contextlib.suppress(OSError):  # a full disk
            traceback.print_exception(error)
        what = "".join(traceback.format_exception_only(error))
        return Outcome(failure=innermost_cause(what), unforeseen=True)


def _run(request: Request, folder: str) -> list[Any]:
    import apache_beam as beam
    from apache_beam.io.filesystems import FileSystems

    from tfod.beam.job_steps import ResultFile, deal_by_groups

    runner, options = make_runner(request.runner, request.arguments)
    FileSystems.set_options(options)
    result = ResultFile(_result_folder(options, request.folder, folder))
    try:
        pipeline = beam.Pipeline(runner, options)
        result.take(request.build(pipeline))
        if request.runner == PYSPARK:
            deal_by_groups(pipeline)
        _wait(pipeline.run())
        return result.read()
    finally:
        result.remove()


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
