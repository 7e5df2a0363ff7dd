"""The command ``tfod``."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from tfod.cli.command_line import limit, print_note, split_arguments
from tfod.errors import TfodError
from tfod.tfrecord.storage.remote_timeout import REMOTE_TIMEOUT, set_remote_timeout
from tfod.tfrecord.storage.urls import require_local
from tfod.version import __version__

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
EXIT_OK = 0
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130
_WRITTEN = (
    "output",
    "output_path",
    "output_dir",
    "out",
    "target",
    "write",
    "report",
)
"""The arguments of all commands that name what is written."""


class _Version(argparse.Action):
    """Shows the version, and whether the kernel is compiled."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from tfod.kernel import WHY_NOT_COMPILED

        slower = f"Python kernel, slower: {WHY_NOT_COMPILED}"
        print(f"tfod {__version__} ({slower if WHY_NOT_COMPILED else 'compiled kernel'})")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and name the command that they are about.

    Its help fits on a screen: the usage does not repeat the options.
    """

    def __init__(self, **more: Any) -> None:
        # Options with a long value stand in one line with their text.
        def formatter(prog: str) -> argparse.HelpFormatter:
            return argparse.HelpFormatter(prog, max_help_position=28)

        super().__init__(formatter_class=formatter, **more)

    def format_help(self) -> str:
        """What ``--help`` prints."""
        positionals = [_in_usage(one) for one in self._get_positional_actions()]
        self.usage = " ".join(("%(prog)s [options]", *positionals))
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if not hasattr(found, "parser"):  # that of a subcommand comes first
            found.parser = self
        return found, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_FAILED, f"{self.prog}: {message}; see {self.prog} --help\n")


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
    if command == "--version":
        wanted = []  # argparse ends there, and asks for no command
    for name in dict.fromkeys(wanted):
        importlib.import_module(name).add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. Bad input is one line on standard error."""
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except TfodError as error:
        problem = str(error)
    except BrokenPipeError:
        # The reader of our output has seen enough, as in: tfod describe x | head
        _drop_output()
        return EXIT_OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        problem = f"{where}{error.strerror or error}"
        _drop_output()
    except MemoryError:
        problem = "there is not enough memory; try fewer --jobs, or less at a time"
    except KeyboardInterrupt:
        print("tfod: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    print_note(problem)
    return EXIT_FAILED


def _drop_output() -> None:
    """Drop what standard output has not taken, or Python tries again and complains at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(given: Sequence[str]) -> int:
    arguments, for_runner = split_arguments(given)
    # NumPy starts threads to multiply matrices, in a third of the time that it takes to load.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    out = sys.__stdout__
    if sys.stdout is out and isinstance(getattr(out, "buffer", None), io.RawIOBase):
        # PYTHONUNBUFFERED: a full disk takes some of what is written, and no error is raised.
        sys.stdout = open(out.fileno(), "w", buffering=1, encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the locale may not be able to spell a name
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        # What was begun is cleaned up, as at Ctrl-C; nohup's wish is respected.
        # Windows has no SIGHUP.
        for one in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(one) is not signal.SIG_IGN:
                signal.signal(one, lambda number, _: sys.exit(128 + number))
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
    for name in _WRITTEN:
        path = getattr(options, name, None)
        if path == "":
            raise TfodError("the name of what to write is empty; is a variable not set?")
        require_local(path or "")
    if os.environ.get("TFOD_REMOTE_TIMEOUT"):
        set_remote_timeout(limit("TFOD_REMOTE_TIMEOUT", REMOTE_TIMEOUT))
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
