"""Measures `tfod check` as data grows: cost per record and peak memory, as tables in Markdown.

    python benchmarks/scale.py [--quick] [--only shards ...] [--write] [--folder DIR]

It needs Linux, 8 GB of disk and about an hour; with --quick a minute and 100 MB. Data is made on
the fly (`scale_data.py`). Every value is of a fresh process and the median of several, taken in
turn. --write puts the tables into docs/benchmarks.md. Exit status 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from scale_rows import SECTIONS, Scale
from scale_sizes import FULL, QUICK

_PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def main() -> int:
    options = _parse_arguments()
    with tempfile.TemporaryDirectory(prefix="tfod-scale-", dir=options.folder) as folder:
        os.environ["TMPDIR"] = folder  # rows are laid aside there too
        scale = Scale(Path(folder), QUICK if options.quick else FULL)
        for name in options.only or SECTIONS:
            text = "\n".join([*SECTIONS[name](scale), "", f"({_environment()})"])
            print(f"\n## {name}\n\n{text}", flush=True)
            if options.write:
                _write(name, text)
    return int(scale.missed > 0)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer records, one round")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections alone")
    parser.add_argument("--write", action="store_true", help=f"put them into {_PAGE.name}")
    parser.add_argument("--folder", help="make the data in this folder, then remove it")
    return parser.parse_args()


def _write(name: str, text: str) -> None:
    """Replace what is between the marks of a section."""
    page = _PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    found = re.search(re.escape(begin) + "(.*?)" + re.escape(end), page, re.DOTALL)
    assert found, f"{_PAGE}: no marks of {name}"
    page = page[: found.start(1)] + text + "\n" + page[found.end(1) :]
    _PAGE.write_text(page, encoding="utf-8")


def _environment() -> str:
    parts = [f"Python {platform.python_version()}", f"{os.cpu_count()} cores"]
    return ", ".join([*parts, *(f"{one} {version(one)}" for one in ("tfod", "numpy"))])


if __name__ == "__main__":
    sys.exit(main())
