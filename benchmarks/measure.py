"""Runs of measurements, each in a separate process, and comparisons of two jobs."""

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
"""A function that reads a shard, and yields the numbers of records and boxes of each step."""


class TaskFailedError(Exception):
    """The process of a measurement failed, or two jobs have read different data."""


@dataclass(frozen=True)
class Job:
    """A call of a function of ``tasks.py``; ``peer`` disables the Datumaro plugin of tfod."""

    task: str
    arguments: tuple[str | int, ...] = ()
    peer: bool = False


@dataclass(frozen=True)
class Sample:
    """The result of a measurement.

    Attributes:
        seconds: wall time.
        records: number of records processed.
        boxes: number of boxes of the records, to verify that both jobs read the same data.
        peak_bytes: maximum resident memory of the process, including mapped files.
        cpu_seconds: CPU time of all threads, which depends less on other processes.
    """

    seconds: float = 0.0
    records: int = 0
    boxes: int = 0
    peak_bytes: int = 0
    cpu_seconds: float = 0.0


class Stopwatch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def sample(self, records: int, boxes: int = 0, peak_bytes: int = 0) -> Sample:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Sample(wall, records, boxes, peak_bytes, cpu)


def median_pass(walk: Walk) -> Sample:
    """Return the median of several passes, after one in which TensorFlow builds its graph."""
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
    """Run a job in a new process; TaskFailedError contains its standard error."""
    environment = {
        **os.environ,
        "TFOD_ACTIVATE": "0" if job.peer else "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    process = subprocess.run(
        [sys.executable, str(_TASKS), job.task, json.dumps(job.arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise TaskFailedError(f"{job}\n{process.stderr[-3000:]}")
    return Sample(**json.loads(process.stdout.splitlines()[-1]))


def compare(
    ours: Job, theirs: Job, repeats: int, key: Callable[[Sample], float]
) -> tuple[Sample, Sample]:
    """Run two jobs alternately, so that both run under the same conditions; return the medians.

    Raises:
        TaskFailedError: a job failed, or the jobs have read different data.
    """
    pairs = [(run(ours), run(theirs)) for _ in range(repeats)]
    our_median, their_median = (_median(samples, key) for samples in zip(*pairs, strict=True))
    if our_median.boxes * their_median.records != their_median.boxes * our_median.records:
        raise TaskFailedError(f"{ours} and {theirs} differ: {our_median}, {their_median}")
    return our_median, their_median


def _median(samples: Sequence[Sample], key: Callable[[Sample], float]) -> Sample:
    return sorted(samples, key=key)[(len(samples) - 1) // 2]


def median_peak(job: Job, repeats: int) -> float:
    return statistics.median(run(job).peak_bytes for _ in range(repeats))


def reset_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Return the peak resident memory in bytes; ``ru_maxrss`` may be the parent's."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmHWM" in line)
