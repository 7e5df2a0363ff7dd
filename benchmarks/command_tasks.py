"""Measurements of whole processes: check and convert, with tfod, panlabel and Datumaro."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Sample

_TFOD = [sys.executable, "-c", "from tfod.cli.main import main; raise SystemExit(main())"]


def run_version() -> Sample:
    return _run([*_TFOD, "--version"], 1)


def run_check(shard: str, records: int) -> Sample:
    return _run([*_TFOD, "check", shard, "--jobs", "1", "--decode", "200"], records)


def run_panlabel(shard: str, records: int) -> Sample:
    return _run([_program("panlabel"), "validate", "--format", "tfrecord", shard], records)


def run_convert(shard: str, records: int) -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        return _run([*_TFOD, "convert", shard, f"{folder}/coco.json"], records)


def run_panlabel_convert(shard: str, records: int) -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        # Without --allow-lossy, panlabel refuses to lose data.
        formats = ("--from", "tfrecord", "--to", "coco", "--allow-lossy")
        files = ("--input", shard, "--output", f"{folder}/coco.json")
        return _run([_program("panlabel"), "convert", *formats, *files], records)


def run_datum_convert(shard: str, records: int) -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        formats = ("-if", "tf_detection_api", "-f", "coco_instances")
        files = ("-i", os.path.dirname(shard), "-o", f"{folder}/coco")
        return _run([_program("datum"), "convert", *formats, *files], records)


def run_shards(folder: str, records: int, *options: str) -> Sample:
    """Convert a dataset of annotations to shards."""
    with tempfile.TemporaryDirectory() as out:
        return _run([*_TFOD, "convert", folder, f"{out}/shards", *options], records)


def run_datum_shards(folder: str, records: int, source_format: str, *options: str) -> Sample:
    with tempfile.TemporaryDirectory() as out:
        formats = ("-if", source_format, "-f", "tf_detection_api")
        files = ("-i", folder, "-o", f"{out}/shards", "--", *options)
        return _run([_program("datum"), "convert", *formats, *files], records)


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _run(command: list[str], records: int) -> Sample:
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)  # Popen must not wait again
        output.seek(0)
        assert not process.returncode, output.read()[-3000:].decode()
    cpu = usage.ru_utime + usage.ru_stime
    return Sample(seconds, records, peak_bytes=usage.ru_maxrss << 10, cpu_seconds=cpu)
