"""Runs one measurement in a process of its own, and two sides of a comparison in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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
    """

    seconds: float = 0.0
    records: int = 0
    boxes: int = 0
    peak_bytes: int = 0

    @property
    def seconds_per_record(self) -> float:
        """Time for one record."""
        return self.seconds / self.records


def best_pass(walk: Walk) -> Sample:
    """The best of several passes: the first one of TensorFlow builds its graph and tunes itself."""
    samples = []
    for _ in range(_PASSES):
        records = boxes = 0
        begin = time.perf_counter()
        for more_records, more_boxes in walk():
            records += more_records
            boxes += more_boxes
        samples.append(Sample(time.perf_counter() - begin, records, boxes))
    return min(samples, key=lambda sample: sample.seconds)


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
    """Run two jobs in turn, so that a slow minute of the machine meets both; keep the best.

    The best is the one whose ``key`` is smallest.

    Raises:
        TaskFailedError: a job failed, or the records of the two differ.
    """
    pairs = [(run(ours), run(theirs)) for _ in range(repeats)]
    our_best = min((one for one, _ in pairs), key=key)
    their_best = min((one for _, one in pairs), key=key)
    if our_best.boxes * their_best.records != their_best.boxes * our_best.records:
        raise TaskFailedError(f"{ours} and {theirs} differ: {our_best}, {their_best}")
    return our_best, their_best


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
