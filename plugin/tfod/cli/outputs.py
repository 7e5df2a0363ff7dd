"""``--format NAME[=FILE]`` and ``--output FILE``: in which formats a result goes where.

A command adds the options with the formats that it has, begins the outputs before its work, and
hands a function that renders the result in one of them to what it was given. All files appear
together, when all of them are written, or not at all; a source is never overwritten.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfod.cli.command_line import begin_file, print_text
from tfod.errors import TfodError
from tfod.tfrecord.storage.publishing import AtomicFile, publish_together
from tfod.tfrecord.storage.urls import require_local

if TYPE_CHECKING:
    from tfod.check.findings.report import Report


@dataclass(frozen=True)
class Output:
    """One format, and where it goes: a file, or standard output where there is no path."""

    format: str
    path: str | None = None

    @property
    def color(self) -> bool:
        """Whether to colour it, by https://no-color.org and https://force-color.org."""
        if self.path is not None or sys.stdout is None:
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    @property
    def is_on_github(self) -> bool:
        """Whether it is printed in a step of GitHub Actions, which takes commands from it."""
        return self.path is None and os.environ.get("GITHUB_ACTIONS") == "true"


REPORT_FORMATS = ("text", "json", "html", "junit", "sarif", "github", "gitlab")
"""Of a report; all but text and HTML say the same whatever the command."""
Render = Callable[[Output], str]
"""Writes the result of a command in the format of an output."""


def add_output_options(parser: argparse._ActionsContainer, formats: Sequence[str]) -> None:
    """Add ``--format`` and ``--output``; the first of the formats is the default."""

    def parse(text: str) -> Output:
        name, is_file, path = text.partition("=")
        if name not in formats or (is_file and not path):
            names = ", ".join(formats)
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=FILE, of {names}")
        return Output(name, path or None)

    text = f"{', '.join(formats)} (default: {formats[0]}), written to standard output or to FILE; "
    text += "may be given several times"
    parser.add_argument(
        "--format", action="append", type=parse, metavar="NAME[=FILE]", dest="outputs", help=text
    )
    text = "where a single --format goes"
    parser.add_argument("--output", metavar="FILE", help=text)
    parser.set_defaults(default_output=Output(formats[0]))


def outputs_of(arguments: argparse.Namespace) -> list[Output]:
    """The outputs that were asked for; TfodError where two would go to the same place."""
    outputs: list[Output] = arguments.outputs or [arguments.default_output]
    if arguments.output is not None:
        if len(outputs) > 1 or outputs[0].path is not None:
            raise TfodError("--output goes with one --format NAME; write --format NAME=FILE")
        outputs = [Output(outputs[0].format, arguments.output)]
    taken: dict[str | None, Output] = {}
    for one in outputs:
        require_local(one.path or "")
        other = taken.setdefault(one.path and os.path.realpath(one.path), one)
        if other is not one:
            where = one.path or "standard output"
            raise TfodError(
                f"--format {other.format} and --format {one.format} both go to {where}; write "
                f"--format {one.format}=FILE with another file"
            )
    return outputs


@contextmanager
def begin_outputs(
    outputs: Sequence[Output], sources: Iterable[str]
) -> Iterator[Callable[[Render], None]]:
    """Begin all outputs before the work, so that one which cannot be written shows first.

    Yields:
        What takes the function that renders the result, and writes all outputs: files first,
        whole and together, then devices and standard output.

    Raises:
        TfodError: an output cannot be written, or is one of the sources, paths that are read.
    """
    read = [one for one in sources if os.path.exists(one)]
    files: dict[str, AtomicFile] = {}
    streams: dict[str | None, Callable[[bytes], object]] = {None: _print}
    with ExitStack() as stack:
        for path in (one.path for one in outputs):
            if path is None:
                continue
            if os.path.exists(path) and not os.path.isfile(path):
                streams[path] = stack.enter_context(open(path, "wb")).write
                continue
            if os.path.exists(path) and any(os.path.samefile(path, one) for one in read):
                raise TfodError(f"{path}: this is one of the sources; name another file")
            files[path] = begin_file(path, overwrite=True)
            stack.callback(files[path].discard)

        def write(render: Render) -> None:
            rendered = {one.path: render(one).encode("utf-8", "replace") for one in outputs}
            for path, file in files.items():
                file.write(rendered[path])
            _publish(files.values())
            for place in rendered.keys() & streams.keys():
                streams[place](rendered[place])

        yield write


def _print(text: bytes) -> None:
    print_text(text.decode())


def _publish(files: Collection[AtomicFile]) -> None:
    """Give the files their names; a single one replaces what is there in one step."""
    if len(files) == 1:
        for file in files:
            file.publish()
        return
    for file in files:
        file.complete()
    publish_together({file.path: file.aside for file in files})


# Reports


def render_report(name: str, report: Report) -> str:
    """A report in one of the formats for programs."""
    modules = {"json": "json_and_junit", "junit": "json_and_junit", "sarif": "sarif"}
    module = f"tfod.check.reporters.{modules.get(name, 'github_and_gitlab')}"
    renderer: Callable[[Report], str] = getattr(importlib.import_module(module), f"render_{name}")
    return renderer(report)


def annotated(text: str, report: Report) -> str:
    """The text of a report for the log of GitHub Actions, which shows the findings by files."""
    from tfod.check.reporters.github_and_gitlab import protect_from_commands, render_github

    return protect_from_commands(text) + render_github(report)
