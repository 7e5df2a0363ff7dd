"""What several commands share: types and groups of options, and where their output goes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tfod.check.reporters.escaping import visible
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.errors import TfodError

if TYPE_CHECKING:
    from tfod.beam import Runner
    from tfod.check.profiles.profile import Profile
    from tfod.tfrecord.storage.publishing import AtomicFile

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_OPTION = "--runner"


def whole_number(least: int = 0, most: int | None = None) -> Callable[[str], int]:
    """A type for argparse: a number in digits, from ``least`` to ``most``."""
    bounds = f"from {least:,} to {most:,}" if most is not None else f"of {least} or more"

    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {bounds}")
        return number

    return parse


def limit(variable: str, default: int) -> int:
    """A limit that a variable of the environment sets.

    Raises TfodError where that is not a whole number of 1 or more.
    """
    text = os.environ.get(variable)
    try:
        return whole_number(1)(text) if text else default
    except argparse.ArgumentTypeError as error:
        raise TfodError(f"{variable}: {error}") from None


def file_name(text: str) -> str:
    """A type for argparse: a path, which a variable of a script that is not set is not."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a file")
    return text


def add_number(
    parser: argparse._ActionsContainer,
    name: str,
    text: str,
    default: int | None = None,
    *,
    least: int = 1,
    most: int | None = None,
    metavar: str = "N",
) -> None:
    """Add an option that takes a whole number."""
    kind = whole_number(least, most)
    parser.add_argument(name, type=kind, default=default, metavar=metavar, help=text)


def add_label_map(parser: argparse._ActionsContainer) -> None:
    """Add ``--label-map`` to a command that reads shards."""
    text = "for all shards, in place of those beside them"
    parser.add_argument("--label-map", metavar="FILE|NAME", help=text)


def add_runner_options(parser: argparse._ActionsContainer) -> None:
    """Add ``--runner`` to a command."""
    text = "an Apache Beam runner; -- and its own options last"
    parser.add_argument(_OPTION, metavar="NAME", help=text)


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into ours and Beam's, which stands behind the first bare ``--``.

    Without ``--runner`` all of it is ours, and ``--`` means what argparse makes of it.
    """
    ours = list(arguments)
    if "--" not in ours:
        return ours, []
    end = ours.index("--")
    if not any(_is_ours(one.partition("=")[0]) for one in ours[:end]):
        return ours, []
    return ours[:end], ours[end + 1 :]


def _is_ours(option: str) -> bool:
    """Whether it is ``--runner``, or as much of it as argparse takes for it."""
    return option.startswith("--ru") and _OPTION.startswith(option)


def add_receiver(parser: argparse.ArgumentParser) -> None:
    """Add ``--for``: who reads the shards that a command writes."""
    parser.add_argument(
        "--for",
        dest="receiver",
        choices=tuple(LARGEST_FOR),
        help="who reads the shards next; most want numbers as image/source_id, where a text is "
        "then kept in tfod/attributes",
    )


def runner_of(arguments: argparse.Namespace) -> Runner | None:
    """The runner that a command is to use; None when the work is to be done by this process.

    Raises TfodError where it is unknown, Beam is not installed, or ``--jobs`` is given too.
    """
    if arguments.runner is None:
        return None
    if getattr(arguments, "jobs", None) is not None:
        raise TfodError(
            f"--jobs and {_OPTION} exclude each other; write: {_OPTION} {arguments.runner} … "
            f"-- --direct_running_mode multi_processing --direct_num_workers {arguments.jobs}"
        )
    if not hasattr(os, "killpg"):
        raise TfodError(f"{_OPTION} needs Linux or macOS; leave it out")
    from tfod.beam import Runner

    return Runner(arguments.runner, tuple(arguments.runner_arguments))


def named_profile(name_or_path: str | None) -> Profile | None:
    """What ``--profile`` names, if anything; TfodError where that is no profile."""
    if name_or_path is None:
        return None
    from tfod.check.profiles.file import load_profile

    return load_profile(name_or_path)


# Output


def print_text(text: str) -> None:
    """Write to standard output as UTF-8, whatever the locale says: JSON, XML and HTML are that."""
    if sys.stdout is None:
        raise TfodError("standard output is closed; use --output")
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
        return
    sys.stdout.flush()
    binary.write(text.encode("utf-8", "replace"))
    binary.flush()


def print_line(text: str) -> None:
    """Write a line to standard output; names in it do not steer the terminal."""
    print_text(visible(text) + "\n")


def print_note(text: str, command: str = "tfod") -> None:
    """Write a line about the run, and those indented below it, to standard error."""
    lines = map(visible, text.split("\n  "))  # names do not steer the terminal
    print(f"{command}: " + "\n  ".join(lines), file=sys.stderr)


def begin_file(path: str, *, overwrite: bool) -> AtomicFile:
    """Begin a file that appears when all of it is written; its own name comes with that.

    TfodError where it exists and ``overwrite`` is False, is not a file, or cannot be written.
    """
    from tfod.tfrecord.storage.publishing import AtomicFile

    is_other = os.path.exists(path) and not os.path.isfile(path)
    if is_other or (os.path.lexists(path) and not overwrite):
        raise TfodError(f"{path} is there already; pass --overwrite, or another name")
    return AtomicFile(os.path.realpath(path))
