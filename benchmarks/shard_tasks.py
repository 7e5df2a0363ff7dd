"""Measurements of commands: reshard against a plain copy with checksums, check and convert against
panlabel, convert against Datumaro."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Sample, Stopwatch

_TFOD = [sys.executable, "-c", "from tfod.cli.main import main; raise SystemExit(main())"]
_COPY = Path(__file__).with_name("checked_copy.py")


def reshard_with_tfod(shard: str, records: int, num_shards: int) -> Sample:
    """The walk itself: Python runs, and all modules are loaded."""
    from tfod.shards.reshard import reshard
    from tfod.tfrecord.writer import ShardLayout

    with tempfile.TemporaryDirectory() as folder:
        watch = Stopwatch()
        done = reshard(shard, folder, ShardLayout(num_shards=num_shards))
        sample = watch.sample(records)
        assert sum(done.records.values()) == records
        return sample


def copy_with_checksums(shard: str, records: int) -> Sample:
    """The same bytes, in blocks."""
    from checked_copy import copy

    with tempfile.TemporaryDirectory() as folder:
        watch = Stopwatch()
        read, written = copy(shard, f"{folder}/copy")
        sample = watch.sample(records)
        assert read == written
        return sample


def run_reshard(shard: str, records: int, num_shards: int) -> Sample:
    """A whole process: ``tfod reshard``."""
    with tempfile.TemporaryDirectory() as folder:
        layout = (folder, "--num-shards", str(num_shards))
        return _run([*_TFOD, "reshard", shard, *layout], records)


def run_copy(shard: str, records: int) -> Sample:
    """A whole process: the copy."""
    with tempfile.TemporaryDirectory() as folder:
        return _run([sys.executable, str(_COPY), shard, f"{folder}/copy"], records)


def run_check(shard: str, records: int) -> Sample:
    """A whole process: ``tfod check``."""
    return _run([*_TFOD, "check", shard, "--jobs", "1"], records)


def run_panlabel(shard: str, records: int) -> Sample:
    """A whole process: ``panlabel validate``."""
    return _run([_program("panlabel"), "validate", "--format", "tfrecord", shard], records)


def run_convert(shard: str, records: int) -> Sample:
    """A whole process: ``tfod convert`` to COCO."""
    with tempfile.TemporaryDirectory() as folder:
        return _run([*_TFOD, "convert", shard, f"{folder}/coco.json"], records)


def run_panlabel_convert(shard: str, records: int) -> Sample:
    """A whole process: ``panlabel convert`` to COCO; it refuses what it cannot keep otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        formats = ("--from", "tfrecord", "--to", "coco", "--allow-lossy")
        files = ("--input", shard, "--output", f"{folder}/coco.json")
        return _run([_program("panlabel"), "convert", *formats, *files], records)


def run_datum_convert(shard: str, records: int) -> Sample:
    """A whole process: ``datum convert`` to COCO, with tfod's importer."""
    with tempfile.TemporaryDirectory() as folder:
        formats = ("-if", "tf_detection_api", "-f", "coco_instances")
        files = ("-i", os.path.dirname(shard), "-o", f"{folder}/coco")
        return _run([_program("datum"), "convert", *formats, *files], records)


def _program(name: str) -> str:
    """A program beside this Python."""
    return str(Path(sys.executable).with_name(name))


def _run(command: list[str], records: int) -> Sample:
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)  # nobody waits again
        output.seek(0)
        assert not process.returncode, output.read()[-3000:].decode()
    cpu = usage.ru_utime + usage.ru_stime
    return Sample(seconds, records, peak_bytes=usage.ru_maxrss << 10, cpu_seconds=cpu)
