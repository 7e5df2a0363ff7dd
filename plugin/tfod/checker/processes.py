"""Examines shards in several processes; the results come in the order of the shards."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.synchronize import Event

from tfod.checker.analysis.examine import Instructions, Progress, examine
from tfod.checker.analysis.result import ShardResult
from tfod.errors import TfodError
from tfod.sources.resolved import Shard

_AHEAD = 2
"""Results that may wait for an earlier one, for each process."""
_MOST_ON_WINDOWS = 61
"""Handles that it waits for at a time."""
_LONGEST_END = 3.0
"""Seconds in which a process sees by itself that it shall end."""
_instructions: Instructions
_stop: Event


def examine_in_processes(
    shards: Sequence[Shard], instructions: Instructions, jobs: int, progress: Progress
) -> Iterator[ShardResult]:
    """Examine shards; is told of the progress once for each.

    Raises:
        TfodError: a process died, mostly because memory ran out.
    """
    # Fresh processes: forking one that has threads is not safe.
    context = multiprocessing.get_context("spawn")
    jobs = min(jobs, len(shards), _MOST_ON_WINDOWS if os.name == "nt" else jobs)
    stop = context.Event()
    pool = ProcessPoolExecutor(jobs, context, _start, (instructions, stop))
    waiting: deque[Future[ShardResult]] = deque()
    left = iter(shards)
    try:
        while True:
            for shard in left:
                with _children_block_interrupts():
                    waiting.append(pool.submit(_do, shard))
                if len(waiting) > jobs * _AHEAD:
                    break
            if not waiting:
                return
            result = waiting.popleft().result()
            progress(result.read, result.records)
            yield result
    except BrokenProcessPool:
        raise TfodError(
            "a process of the check died, perhaps for want of memory; try --jobs 1"
        ) from None
    finally:
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


def _start(instructions: Instructions, stop: Event) -> None:
    global _instructions, _stop
    _instructions, _stop = instructions, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that began the check
    threading.Thread(target=_end_what_is_stuck, daemon=True).start()


def _do(shard: Shard) -> ShardResult:
    _heed_stop()
    return examine(shard, _instructions, lambda *_: _heed_stop())


def _end_what_is_stuck() -> None:
    """End this process a while after its results are not wanted: it waits for a silent server."""
    _stop.wait()
    time.sleep(_LONGEST_END)
    os._exit(1)


def _heed_stop() -> None:
    if _stop.is_set():
        raise _StoppedError


class _StoppedError(Exception):
    """The result is not wanted any more."""
