"""Examination of shards in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Event

from tfod.checker.analysis.examine import Instructions, Step, examine
from tfod.checker.analysis.result import ShardResult
from tfod.errors import TfodError
from tfod.sources.resolved import Shard
from tfod.tfrecord.progress import PROGRESS

_MAX_QUEUED = 2  # shards per process, including those whose results wait for an earlier one
_MAX_ON_WINDOWS = 61  # the number of handles that Windows can wait for
_STOP_SECONDS = 3.0  # time for a process to notice that it must stop
_PROGRESS_SECONDS = 0.2
_instructions: Instructions
_stop: Event
_done: SynchronizedArray[int]
"""The bytes and records that all processes have read."""


def examine_in_processes(
    shards: Sequence[Shard], instructions: Instructions, jobs: int
) -> Iterator[Step | ShardResult]:
    """Yield the results of shards in their order, and the progress of all processes as steps.

    Raises TfodError if a process died, usually because it ran out of memory.
    """
    # Not forked, because forking a process with threads is not safe.
    context = multiprocessing.get_context("spawn")
    jobs = min(jobs, len(shards), _MAX_ON_WINDOWS if os.name == "nt" else jobs)
    stop, done, reported = context.Event(), context.Array("q", 2), [0, 0]
    pool = ProcessPoolExecutor(jobs, context, _start, (instructions, stop, done))
    futures: deque[Future[ShardResult]] = deque()
    remaining = iter(shards)
    try:
        while True:
            for shard in remaining:
                with _children_block_interrupts():
                    futures.append(pool.submit(_examine, shard))
                if len(futures) > jobs * _MAX_QUEUED:
                    break
            if not futures:
                return
            is_done = False
            while not is_done:
                is_done = bool(wait(list(futures)[:1], _PROGRESS_SECONDS).done)
                read, records = (new - old for new, old in zip(done[:], reported, strict=True))
                reported = [reported[0] + read, reported[1] + records]
                PROGRESS.add_records(records, read)
                yield Step(read, records)
            yield futures.popleft().result()
    except BrokenProcessPool:
        raise TfodError(
            "a process of the check died, perhaps because it ran out of memory; try --jobs 1"
        ) from None
    finally:
        # Killing a process while it sends a result would leave the pool waiting forever.
        stop.set()
        # A process that is just starting still needs the objects of this one.
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _children_block_interrupts() -> Iterator[None]:
    """Make processes that are started in this context ignore Ctrl-C from their first moment.

    An interrupt of this process is delivered at the end. Blocking the signal is not enough for
    that: the system may deliver it to another thread, and Python then handles it in this one.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows, only _start ignores it
        yield
        return
    # Starting the tracker would unblock the signal.
    resource_tracker.ensure_running()
    interrupts: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    is_handled = handler is not None and threading.current_thread() is threading.main_thread()
    if is_handled:
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_handled:
            signal.signal(signal.SIGINT, handler)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


def _start(instructions: Instructions, stop: Event, done: SynchronizedArray[int]) -> None:
    global _instructions, _stop, _done
    _instructions, _stop, _done = instructions, stop, done
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started the check handles it
    threading.Thread(target=_exit_if_stuck, daemon=True).start()


def _examine(shard: Shard) -> ShardResult:
    _raise_if_stopped()
    return examine(shard, _instructions, _report)


def _report(read: int, records: int) -> None:
    with _done:
        _done[0] += read
        _done[1] += records
    _raise_if_stopped()


def _exit_if_stuck() -> None:
    """End this process some time after the stop: it may be waiting for a server."""
    _stop.wait()
    time.sleep(_STOP_SECONDS)
    os._exit(1)


def _raise_if_stopped() -> None:
    if _stop.is_set():
        raise _StoppedError


class _StoppedError(Exception):
    """The result is no longer needed."""
