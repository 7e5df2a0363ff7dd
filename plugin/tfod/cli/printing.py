"""Standard output, standard error, and ``--output FILE``.

A command opens its report before it starts its work, so that an unwritable file is reported first.
The report appears complete or not at all. It replaces an earlier report without ``--overwrite``,
like the output of a compiler. Input files are never overwritten.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tfod.checker.reporters.escaping import visible
from tfod.cli.progress_line import erase_line
from tfod.errors import TfodError

if TYPE_CHECKING:
    from tfod.sources.resolved import ResolvedSources


@contextmanager
def name_in_errors(path: str) -> Iterator[None]:
    """Add a path to an OSError without one; the type of the error is kept."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, error.filename or path) from None


def print_text(text: str) -> None:
    """Write to standard output, which :func:`tfod.cli.main.main` has made UTF-8."""
    if sys.stdout is None:
        raise TfodError("standard output is closed; use --output")
    erase_line()
    with name_in_errors("standard output"):
        sys.stdout.write(text)
        sys.stdout.flush()


def print_line(text: str) -> None:
    """Write a line to standard output, with control characters escaped."""
    print_text(visible(text) + "\n")


def print_note(text: str, command: str = "tfod") -> None:
    """Write a line and the indented lines below it to standard error, escaped as well."""
    erase_line()
    lines = map(visible, text.split("\n  "))
    print(f"{command}: " + "\n  ".join(lines), file=sys.stderr)


class Output(NamedTuple):
    """The functions that write a part of a report, and that check that all was written."""

    write: Callable[[str], None]
    complete: Callable[[], None]


@contextmanager
def begin_output(path: str | None, inputs: Iterable[str | None]) -> Iterator[Output]:
    """Open a report: a file, which is replaced, or standard output if the path is None.

    A path that is unwritable, among the inputs, or a shard raises TfodError.
    """
    if path is None:
        yield Output(print_text, lambda: None)
        return
    # Imported late, since most reports are printed on the screen.
    from tfod.tfrecord.shard_sets.search import looks_like_shard
    from tfod.tfrecord.storage import publishing

    publishing.ProtectedPaths(inputs).require_unprotected(path)
    if os.path.exists(path) and not os.path.isfile(path):  # for example a pipe or a terminal
        with name_in_errors(path), open(path, "wb") as device:

            def write(text: str) -> None:
                device.write(_encode(text))

            yield Output(write, device.flush)
        return
    if os.path.exists(path) and looks_like_shard(path):
        message = f"{path} is a shard, which a report cannot replace; choose another file"
        raise publishing.OutputExistsError(message)
    with publishing.Output() as output:
        file = output.file(os.path.realpath(path))
        yield Output(lambda text: file.write(_encode(text)), file.complete)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def list_source_files(sources: ResolvedSources) -> list[str | None]:
    """Return the local files that are read for some sources, with their label maps."""
    shards = [file.path for file in sources.files if not file.is_remote]
    label_maps = [file.path for dataset in sources.datasets for file in dataset.label_maps.values()]
    return [*shards, *label_maps, sources.label_map]


def existing_files(*options: str | None) -> list[str]:
    """Return the values of options that are files; others are None or names that tfod knows."""
    return [option for option in options if option and os.path.isfile(option)]
