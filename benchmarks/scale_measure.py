"""Runs ``tfod`` as a process, and takes down what it and its children cost."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from measure import TaskFailedError

_PROGRAM = "from tfod.cli.main import main; raise SystemExit(main())"
_LOOK_EVERY = 0.02  # seconds
Case = TypeVar("Case")


@dataclass(frozen=True)
class Cost:
    """What a process has cost.

    Attributes:
        seconds: wall time.
        cpu_seconds: of all its threads and children, which a busy machine changes less.
        peak_bytes: the highest resident memory of each of its processes, added up.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def run_tfod(*arguments: str) -> Cost:
    """Run a command to its end.

    Raises:
        TaskFailedError: it failed; the message ends with what it said.
    """
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments], stdout=output, stderr=output
        )
        peak = _PeakMemory(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)  # nobody waits again
        peaks = peak.stop()
        if process.returncode:
            output.seek(0)
            raise TaskFailedError(f"{arguments}\n{output.read()[-3000:].decode()}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, sum(peaks))


def in_turn(
    cases: Sequence[Case], measure: Callable[[Case], Cost], repeats: Callable[[Case], int]
) -> dict[Case, Cost]:
    """The median cost of each case: round by round, so that a slow minute meets them all."""
    costs: dict[Case, list[Cost]] = {case: [] for case in cases}
    for number in range(max(map(repeats, cases))):
        for case in cases:
            if number < repeats(case):
                costs[case].append(measure(case))
    return {case: median(found) for case, found in costs.items()}


def median(costs: Iterable[Cost]) -> Cost:
    """Of each figure the median."""
    found = list(costs)
    return Cost(
        statistics.median(one.seconds for one in found),
        statistics.median(one.cpu_seconds for one in found),
        int(statistics.median(one.peak_bytes for one in found)),
    )


class _PeakMemory:
    """Looks, in a thread, at the peaks of a process and of its descendants."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._peaks: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> list[int]:
        """The peak of each process in bytes."""
        self._stop.set()
        self._thread.join()
        return list(self._peaks.values())

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_EVERY):
            waiting = [self._process]
            while waiting:
                process = waiting.pop()
                try:
                    status = Path(f"/proc/{process}/status").read_text()
                    tasks = list(Path(f"/proc/{process}/task").glob("*/children"))
                    waiting += [int(one) for task in tasks for one in task.read_text().split()]
                except OSError:
                    continue  # it has ended
                for line in status.splitlines():
                    if line.startswith("VmHWM"):
                        self._peaks[process] = int(line.split()[1]) << 10
