"""The command line: its parser, what several commands share of it, and what they print."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from tfod.check.reporters.escaping import visible
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.errors import TfodError
from tfod.version import __version__

if TYPE_CHECKING:
    from tfod.check.profiles.profile import Profile

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
# Each command's module is loaded when it is typed: all of them take longer than most of the work.
_MODULES = {
    "check": "tfod.cli.check_command",
    "convert": "tfod.cli.create_command",
    "create": "tfod.cli.create_command",
    "cvat": "tfod.cli.cvat_command",
    "describe": "tfod.cli.describe_command",
    "diff": "tfod.cli.diff_command",
    "merge": "tfod.cli.shards_command",
    "repair": "tfod.cli.repair_command",
    "reshard": "tfod.cli.shards_command",
    "rules": "tfod.cli.rules_command",
    "serve": "tfod_validator.serve.command",
    "show": "tfod.cli.show_command",
}
RUNNER = "--runner"
MOST_SHARDS = 99_999
"""Of one set: as many as five digits can say."""


class _Version(argparse.Action):
    """Shows the version, and whether the kernel is compiled."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from tfod.kernel import WHY_NOT_COMPILED

        slower = f"Python kernel, slower: {WHY_NOT_COMPILED}"
        print(f"tfod {__version__} ({slower if WHY_NOT_COMPILED else 'compiled kernel'})")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and name the command that they are about.

    Its help fits on a screen: the usage does not repeat the options, and options with a long value
    stand in one line with their text. ``parser`` of what it parses is that of the command.
    """

    def __init__(self, **more: Any) -> None:
        formatter = functools.partial(argparse.HelpFormatter, max_help_position=28)
        super().__init__(formatter_class=formatter, **more)
        self.set_defaults(parser=self)

    def format_help(self) -> str:
        """What ``--help`` prints."""
        positionals = [_in_usage(one) for one in self._get_positional_actions()]
        self.usage = " ".join(("%(prog)s [options]", *positionals))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _in_usage(action: argparse.Action) -> str:
    """``SOURCE...``, ``[CODE]``; ``SOURCE … DEST`` says by itself that there are several."""
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.nargs in (argparse.ONE_OR_MORE, argparse.ZERO_OR_MORE, argparse.PARSER):
        return name if "…" in name else f"{name}..."
    return f"[{name}]" if action.nargs == argparse.OPTIONAL else name


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of all subcommands, or of the one that is typed and those beside it."""
    parser = _Parser(
        prog="tfod", description="TF Object Detection API TFRecords without TensorFlow."
    )
    text = "show program's version number and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=text)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    wanted = [_MODULES[command]] if command in _MODULES else _MODULES.values()
    for name in dict.fromkeys(wanted) if command != "--version" else ():  # argparse ends there
        importlib.import_module(name).add_parser(commands)
    return parser


def parse_arguments(given: Sequence[str]) -> argparse.Namespace:
    """What is typed; ``run`` is the function of the command."""
    arguments, for_runner = split_arguments(given)
    parser = build_parser(arguments[0] if arguments else None)
    options, unknown = parser.parse_known_args(arguments)
    if hasattr(options, "more") and not any(one.startswith("-") for one in unknown):
        # Sources behind an option, which argparse does not put to those in front of it.
        options.more, unknown = unknown, []
    if unknown:
        is_for_runner = getattr(options, "runner", None) is not None
        hint = "; Beam's own options stand behind --" if is_for_runner else ""
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    options.runner_arguments = for_runner
    return options


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into ours and Beam's, which stands behind the first bare ``--``.

    Without ``--runner`` all of it is ours, and ``--`` means what argparse makes of it.
    """
    ours = list(arguments)
    end = ours.index("--") if "--" in ours else len(ours)
    typed = (one.partition("=")[0] for one in ours[:end])
    if any(one.startswith("--ru") and RUNNER.startswith(one) for one in typed):
        return ours[:end], ours[end + 1 :]
    return ours, []


# Types and options


def whole_number(least: int = 0, most: int | None = None) -> Callable[[str], int]:
    """A type for argparse: a number in digits, from ``least`` to ``most``."""
    largest = (1 << 63) - 1 if most is None else most
    bounds = f"of {least} or more" if most is None else f"from {least:,} to {most:,}"

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdigit()
        number = (int(text) if len(text) < 20 else largest + 1) if is_number else -1
        if most is None and number > largest:
            raise argparse.ArgumentTypeError(f"{text:.20}… is too large; the most is {largest:,}")
        if not least <= number <= largest:
            raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number {bounds}")
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


def codes(text: str) -> list[str]:
    """A type for argparse: codes and families of rules, with commas."""
    found = [code for one in text.split(",") if (code := one.strip().upper())]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names no rule")
    return found


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


def add_receiver(parser: argparse.ArgumentParser) -> None:
    """Add ``--for``: who reads the shards that a command writes."""
    parser.add_argument(
        "--for",
        dest="receiver",
        choices=tuple(LARGEST_FOR),
        help="who reads the shards next; most want numbers as image/source_id, where a text is "
        "then kept in tfod/attributes",
    )


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
    try:
        sys.stdout.flush()
        if binary is None:
            sys.stdout.write(text)
        else:
            binary.write(text.encode("utf-8", "replace"))
            binary.flush()
    except OSError as error:  # BrokenPipeError stays one
        raise type(error)(error.errno, error.strerror, "standard output") from None


def print_line(text: str) -> None:
    """Write a line to standard output; names in it do not steer the terminal."""
    print_text(visible(text) + "\n")


def print_note(text: str, command: str = "tfod") -> None:
    """Write a line about the run, and those indented below it, to standard error."""
    lines = map(visible, text.split("\n  "))  # names do not steer the terminal
    print(f"{command}: " + "\n  ".join(lines), file=sys.stderr)
