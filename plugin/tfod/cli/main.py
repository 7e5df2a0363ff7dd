"""The command ``tfod``: one process, its exit codes, and what ends it before its time.

All else is imported by :func:`main`, so that Ctrl-C is one line as soon as it is ours to catch.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfod.errors import TfodError

if TYPE_CHECKING:
    import argparse

EXIT_OK = 0
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. Bad input is one line on standard error."""
    try:
        with _ended_by_signals():
            try:
                options = _options(sys.argv[1:] if arguments is None else arguments)
                code: int = options.run(options)
                return code
            finally:
                _flush()
    except TfodError as error:
        problem = str(error)
    except BrokenPipeError:
        # The reader of our output has seen enough, as in: tfod describe x | head
        _drop_output()
        return EXIT_OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        problem = f"{where}{error.strerror or error}"
    except MemoryError:
        problem = "there is not enough memory; try fewer --jobs, or less at a time"
    except KeyboardInterrupt:
        print("tfod: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    from tfod.cli.printing import print_note

    _drop_output()
    print_note(problem)
    return EXIT_FAILED


def _options(given: Sequence[str]) -> argparse.Namespace:
    """What is typed, or the end: a version or a help; standard output is made UTF-8."""
    # NumPy starts threads to multiply matrices, in a third of the time that it takes to load.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    out = sys.__stdout__
    if sys.stdout is out and isinstance(getattr(out, "buffer", None), io.RawIOBase):
        # PYTHONUNBUFFERED: a full disk takes some of what is written, and no error is raised.
        sys.stdout = open(out.fileno(), "w", buffering=1, encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the locale may not be able to spell a name
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    from tfod.cli.arguments import limit, parse_arguments

    options = parse_arguments(given)
    if os.environ.get("TFOD_REMOTE_TIMEOUT"):
        limit("TFOD_REMOTE_TIMEOUT", 0)  # who reads remote files looks there
    return options


def _flush() -> None:
    from tfod.cli.printing import naming

    if sys.stdout is not None:
        with naming("standard output"):
            sys.stdout.flush()


def _drop_output() -> None:
    """Drop what standard output has not taken, or Python tries again and complains at its end."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Clean up what was begun at SIGTERM and SIGHUP, too; nohup's wish is respected."""
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # Windows has no SIGHUP.
        for one in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(one) is not signal.SIG_IGN:
                handler = signal.signal(one, lambda number, _: sys.exit(128 + number))
                before.setdefault(one, handler)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


if __name__ == "__main__":
    sys.exit(main())
