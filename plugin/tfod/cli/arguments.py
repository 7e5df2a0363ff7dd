"""The parser of the command line, and the arguments that several commands share."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tfod.errors import TfodError, excerpt, suggest
from tfod.version import __version__

if TYPE_CHECKING:
    from tfod.checker.profiles.profile import Profile

COMMANDS = {
    "check": "check shards and annotation zips for errors",
    "convert": "convert VOC, COCO, YOLO, CSV or CVAT XML to shards, or back",
    "cvat": "export shards from a CVAT server, or import them",
    "describe": "print a summary of shards",
    "diff": "compare two datasets, which may have different formats",
    "repair": "fix what can be fixed without guessing, in a copy",
    "reshard": "change the number or size of shards, or merge several sources",
    "rules": "list the rules of the checker, or explain a rule",
    "serve": "run a web page and an HTTP API that check uploads",
    "show": "draw images with their boxes on an HTML page",
}
"""The commands and their help. Each command has a module with ``add_arguments(parser)``."""
_OTHER_MODULES = {"serve": "tfod_validator.serve"}
RUNNER = "--runner"
MAX_SHARDS = 99_999
"""The maximum number of shards in a set: the names of shards have five digits."""


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors, and help that fits on a screen.

    The parsed namespace has the parser as ``parser``.
    """

    def __init__(self, **options: Any) -> None:
        formatter = functools.partial(argparse.HelpFormatter, max_help_position=28)
        super().__init__(formatter_class=formatter, **options)
        self.set_defaults(parser=self)

    def format_help(self) -> str:
        """Return the text that ``--help`` prints."""
        positionals = [_format_usage(action) for action in self._get_positional_actions()]
        self.usage = " ".join(("%(prog)s [options]", *positionals))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        see = " See" if message.endswith("?") else "; see"
        self.exit(2, f"{self.prog}: {message}{see} {self.prog} --help\n")

    @property
    def options(self) -> Sequence[str]:
        """The names of the options, with their dashes."""
        return list(self._option_string_actions)

    def add_commands(self) -> Any:
        """Add subparsers; without a command, the help is printed and the exit status is 2."""
        self.set_defaults(run=_print_help)
        return self.add_subparsers(title="commands", metavar="COMMAND")

    def reject(self, unknown: Sequence[str], advice: str = "") -> NoReturn:
        """Exit with an error for unknown arguments, which suggests options of similar names."""
        options = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        hints = (suggest(option, self.options, cutoff=0.75) for option in options)
        advice = next(filter(None, hints), advice)
        words = options if options and not advice.startswith("put") else unknown
        self.error(f"unrecognized arguments: {' '.join(words)}" + (f"; {advice}" if advice else ""))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Parse a value; choices are not case-sensitive."""
        value = super()._get_value(action, arg_string)
        is_command = action.nargs == argparse.PARSER
        if action.choices is None or is_command or not isinstance(value, str):
            return value
        return value.lower() if value.lower() in action.choices else value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check a choice, and suggest similar ones."""
        if action.choices is not None and value not in action.choices:
            names = [*map(str, action.choices)]
            hint = suggest(str(value).lower(), names) or f"choose from {', '.join(names)}"
            raise argparse.ArgumentError(action, f"invalid choice: {excerpt(value)}; {hint}")


def _print_help(options: argparse.Namespace) -> int:
    options.parser.print_help(sys.stderr)
    return 2


def _format_usage(action: argparse.Action) -> str:
    """Format a positional argument, as ``SOURCE...``, ``[CODE]`` or ``SOURCE … DEST``."""
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.nargs in (argparse.ONE_OR_MORE, argparse.ZERO_OR_MORE, argparse.PARSER):
        return name if "…" in name else f"{name}..."
    return f"[{name}]" if action.nargs == argparse.OPTIONAL else name


class _Version(argparse.Action):
    """Prints the version, and whether the kernel is compiled."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from tfod.kernel import WHY_NOT_COMPILED

        kernel = "compiled kernel"
        if WHY_NOT_COMPILED:
            kernel = f"Python kernel, slower: {WHY_NOT_COMPILED}"
        print(f"tfod {__version__} ({kernel})")
        parser.exit()


def build_parser(command: str | None) -> Parser:
    """Build the parser of a command, or one that lists all commands if there is no such command."""
    text = "Tools for TFRecords of the TF Object Detection API, without TensorFlow."
    parser = Parser(prog="tfod", description=text)
    text = "show program's version number and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=text)
    commands = parser.add_commands()
    if command not in COMMANDS:
        for name, text in COMMANDS.items():
            commands.add_parser(name, help=text)
    else:
        module = importlib.import_module(_OTHER_MODULES.get(command, f"tfod.cli.{command}"))
        module.add_arguments(commands.add_parser(command))
    return parser


def parse_arguments(command_line: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; ``run`` of the result is the function of the command."""
    arguments, runner_arguments = split_arguments(command_line)
    words = (argument for argument in arguments if not argument.startswith("-"))
    parser = build_parser(next(words, None))
    if arguments:
        _require_command(parser, arguments[0])
    options, unknown = parser.parse_known_args(arguments)
    if hasattr(options, "more_paths") and not any(word.startswith("-") for word in unknown):
        # argparse does not add paths after an option to the paths before it.
        options.more_paths, unknown = unknown, []
    if unknown:
        has_runner = getattr(options, "runner", None) is not None
        options.parser.reject(unknown, "put the options of Beam after --" if has_runner else "")
    options.runner_arguments = runner_arguments
    return options


