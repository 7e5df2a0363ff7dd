"""``--format NAME`` and ``--output FILE``: how a report is written, and where.

A command begins its report before its work, so that one which cannot be written shows first. It
appears whole or not at all, and takes the place of a former one unasked, as that of a compiler, a
linter or a test runner does; datasets take that of others only with ``--overwrite``. What is read
is never written over.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tfod.cli.command_line import print_text

if TYPE_CHECKING:
    from tfod.check.dataset import Found


def add_output_options(parser: argparse._ActionsContainer, formats: Sequence[str]) -> None:
    """Add ``--format`` and ``--output``; the first of the formats is the default."""
    text = f"{', '.join(formats)} (default: {formats[0]})"
    add = parser.add_argument
    add("--format", choices=formats, default=formats[0], metavar="NAME", help=text)
    add("-o", "--output", metavar="FILE", help="where the report goes, if not on the screen")


class Output(NamedTuple):
    """What takes the parts of a report, and what is called when all of it must have been taken."""

    write: Callable[[str], None]
    complete: Callable[[], None]


@contextmanager
def begin_output(path: str | None, sources: Iterable[str | None]) -> Iterator[Output]:
    """Begin a report: a file, or standard output where there is no path.

    Args:
        path: of the file, which is replaced; a device is written to as it is.
        sources: what is read, as :class:`ReadPaths` takes it.

    Raises:
        TfodError: the report cannot be written, is one of the sources, or would replace a shard.
    """
    if path is None:
        yield Output(print_text, lambda: None)
        return
    # Most reports go to the screen.
    from tfod.tfrecord.shard_sets.search import looks_like_shard
    from tfod.tfrecord.storage.publishing import AtomicFile
    from tfod.tfrecord.storage.read_paths import OutputExistsError, ReadPaths

    ReadPaths(sources).require_other(path)
    if os.path.exists(path) and not os.path.isfile(path):
        with _device(path) as write:
            yield Output(write, lambda: None)
        return
    if os.path.exists(path) and looks_like_shard(path):
        raise OutputExistsError(f"{path}: is a shard, which no report replaces; name another place")
    with AtomicFile(os.path.realpath(path)) as file:
        yield Output(lambda text: file.write(text.encode("utf-8", "replace")), file.complete)


@contextmanager
def _device(path: str) -> Iterator[Callable[[str], None]]:
    """A pipe or a terminal, say; unbuffered, so that what it does not take shows at once."""
    handle = os.open(path, os.O_WRONLY)

    def write(text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        try:
            while data:
                data = data[os.write(handle, data) :]
        except OSError as error:
            raise type(error)(error.errno, error.strerror, path) from None

    try:
        yield write
    finally:
        os.close(handle)


def files_of(found: Found) -> list[str | None]:
    """The files on this machine that a command reads which looks for data sets."""
    shards = [one.path for one in found.files if not one.is_remote]
    maps = [one.path for each in found.datasets for one in each.label_maps.values()]
    return [*shards, *maps, found.label_map]


def files_among(*named: str | None) -> list[str]:
    """Those of some options that name a file; others are not given, or name what tfod ships."""
    return [one for one in named if one and os.path.isfile(one)]
