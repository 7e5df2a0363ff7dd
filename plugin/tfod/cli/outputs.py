"""``--format NAME`` and ``--output FILE``: how a result is written, and where.

A command begins its output before its work, so that one which cannot be written shows first. A
file appears whole or not at all, and a source is never overwritten.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from tfod.cli.command_line import begin_file, print_text
from tfod.errors import TfodError


def add_output_options(parser: argparse._ActionsContainer, formats: Sequence[str]) -> None:
    """Add ``--format`` and ``--output``; the first of the formats is the default."""
    text = f"{', '.join(formats)} (default: {formats[0]})"
    add = parser.add_argument
    add("--format", choices=formats, default=formats[0], metavar="NAME", help=text)
    add("-o", "--output", metavar="FILE", help="where the report goes, if not on the screen")


@contextmanager
def begin_output(path: str | None, sources: Iterable[str]) -> Iterator[Callable[[str], None]]:
    """Begin an output: a file, or standard output where there is no path.

    Args:
        path: of the file, which is replaced; a device is written to as it is.
        sources: paths of what is read, none of which may be the file.

    Yields:
        What writes all of the output.

    Raises:
        TfodError: the output cannot be written, or is one of the sources.
    """
    if path is None:
        yield print_text
    elif os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8", errors="replace") as stream:
            yield lambda text: print(text, end="", file=stream)
    elif os.path.exists(path) and any(map(_is_same(path), sources)):
        raise TfodError(f"{path}: this is one of the sources; name another file")
    else:
        with begin_file(path, overwrite=True) as file:
            yield lambda text: file.write(text.encode("utf-8", "replace"))


def _is_same(path: str) -> Callable[[str], bool]:
    return lambda source: os.path.exists(source) and os.path.samefile(path, source)
