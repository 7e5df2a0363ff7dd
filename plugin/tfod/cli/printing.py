"""What commands print, and ``--output FILE``: where a report goes.

A command begins its report before its work, so that one which cannot be written shows first. It
appears whole or not at all, and takes the place of a former one unasked, as that of a compiler, a
linter or a test runner does; datasets take that of others only with ``--overwrite``. What is read
is never written over.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tfod.checker.reporters.escaping import visible
from tfod.errors import TfodError

if TYPE_CHECKING:
    from tfod.sources.resolved import ResolvedSources


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Errors of the system within say what they are about; a broken pipe stays one."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, error.filename or path) from None


def print_text(text: str) -> None:
    """Write to standard output, which :func:`tfod.cli.main.main` has made UTF-8."""
    if sys.stdout is None:
        raise TfodError("standard output is closed; use --output")
    with naming("standard output"):
        sys.stdout.write(text)
        sys.stdout.flush()


def print_line(text: str) -> None:
    """Write a line to standard output; names in it do not steer the terminal."""
    print_text(visible(text) + "\n")


def print_note(text: str, command: str = "tfod") -> None:
    """Write a line about the run, and those indented below it, to standard error."""
    lines = map(visible, text.split("\n  "))  # names do not steer the terminal
    print(f"{command}: " + "\n  ".join(lines), file=sys.stderr)


class Output(NamedTuple):
    """What takes the parts of a report, and what is called when all of it must have been taken."""

    write: Callable[[str], None]
    complete: Callable[[], None]


@contextmanager
def begin_output(path: str | None, sources: Iterable[str | None]) -> Iterator[Output]:
    """Begin a report: a file, or standard output where there is no path.

    Args:
        path: of the file, which is replaced; a device is written to as it is.
        sources: what is read, as :class:`ProtectedPaths` takes it.

    Raises:
        TfodError: the report cannot be written, is one of the sources, or would replace a shard.
    """
    if path is None:
        yield Output(print_text, lambda: None)
        return
    # Most reports go to the screen.
    from tfod.tfrecord.shard_sets.search import looks_like_shard
    from tfod.tfrecord.storage import publishing

    publishing.ProtectedPaths(sources).require_unprotected(path)
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a terminal, say
        with naming(path), open(path, "wb") as device:

            def write(text: str) -> None:
                device.write(_utf8(text))

            yield Output(write, device.flush)
        return
    if os.path.exists(path) and looks_like_shard(path):
        what = "is a shard, which no report replaces; name another place"
        raise publishing.OutputExistsError(f"{path}: {what}")
    with publishing.Output() as output:
        file = output.file(os.path.realpath(path))
        yield Output(lambda text: file.write(_utf8(text)), file.complete)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def files_of(found: ResolvedSources) -> list[str | None]:
    """The files on this machine that a command reads which looks for data sets."""
    shards = [one.path for one in found.files if not one.is_remote]
    maps = [one.path for each in found.datasets for one in each.label_maps.values()]
    return [*shards, *maps, found.label_map]


def files_among(*named: str | None) -> list[str]:
    """Those of some options that name a file; others are not given, or name what tfod ships."""
    return [one for one in named if one and os.path.isfile(one)]
