"""Measures tfod and its peers on the same files and prints one table.

    python benchmarks/run.py [--quick] [--only import ...]

Needs Linux and an environment with tfod, Datumaro 1.13 and TensorFlow, without which Datumaro's
own plugin does nothing: ``pip install -e .[test] panlabel``. Every value comes from a fresh
process, tfod and the peer in turn, and is the median of several. With ``TFOD_KERNEL=0`` tfod does
without its compiled kernel. Exit status 1 when a target is missed.
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
from table import WIDTH, Row, Verdict, text_of
from tfod.kernel import WHY_NOT_COMPILED

_NOTES = """
Times are for one record: the median of {repeats} fresh processes or more, tfod and its peer in
turn, after a warm-up. They are of the processor, all threads together; of start-up, training, two
processes and CVAT they are of the clock. (a / b): tfod had a records, its peer the first b of the
same, as it is slow; its memory is scaled to all of them.
"""


def main() -> int:
    options = _parse_arguments()
    print(_environment())
    with tempfile.TemporaryDirectory(prefix="tfod-benchmark-", dir=options.folder) as folder:
        os.environ["TMPDIR"] = folder  # exports go there too
        data = make_data(Path(folder), QUICK if options.quick else FULL)
        missed = _print_table(data, options.only or list(SECTIONS))
    return int(missed > 0)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer records, fewer repeats")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections alone")
    parser.add_argument("--folder", help="make the data in this folder, then remove it")
    return parser.parse_args()


def _print_table(data: Data, names: list[str]) -> int:
    """Print all rows as they come; return how many targets are missed."""
    missed = 0
    for name in names:
        for line in SECTIONS[name](data):
            print(text_of(line), flush=True)
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
