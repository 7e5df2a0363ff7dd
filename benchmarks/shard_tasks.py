"""Measurements of the chores of shards, against a plain copy with checksums."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Sample

_COPY = Path(__file__).with_name("checked_copy.py")


def reshard_with_tfod(shard: str, records: int, num_shards: int) -> Sample:
    """The walk itself: Python runs, and all modules are loaded."""
    from tfod.shards.rearrange.reshard import reshard
    from tfod.tfrecord.shard_layout import ShardLayout

    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        done = reshard(shard, folder, ShardLayout(num_shards=num_shards))
        seconds = time.perf_counter() - begin
        assert sum(done.records.values()) == records
        return Sample(seconds, records)


def copy_with_checksums(shard: str, records: int) -> Sample:
    """The same bytes, in blocks."""
    from checked_copy import copy

    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        read, written = copy(shard, f"{folder}/copy")
        seconds = time.perf_counter() - begin
        assert read == written
        return Sample(seconds, records)


def run_reshard(shard: str, records: int, num_shards: int) -> Sample:
    """A whole process: ``tfod reshard``."""
    with tempfile.TemporaryDirectory() as folder:
        program = "from tfod.cli.main import main; raise SystemExit(main())"
        command = [sys.executable, "-c", program, "reshard", shard, "-o", folder]
        return _time_of([*command, "--num-shards", str(num_shards)], records)


def run_copy(shard: str, records: int) -> Sample:
    """A whole process: the copy."""
    with tempfile.TemporaryDirectory() as folder:
        return _time_of([sys.executable, str(_COPY), shard, f"{folder}/copy"], records)


def _time_of(command: list[str], records: int) -> Sample:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Sample(time.perf_counter() - begin, records)
