"""One attempt of a check: a child that does it, and what is said of a child that dies."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import BaseContext, ForkServerContext
from pathlib import Path
from typing import Any

from tfod_validator.folder import DataFolder, Request, Result
from tfod_validator.settings import Settings

_LOOK_EVERY = 0.5


class StoppedError(Exception):
    """The check was ended, since its result is not wanted now, or not at all."""


class DiedError(Exception):
    """The child was killed, which need not happen again."""


def forkserver() -> ForkServerContext:
    """Begins children in milliseconds: from a process that has imported what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tfod_validator.child", "numpy.ma", "lxml.etree"])
    context.Process(target=int).start()  # it has imported it when this returns
    return context


def run_attempt(
    key: str,
    request: Request,
    settings: Settings,
    context: BaseContext,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Result | None:
    """Check what waits, and publish the report; None if there is one already, or it was deleted.

    Args:
        key: id of what waits.
        request: what was asked for.
        settings: of the service.
        context: begins the child.
        is_wanted: is asked twice a second; False ends the check, and the attempt does not count.

    Raises:
        StoppedError: ``is_wanted`` has said so.
        DiedError: the child was killed; another attempt may succeed.
    """
    folder = DataFolder(settings)
    attempt, number = folder.begin_attempt(key)
    if number > settings.max_attempts:
        times = f"was begun {settings.max_attempts} times and never ended"
        detail = f"The check {times}, most likely for want of memory; check the upload in parts."
        return _fail(folder, attempt, time.time(), 500, detail)
    source = folder.upload_of(request.repair_of) if request.repair_of else None
    began = time.time()
    arguments = (replace(settings, token="", queue=""), attempt, request, source)
    # The class of a context's processes has the name of none of them.
    child: Any = context.Process(target=_run, args=arguments, daemon=True)  # type: ignore[attr-defined]
    child.start()
    try:
        has_ended = _wait_for(child, attempt, settings, is_wanted)
    finally:
        child.kill()
        child.join()
    if not has_ended:
        seconds = settings.max_check_seconds
        detail = f"The check took longer than the {seconds:,} seconds allowed; check it in parts."
        return _fail(folder, attempt, began, 422, detail, limit="max_check_seconds")
    if child.exitcode == 0:
        return folder.publish(attempt)
    if child.exitcode in (-signal.SIGKILL, 255):  # 255: how it ended is not known
        raise DiedError
    how = f"ended with exit status {child.exitcode}"
    if child.exitcode < 0:
        how = f"was ended by {signal.Signals(-child.exitcode).name}"
    detail = f"The check's process {how}; upload again to try again."
    return _fail(folder, attempt, began, 500, detail)


def _run(*arguments: Any) -> None:
    from tfod_validator.child import run  # which the process that began this need not import

    run(*arguments)


def _wait_for(child: Any, attempt: Path, settings: Settings, is_wanted: Callable[[], bool]) -> bool:
    """Wait until a child has ended; whether it has, in time."""
    end = time.monotonic() + settings.max_check_seconds
    while child.is_alive():
        if time.monotonic() > end:
            return False
        child.join(_LOOK_EVERY)
        if not attempt.exists():
            raise StoppedError
        if child.is_alive() and not is_wanted():
            child.kill()
            child.join()
            DataFolder(settings).forget_attempt(attempt)
            raise StoppedError
    return True


def _fail(
    folder: DataFolder, attempt: Path, began: float, status: int, detail: str, **limit: str
) -> Result | None:
    failure = {"status": status, "detail": detail, **limit}
    folder.write_result(attempt, Result(None, began, time.time(), failure=failure))
    return folder.publish(attempt)