def _require_command(parser: Parser, first: str) -> None:
    """Exit with an error if a command line begins with neither a command nor an option of tfod."""
    if first.startswith("-"):
        if not any(option.startswith(first) for option in parser.options):
            parser.reject([first], "write options after the command")
    elif first not in COMMANDS:
        hint = suggest(first.lower(), COMMANDS)
        if not hint and (os.path.exists(first) or not first.isalpha()):
            hint = f"to check it: tfod check {shlex.quote(first)}"
        parser.error(f"{excerpt(first)} is not a command" + (f"; {hint}" if hint else ""))


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line at the first bare ``--`` into arguments of tfod and of Beam.

    Without ``--runner``, all arguments belong to tfod, and argparse interprets ``--``.
    """
    ours = list(arguments)
    end = ours.index("--") if "--" in ours else len(ours)
    options = (argument.partition("=")[0] for argument in ours[:end])
    if any(option.startswith("--ru") and RUNNER.startswith(option) for option in options):
        return ours[:end], ours[end + 1 :]
    return ours, []


def select_arguments(
    function: Callable[..., Any], arguments: argparse.Namespace
) -> Mapping[str, Any]:
    """Return the arguments for the keyword parameters of a function, which have the same names."""
    return {name: getattr(arguments, name) for name in function.__kwdefaults__ or {}}


# Functions that add a shared argument. ``add`` is ``add_argument`` of a parser or of a group.


def add_output(
    add: Callable[..., Any],
    text: str = "file for the report (default: the screen)",
    formats: Sequence[str] = (),
    **options: Any,
) -> None:
    """Add ``--output``, and ``--format`` if there are formats; the first one is the default."""
    if formats:
        names = f"{', '.join(formats)} (default: {formats[0]})"
        add("--format", metavar="NAME", help=names, choices=formats, default=formats[0])
    add("-o", "--output", metavar="FILE", help=text, type=output_path, **options)


def add_label_map(
    add: Callable[..., Any], text: str = "label map for all shards (default: one next to each)"
) -> None:
    """Add ``--label-map``."""
    add("--label-map", metavar="FILE|NAME", help=text)


def add_profile(add: Callable[..., Any]) -> None:
    """Add ``--profile`` to a command that does not check."""
    text = "see tfod check --help (default: the best fit)"
    add("--profile", metavar="NAME|FILE", help=text)


def add_receiver(add: Callable[..., Any], receivers: Iterable[str] = ()) -> None:
    """Add ``--for``, the program that will read the shards that a command writes."""
    from tfod.detection.images.source_ids import LARGEST_FOR  # --version does not need it

    text = "program that will read the shards; most need numbers as image/source_id, so a "
    text += "text is stored in tfod/attributes instead"
    choices = tuple(receivers or LARGEST_FOR)
    add("--for", help=text, dest="receiver", choices=choices)


# Types of arguments


def whole_number(minimum: int = 0, maximum: int | None = None) -> Callable[[str], int]:
    """Return an argparse type: a decimal number from ``minimum`` to ``maximum``."""
    largest = (1 << 63) - 1 if maximum is None else maximum
    bounds = f"of {minimum} or more" if maximum is None else f"from {minimum:,} to {maximum:,}"

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdigit()
        number = (int(text) if len(text) < 20 else largest + 1) if is_number else -1
        if maximum is None and number > largest:
            raise argparse.ArgumentTypeError(f"{text:.20}… is too large; the limit is {largest:,}")
        if not minimum <= number <= largest:
            raise argparse.ArgumentTypeError(f"{excerpt(text)} is not a whole number {bounds}")
        return number

    return parse


def read_limit(variable: str, default: int) -> int:
    """Return a limit that an environment variable can change, a whole number of 1 or more."""
    text = os.environ.get(variable)
    try:
        return whole_number(1)(text) if text else default
    except argparse.ArgumentTypeError as error:
        raise TfodError(f"{variable}: {error}") from None


def not_empty(text: str) -> str:
    """Check that a path or a name is not empty, as an argparse type."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; is a shell variable not set?")
    return text


def output_path(text: str) -> str:
    """Check that an output path is a local path, as an argparse type."""
    from tfod.tfrecord.storage.urls import require_local

    if not text:
        raise TfodError("the output path is empty; is a shell variable not set?")
    require_local(text)
    return text


def rule_names(option: str) -> Callable[[str], list[str]]:
    """Return an argparse type: comma-separated codes and families of rules."""

    def parse(text: str) -> list[str]:
        from tfod.checker.rules.registry import require_rule_names  # --version does not need it

        names = [name for part in text.split(",") if (name := part.strip().upper())]
        if not names:
            raise argparse.ArgumentTypeError(f"{excerpt(text)} contains no rule")
        require_rule_names(names, option)
        return names

    return parse


def load_named_profile(name_or_path: str | None) -> Profile | None:
    """Load the profile that ``--profile`` names, if any."""
    if name_or_path is None:
        return None
    from tfod.checker.profiles.file import load_profile  # rarely needed

    return load_profile(name_or_path)
