"""The entry point of ``tfod``: exit codes, signals and standard output.

:func:`main` imports other modules late, so that Ctrl-C during imports prints one line, too.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tfod.errors import TfodError

if TYPE_CHECKING:
    import argparse

EXIT_OK = 0
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Invalid input prints one line to standard error."""
    try:
        with _exit_on_signals():
            try:
                options = _parse_options(sys.argv[1:] if arguments is None else arguments)
                with _show_progress(options):
                    code: int = options.run(options)
                return code
            finally:
                _flush()
    except TfodError as error:
        problem = str(error)
    except BrokenPipeError:
        # The program that reads our output has exited, as in: tfod describe x | head
        _discard_output()
        return EXIT_OK
    except OSError as error:
        location = f"{error.filename}: " if error.filename else ""
        problem = f"{location}{error.strerror or error}"
    except MemoryError:
        problem = "not enough memory; try fewer --jobs, or fewer files at a time"
    except KeyboardInterrupt:
        print("tfod: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    from tfod.cli.printing import print_note

    _discard_output()
    print_note(problem)
    return EXIT_FAILED


def _show_progress(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Show the progress of a command, except for servers and for Beam, which has its own."""
    from tfod.cli.progress_line import show_progress

    is_silent = getattr(options, "quiet", False) or getattr(options, "runner", None)
    command: str = options.parser.prog
    is_server = command == "tfod serve" or getattr(options, "serve", False)
    return nullcontext() if is_silent or is_server else show_progress(command)


def _parse_options(command_line: Sequence[str]) -> argparse.Namespace:
    """Make standard output UTF-8 and parse a command line, which exits on --help and --version."""
    # NumPy starts threads for matrix products, which takes a third of its import time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    out = sys.__stdout__
    if sys.stdout is out and isinstance(getattr(out, "buffer", None), io.RawIOBase):
        # With PYTHONUNBUFFERED, a partial write to a full disk raises no error.
        sys.stdout = open(out.fileno(), "w", buffering=1, encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the locale may not be able to encode names
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    from tfod.cli.arguments import parse_arguments, read_limit

    options = parse_arguments(command_line)
    if os.environ.get("TFOD_REMOTE_TIMEOUT"):
        read_limit("TFOD_REMOTE_TIMEOUT", 0)  # validated here, used when remote files are read
    return options


def _flush() -> None:
    from tfod.cli.printing import name_in_errors

    if sys.stdout is not None:
        with name_in_errors("standard output"):
            sys.stdout.flush()


def _discard_output() -> None:
    """Discard unwritten output, which Python would try to write again at exit, and complain."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Exit with cleanup on SIGTERM and SIGHUP, unless they are ignored, as under nohup."""
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # Windows has no SIGHUP.
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) is not signal.SIG_IGN:
                handler = signal.signal(number, lambda number, _: sys.exit(128 + number))
                handlers.setdefault(number, handler)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
