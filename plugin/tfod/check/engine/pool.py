"""Examines inputs in several processes; the results come in the order of the inputs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from multiprocessing import resource_tracker
from multiprocessing.synchronize import Event
from typing import TypeAlias

from tfod.check.duplicates.row_blocks import RowStore
from tfod.check.engine.inputs import (
    Input,
    Progress,
    examine,
    in_parts,
)
from tfod.check.records.instructions import Instructions
from tfod.check.records.result import Result
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
    inputs: Sequence[Input],
    instructions: Instructions,
    jobs: int,
    progress: Progress,
    folder: str | None,
) -> Iterator[Result]:
    """Examine all inputs, in parts where they are large.

    Raises:
        TfodError: a process died, mostly because memory ran out.
    """
    with closing(_done(inputs, instructions, jobs, folder)) as results:
        for result, read, records in results:
            progress(read, records)
            yield result


def _done(
    inputs: Sequence[Input], instructions: Instructions, jobs: int, folder: str | None
) -> Generator[_Done, None, None]:
    # Fresh processes: forking one that has threads is not safe.
    context = multiprocessing.get_context("spawn")
    jobs = min(jobs, _MOST_ON_WINDOWS) if os.name == "nt" else jobs
    stop = context.Event()
    pool = ProcessPoolExecutor(jobs, context, _start, (instructions, stop, folder))
    waiting: deque[Future[_Done]] = deque()
    done = False
    try:
        for one in (part for whole in inputs for part in in_parts(whole, instructions)):
            with _children_block_interrupts():
                waiting.append(pool.submit(_do, one))
            if len(waiting) > jobs * _AHEAD:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()
        done = True
    except BrokenProcessPool:
        raise TfodError(
            "a process of the check died, perhaps for want of memory; try --jobs 1"
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
    result = examine(one, _instructions, count, _store)
    return result, read, records


def _heed_stop() -> None:
    if _stop.is_set():
        raise _StoppedError


class _StoppedError(Exception):
    """The result is not wanted any more."""
