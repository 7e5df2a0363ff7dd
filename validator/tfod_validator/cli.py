"""The command ``tfod``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence

from tfod.describe import describe
from tfod.errors import TfodError
from tfod.version import __version__

from tfod_validator import check_command, cvat_command, rules_command, serve_command

EXIT_OK = 0
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="tfod", description="TF Object Detection API TFRecords without TensorFlow."
    )
    parser.add_argument("--version", action="version", version=f"tfod {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    describing = commands.add_parser(
        "describe",
        help="say what is in shards",
        description="Print what is in shards: records, keys with kinds and lengths, classes, "
        "sizes, and a tf.io feature description ready to paste.",
    )
    describing.add_argument("source", metavar="SHARD", help="a shard, a folder or a glob")
    describing.add_argument(
        "--as-profile",
        action="store_true",
        help="print a profile for `tfod check --profile` instead, in YAML",
    )
    describing.set_defaults(run=_describe)
    check_command.add_parser(commands)
    cvat_command.add_parser(commands)
    rules_command.add_parser(commands)
    serve_command.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. Bad input is one line on standard error."""
    options = build_parser().parse_args(arguments)
    if threading.current_thread() is threading.main_thread():
        # What was begun is cleaned up, as at Ctrl-C.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    try:
        code: int = options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except TfodError as error:
        print(f"tfod: {error}", file=sys.stderr)
        return EXIT_FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough, as in: tfod describe x | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"tfod: {where}{error.strerror or error}", file=sys.stderr)
        return EXIT_FAILED
    except MemoryError:
        print(
            "tfod: there is not enough memory; try fewer --jobs, or less at a time", file=sys.stderr
        )
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("tfod: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return code


def _describe(options: argparse.Namespace) -> int:
    found = describe(options.source)
    if options.as_profile:
        from tfod_validator.profile_file import profile_of_description, profile_to_yaml

        print(profile_to_yaml(profile_of_description(found, options.source)), end="")
    else:
        print(found.to_text(), end="")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
