"""The command line: its parser, and the arguments that several commands share."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tfod.errors import TfodError
from tfod.version import __version__

if TYPE_CHECKING:
    from tfod.checker.profiles.profile import Profile

COMMANDS = {
    "check": "find every defect of shards and annotation zips",
    "convert": "make shards of Pascal VOC, COCO, YOLO, a CSV or CVAT XML, and these of shards",
    "cvat": "export shards from a CVAT server, and import them",
    "describe": "say what is in shards",
    "diff": "compare two datasets: shards, or shards and what they were made from",
    "repair": "fix what can be fixed without guessing, into another folder",
    "reshard": "write shards as another number of shards, or put several sources together",
    "rules": "list the rules of the checker, or explain one",
    "serve": "a page and an HTTP API that check what is uploaded",
    "show": "draw images with their boxes on a page",
}
"""Each is a module with ``add_arguments(parser)``, which is loaded when the command is typed."""
_ELSEWHERE = {"serve": "tfod_validator.serve"}
RUNNER = "--runner"
MOST_SHARDS = 99_999
"""Of one set: as many as five digits can say."""


class Parser(argparse.ArgumentParser):
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


class _Version(argparse.Action):
    """Shows the version, and whether the kernel is compiled."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from tfod.kernel import WHY_NOT_COMPILED

        slower = f"Python kernel, slower: {WHY_NOT_COMPILED}"
        print(f"tfod {__version__} ({slower if WHY_NOT_COMPILED else 'compiled kernel'})")
        parser.exit()


def build_parser(command: str | None) -> Parser:
    """Build the parser of a command; of another word than one, that which names all of them."""
    parser = Parser(
        prog="tfod", description="TF Object Detection API TFRecords without TensorFlow."
    )
    text = "show program's version number and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=text)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if command not in COMMANDS:
        for name, text in COMMANDS.items():
            commands.add_parser(name, help=text)
    else:
        module = importlib.import_module(_ELSEWHERE.get(command, f"tfod.cli.{command}"))
        module.add_arguments(commands.add_parser(command))
    return parser


def parse_arguments(given: Sequence[str]) -> argparse.Namespace:
    """What is typed; ``run`` is the function of the command."""
    arguments, for_runner = split_arguments(given)
    words = (one for one in arguments if not one.startswith("-"))
    parser = build_parser(next(words, None))
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


# Arguments that several commands have; ``add`` is ``add_argument`` of a parser or of a group


def add_output(
    add: Callable[..., Any],
    text: str = "where the report goes, if not on the screen",
    formats: Sequence[str] = (),
    **more: Any,
) -> None:
    """``--output``, a file; of a report ``--format``, too, whose default is the first."""
    if formats:
        named = f"{', '.join(formats)} (default: {formats[0]})"
        add("--format", metavar="NAME", help=named, choices=formats, default=formats[0])
    add("-o", "--output", metavar="FILE", help=text, type=to_write, **more)


def add_label_map(
    add: Callable[..., Any], text: str = "for all shards, in place of those beside them"
) -> None:
    """``--label-map``."""
    add("--label-map", metavar="FILE|NAME", help=text)


def add_profile(add: Callable[..., Any]) -> None:
    """``--profile`` of a command that does not check."""
    add("--profile", metavar="NAME|FILE", help="as for tfod check; the best fit otherwise")


def add_receiver(add: Callable[..., Any]) -> None:
    """``--for``: who reads the shards that a command writes."""
    from tfod.detection.images.source_ids import LARGEST_FOR  # --version does without

    text = "who reads the shards next; most want numbers as image/source_id, where a text is "
    text += "then kept in tfod/attributes"
    add("--for", help=text, dest="receiver", choices=tuple(LARGEST_FOR))


# Types


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


def not_empty(text: str) -> str:
    """A type for argparse: a path or a name; a variable of a script may not be set."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; is a variable not set?")
    return text


def to_write(text: str) -> str:
    """A type for argparse: the path of what is written, which is on this machine."""
    from tfod.tfrecord.storage.urls import require_local

    if not text:
        raise TfodError("the name of what to write is empty; is a variable not set?")
    require_local(text)
    return text


def rule_names(option: str) -> Callable[[str], list[str]]:
    """A type for argparse: codes and families of rules, with commas."""

    def parse(text: str) -> list[str]:
        from tfod.checker.rules.registry import require_rule_names  # --version does without

        found = [name for one in text.split(",") if (name := one.strip().upper())]
        if not found:
            raise argparse.ArgumentTypeError(f"{text!r} names no rule")
        require_rule_names(found, option)
        return found

    return parse


def named_profile(name_or_path: str | None) -> Profile | None:
    """What ``--profile`` names, if anything; TfodError where that is no profile."""
    if name_or_path is None:
        return None
    from tfod.checker.profiles.file import load_profile  # few commands are given one

    return load_profile(name_or_path)
