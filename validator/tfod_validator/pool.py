"""Does work in one process or in several; the results come in the order of the work."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tfod.errors import TfodError

from tfod_validator.examined import Instructions
from tfod_validator.work import Progress, Work, WorkResult, do_work

_AHEAD = 2
"""Results that may wait for an earlier one, for each process."""

_instructions: Instructions


def do_all(
    work: Iterable[Work], instructions: Instructions, jobs: int, progress: Progress
) -> Iterator[WorkResult]:
    """Do all the work.

    Raises:
        TfodError: a process died, for want of memory mostly.
    """
    if jobs <= 1:
        for one in work:
            yield do_work(one, instructions, progress)
        return
    # Fresh processes: forking one that has threads is not safe.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, _start, (instructions,))
    waiting: deque[Future[tuple[WorkResult, int]]] = deque()
    try:
        for one in work:
            waiting.append(pool.submit(_do, one))
            if len(waiting) > jobs * _AHEAD:
                yield _next(waiting, progress)
        while waiting:
            yield _next(waiting, progress)
    except BrokenProcessPool:
        raise TfodError(
            "a process of the check died, for want of memory perhaps; try --jobs 1"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _next(waiting: deque[Future[tuple[WorkResult, int]]], progress: Progress) -> WorkResult:
    result, read = waiting.popleft().result()
    progress(read)
    return result


def _start(instructions: Instructions) -> None:
    global _instructions
    _instructions = instructions


def _do(work: Work) -> tuple[WorkResult, int]:
    read = 0

    def count(more: int) -> None:
        nonlocal read
        read += more

    return do_work(work, _instructions, count), read
