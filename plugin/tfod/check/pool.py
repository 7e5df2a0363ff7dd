"""Examines inputs in several processes; the results come in the order of the inputs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.synchronize import Event
from typing import TypeAlias

from tfod.check.duplicates.row_store import RowStore
from tfod.check.plan import Input
from tfod.check.records.examined import Instructions
from tfod.check.result import Result
from tfod.check.shard import Progress, examine
from tfod.errors import TfodError
from tfod.tfrecord.storage.remote_timeout import set_interrupt

_AHEAD = 2
"""Results that may wait for an earlier one, for each process."""

_MOST_ON_WINDOWS = 61
"""Handles that it waits for at a time."""

_Done: TypeAlias = "tuple[Result, int, int]"
"""A result, and the bytes and records that were read for it."""
_instructions: Instructions
_stop: Event
_store: RowStore


def examine_in_processes(
    inputs: Iterable[Input],
    instructions: Instructions,
    jobs: int,
    progress: Progress,
    folder: str | None,
) -> Iterator[tuple[Input, Result]]:
    """Examine all inputs.

    Args:
        inputs: what is to be examined.
        instructions: the same for all of it.
        jobs: how many processes.
        progress: is given what was read.
        folder: where rows go that memory is too small for; None to keep all in memory.

    Raises:
        TfodError: a process died, for want of memory mostly.
    """
    # Fresh processes: forking one that has threads is not safe.
    context = multiprocessing.get_context("spawn")
    jobs = min(jobs, _MOST_ON_WINDOWS) if os.name == "nt" else jobs
    stop = context.Event()
    pool = ProcessPoolExecutor(jobs, context, _start, (instructions, stop, folder))
    waiting: deque[tuple[Input, Future[_Done]]] = deque()
    done = False
    try:
        for one in inputs:
            with _children_block_interrupts():
                waiting.append((one, pool.submit(_do, one)))
            if len(waiting) > jobs * _AHEAD:
                yield _next(waiting, progress)
        while waiting:
            yield _next(waiting, progress)
        done = True
    except BrokenProcessPool:
        raise TfodError(
            "a process of the check died, for want of memory perhaps; try --jobs 1"
        ) from None
    finally:
        if not done:
            # Not killed: a process that dies while it sends a result leaves the pool waiting.
            stop.set()
        # Waited for, since a process that is just starting needs what this one holds.
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _children_block_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile leave Ctrl-C to this one, from their first moment.

    An interrupt in between is not lost: it waits until the end. The mask alone does not see to
    that, since the system may hand the signal to another thread, and Python acts on it in this one.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows: they see to it themselves
        yield
        return
    # Its start would lift the block.
    resource_tracker.ensure_running()
    interrupts: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    handled = handler is not None and threading.current_thread() is threading.main_thread()
    if handled:
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handled:
            signal.signal(signal.SIGINT, handler)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


def _next(waiting: deque[tuple[Input, Future[_Done]]], progress: Progress) -> tuple[Input, Result]:
    one, future = waiting.popleft()
    result, read, records = future.result()
    progress(read, records)
    return one, result


def _start(instructions: Instructions, stop: Event, folder: str | None) -> None:
    global _instructions, _stop, _store
    _instructions, _stop, _store = instructions, stop, RowStore(folder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that began the check
    set_interrupt(_heed_stop)  # what waits for a server makes no progress


def _do(one: Input) -> _Done:
    read = records = 0

    def count(more: int, more_records: int) -> None:
        nonlocal read, records
        read += more
        records += more_records
        _heed_stop()

    _heed_stop()
    return examine(one, _instructions, count, _store), read, records


def _heed_stop() -> None:
    if _stop.is_set():
        raise _StoppedError


class _StoppedError(Exception):
    """The result is not wanted any more."""
