"""Runs a check in a process of its own, under limits that the system enforces.

The process is forked from one that has imported what a check needs and does nothing else, so that
it begins in milliseconds. It may use so much memory and time; it ends with the process that began
it; and it sends its progress and its result through a pipe, as JSON and bytes that are not
unpickled.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tfod_validator.jobs.request import FilesAwayError, Request, Result, failed
from tfod_validator.settings import Limits

_CONTEXT = multiprocessing.get_context("forkserver")
_LONGEST_MESSAGE = 256 << 20
_SEND_EVERY = 0.2
_LOOK_EVERY = 0.5
PRELOADED = (
    *(__name__, "tfod_validator.jobs.check_upload", "tfod.check.references.frames"),
    *("numpy.ma", "lxml.etree"),
)
"""What checks import, and what these import only when it is called."""
_LEAST_ROOM = 64 << 20
"""Bytes below the limit of memory with which a check may begin."""
_NICENESS = 10
"""Pages go before checks."""
_KILLED = (
    "The system has killed the check's process (SIGKILL) each time it was begun, most likely since "
    "the machine has not enough memory; check the upload in parts, or ask those who run the "
    "service."
)
_AWAY = (
    "The service does not find, or cannot read, the files of this upload on its disk any more; "
    "upload again, or ask those who run the service."
)
_AWAY_SECONDS = 30.0
"""A network's file system may show a new folder so late to a machine that has looked before."""
OnProgress = Callable[[int, int], bool]
"""Called with the bytes and records that were read so far, often; False ends the check."""


class RetryError(Exception):
    """The check could not be done here and now, which says nothing about the upload.

    Args:
        detail: what is said where it cannot be done at all.
        most_attempts: it makes sense to begin so often.
        seconds: so long the same worker leaves it to others.
    """

    def __init__(self, detail: str, most_attempts: int, seconds: float) -> None:
        super().__init__(detail)
        self.most_attempts, self.seconds = most_attempts, seconds


class StoppedError(Exception):
    """The check was ended, since its result is not wanted."""


def prepare() -> None:
    """Let the process that checks are forked from import what they need."""
    _CONTEXT.set_forkserver_preload(list(PRELOADED))


def run_in_sandbox(
    folder: Path, request: Request, limits: Limits, on_progress: OnProgress
) -> Result:
    """Check an upload in a process of its own.

    Raises:
        StoppedError: ``on_progress`` has said so.
        RetryError: another attempt may succeed.
        RuntimeError: the check has a mistake; the text says where.
    """
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    arguments = (theirs, folder, request, limits)
    process = _CONTEXT.Process(target=_child, args=arguments, daemon=True)
    process.start()
    theirs.close()
    try:
        return _listen(ours, limits, on_progress)
    except (EOFError, OSError):
        process.join()
        return _died(process.exitcode or 0, limits)
    finally:
        ours.close()
        process.kill()
        process.join()
        process.close()


def _listen(pipe: Connection, limits: Limits, on_progress: OnProgress) -> Result:
    end = time.monotonic() + limits.max_check_seconds
    done = (0, 0)
    while on_progress(*done):
        if wait([pipe], timeout=max(0.0, min(_LOOK_EVERY, end - time.monotonic()))):
            message = json.loads(pipe.recv_bytes(_LONGEST_MESSAGE))
            if "away" in message:
                raise RetryError(_AWAY, limits.max_attempts, _AWAY_SECONDS)
            if "error" in message:
                raise RuntimeError(message["error"])
            if "result" in message:
                names, about = message["documents"], message["result"]
                documents = {name: pipe.recv_bytes(_LONGEST_MESSAGE) for name in names}
                return Result(documents, **about)
            done = (message["bytes"], message["records"])
        elif time.monotonic() >= end:
            return _too_slow(limits)
    raise StoppedError


def _too_slow(limits: Limits) -> Result:
    detail = (
        f"The check took longer than the {limits.max_check_seconds:,} seconds allowed; check the "
        "upload in parts, or without decoding its images."
    )
    return failed(422, detail, limit="max_check_seconds")


def _too_large(limits: Limits) -> Result:
    detail = (
        f"The check needed more than the {limits.max_check_bytes >> 20:,} MiB of memory allowed; "
        "check the upload in parts."
    )
    return failed(422, detail, limit="max_check_bytes")


def _died(exit_code: int, limits: Limits) -> Result:
    """What is said of a process that ended without a result."""
    if exit_code in (-signal.SIGKILL, 255):  # 255: how it ended is not known
        raise RetryError(_KILLED, 2, 0.0)
    if exit_code == -signal.SIGXCPU:
        return _too_slow(limits)
    how = f"ended with exit status {exit_code}"
    if exit_code < 0:
        how = f"was ended by {signal.Signals(-exit_code).name}"
    return failed(500, f"The check's process {how}; upload again to try again.")


def _child(pipe: Connection, folder: Path, request: Request, limits: Limits) -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)  # the worker decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(_NICENESS)
    _limit_resources(limits)
    sent = 0.0

    def send(**message: object) -> None:
        pipe.send_bytes(json.dumps(message).encode())

    def send_progress(read: int, records: int) -> None:
        nonlocal sent
        now = time.monotonic()
        if now - sent >= _SEND_EVERY:
            sent = now
            send(bytes=read, records=records)

    try:
        _require_room()
        from tfod_validator.jobs.check_upload import run_check

        result = run_check(folder, request, limits, send_progress)
    except MemoryError:
        result = _too_large(limits)
    except FilesAwayError:
        return send(away=True)
    except BrokenPipeError:
        return None
    except Exception as error:
        # Where it was raised, and its type: its text may quote the upload.
        frames = traceback.format_list(traceback.extract_tb(error.__traceback__))
        return send(error=f"{type(error).__name__}\n" + "".join(frames))
    about = dict(vars(result))
    documents = about.pop("documents")
    send(result=about, documents=list(documents))
    for content in documents.values():
        pipe.send_bytes(content)
    return None


def _require_room() -> None:
    """Raise MemoryError where the limit leaves next to nothing.

    A check hashes its files in a thread, and one that begins without memory is waited for in vain
    (https://github.com/python/cpython/issues/140746).
    """
    try:
        mmap.mmap(-1, _LEAST_ROOM).close()
    except OSError:
        raise MemoryError from None


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _limit_resources(limits: Limits) -> None:
    """Let the system end what takes too much."""
    seconds = limits.max_check_seconds
    for limit, soft, hard in (
        (resource.RLIMIT_AS, limits.max_check_bytes, limits.max_check_bytes),
        (resource.RLIMIT_CPU, seconds, seconds + 5),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),  # a check writes no files
    ):
        _, utmost = resource.getrlimit(limit)
        if utmost != resource.RLIM_INFINITY:
            soft, hard = min(soft, utmost), min(hard, utmost)
        resource.setrlimit(limit, (soft, hard))
