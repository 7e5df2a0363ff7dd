"""Runs one measurement in a process of its own, and two sides of a comparison in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TASKS = Path(__file__).with_name("tasks.py")
_PASSES = 3

Walk = Callable[[], Iterator[tuple[int, int]]]
"""Reads a shard; hands out how many records and boxes came, again and again."""


class TaskFailedError(Exception):
    """A measurement's process ended with an error, or the two sides read different things."""


@dataclass(frozen=True)
class Job:
    """One call of a function of ``tasks.py``; ``peer`` turns tfod's plugin off."""

    task: str
    arguments: tuple[str | int, ...] = ()
    peer: bool = False


@dataclass(frozen=True)
class Sample:
    """What a measurement's process reports.

    Attributes:
        seconds: wall time.
        records: how many records were handled in that time.
        boxes: how many boxes they had, to see that both sides read the same.
        peak_bytes: the process's highest resident memory meanwhile, mapped files included.
        cpu_seconds: of all threads, which a busy machine changes less.
    """

    seconds: float = 0.0
    records: int = 0
    boxes: int = 0
    peak_bytes: int = 0
    cpu_seconds: float = 0.0


class Stopwatch:
    """Takes wall time, and CPU time of all threads of this process, since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def sample(self, records: int, boxes: int = 0, peak_bytes: int = 0) -> Sample:
        """What was handled in the time since then."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Sample(wall, records, boxes, peak_bytes, cpu)


def median_pass(walk: Walk) -> Sample:
    """The median of the passes but the first: there TensorFlow builds its graph, tunes itself."""
    samples = []
    for _ in range(1 + _PASSES):
        records = boxes = 0
        watch = Stopwatch()
        for more_records, more_boxes in walk():
            records += more_records
            boxes += more_boxes
        samples.append(watch.sample(records, boxes))
    return _median(samples[1:], lambda sample: sample.cpu_seconds)


def run(job: Job) -> Sample:
    """Run a job in a fresh process.

    Raises:
        TaskFailedError: it failed; the message ends with what it said.
    """
    environment = {
        **os.environ,
        "TFOD_ACTIVATE": "0" if job.peer else "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    done = subprocess.run(
        [sys.executable, str(_TASKS), job.task, json.dumps(job.arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise TaskFailedError(f"{job}\n{done.stderr[-3000:]}")
    return Sample(**json.loads(done.stdout.splitlines()[-1]))


def compare(
    ours: Job, theirs: Job, repeats: int, key: Callable[[Sample], float]
) -> tuple[Sample, Sample]:
    """Run two jobs in turn, so that a slow minute of the machine meets both; keep the medians.

    The median is that of ``key``.

    Raises:
        TaskFailedError: a job failed, or the records of the two differ.
    """
    pairs = [(run(ours), run(theirs)) for _ in range(repeats)]
    our_median, their_median = (_median(samples, key) for samples in zip(*pairs, strict=True))
    if our_median.boxes * their_median.records != their_median.boxes * our_median.records:
        raise TaskFailedError(f"{ours} and {theirs} differ: {our_median}, {their_median}")
    return our_median, their_median


def _median(samples: Sequence[Sample], key: Callable[[Sample], float]) -> Sample:
    return sorted(samples, key=key)[(len(samples) - 1) // 2]


def median_peak(job: Job, repeats: int) -> float:
    """The peak memory of a job in bytes, median of several runs."""
    return statistics.median(run(job).peak_bytes for _ in range(repeats))


def forget_peak_memory() -> None:
    """Let the kernel count this process's peak from now on (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Highest resident set in bytes, mapped files included; unlike ru_maxrss never the parent's."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmHWM" in line)
