"""Measure tfod and other programs on the same files, and print a table.

    python benchmarks/run.py [--quick] [--only import ...]

Needs Linux, and ``pip install -e .[test] panlabel``: tfod, Datumaro 1.13, and TensorFlow, which
Datumaro's plugin needs. Every value is the median of several new processes, of tfod and its peer
alternately. ``TFOD_KERNEL=0`` disables the compiled kernel of tfod. The exit status is 1 if a
target is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from data import Data, make_data
from rows import SECTIONS
from sizes import FULL, QUICK
from table import WIDTH, Row, Verdict, format_line
from tfod.kernel import WHY_NOT_COMPILED

_NOTES = """
Times are per record: the median of at least {repeats} new processes, of tfod and its peer
alternately, after a warm-up. They are CPU times of all threads, but wall times for start-up,
training, two processes and CVAT. (a / b): tfod processed a records, and its peer, which is slow,
the first b of these; its memory is extrapolated.
"""


def main() -> int:
    options = _parse_arguments()
    print(_environment())
    with tempfile.TemporaryDirectory(prefix="tfod-benchmark-", dir=options.folder) as folder:
        os.environ["TMPDIR"] = folder  # also for exports
        data = make_data(Path(folder), QUICK if options.quick else FULL)
        missed = _print_table(data, options.only or list(SECTIONS))
    return int(missed > 0)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer records, fewer repeats")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="measure only these sections")
    parser.add_argument("--folder", help="folder for the temporary data")
    return parser.parse_args()


def _print_table(data: Data, names: list[str]) -> int:
    missed = 0
    for name in names:
        for line in SECTIONS[name](data):
            print(format_line(line), flush=True)
            missed += isinstance(line, Row) and line.verdict is Verdict.MISSED
    print("-" * WIDTH, _NOTES.format(repeats=data.sizes.repeats), sep="")
    return missed


def _environment() -> str:
    parts = [f"Python {platform.python_version()}", f"{os.cpu_count()} cores"]
    for package in ("tfod", "datumaro", "tensorflow-cpu", "tensorflow", "numpy"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join([*parts, f"kernel: {WHY_NOT_COMPILED or 'compiled'}"])


if __name__ == "__main__":
    sys.exit(main())
