"""A line on standard error that shows the progress of a long command, only on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tfod.tfrecord.progress import BYTES, PROGRESS

DELAY = 2.0
"""Seconds before the line appears; shorter commands do not need it."""
INTERVAL = 0.25
_lock = threading.Lock()
_width = 0
"""The number of characters of the line on the screen."""


@contextmanager
def show_progress(command: str) -> Iterator[None]:
    """Show what has been counted, until the context ends, if standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    PROGRESS.reset()
    end = threading.Event()
    thread = threading.Thread(target=_draw, args=(command, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        erase_line()


def erase_line() -> None:
    """Erase the line, before something else is printed."""
    _replace_line("")


def _draw(command: str, end: threading.Event) -> None:
    start = time.monotonic()
    pause = DELAY
    while not end.wait(pause):
        pause = INTERVAL
        if not PROGRESS.is_hidden:
            minutes, seconds = divmod(int(time.monotonic() - start), 60)
            _replace_line(", ".join([*describe_work(), f"{minutes}:{seconds:02}"]), f"{command}: ")


def _replace_line(text: str, prefix: str = "") -> None:
    global _width
    with _lock:
        line = (prefix + text)[: _terminal_width() - 1]
        if line or _width:
            print(f"\r{line:<{_width}}\r{line}", end="", file=sys.stderr, flush=True)
            _width = len(line)


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (AttributeError, OSError, ValueError):  # not a real terminal, or none at all
        return 80


def describe_work() -> Iterator[str]:
    """Yield the counts, as ``12,000 records read`` and ``1.2 of 2.8 GB read``."""
    for name, count in list(PROGRESS.counts.items()):
        if name not in BYTES:
            yield f"{count:,} {name}"
            continue
        total = PROGRESS.total_bytes
        of_total = f" of {total / 1e6:,.0f}" if count <= total else ""  # less is compressed
        yield f"{count / 1e6:,.0f}{of_total} MB {name}"
