"""Failures and signals between two renames, by audit events of Python, without mocks."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator

_watching: list[Renames] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    # Python renames the modules that it compiles.
    if event == "os.rename" and _watching and not str(arguments[1]).endswith(".pyc"):
        _watching[0].count()


sys.addaudithook(_hook)  # cannot be removed


class Renames:
    """Counts renames, and calls a function before one of them."""

    def __init__(self, number: int, act: Callable[[], None], lasting: bool) -> None:
        self.number, self.act, self.lasting, self.seen = number, act, lasting, 0

    @property
    def reached(self) -> bool:
        """Whether the rename was reached."""
        return self.seen >= self.number

    def count(self) -> None:
        self.seen += 1
        if self.seen == self.number or (self.lasting and self.reached):
            self.act()


@contextlib.contextmanager
def at_rename(number: int, act: Callable[[], None], lasting: bool = False) -> Iterator[Renames]:
    """Call a function before a rename, counted from 1, or if ``lasting`` also before later ones."""
    watch = Renames(number, act, lasting)
    _watching.append(watch)
    try:
        yield watch
    finally:
        _watching.remove(watch)


def fail() -> None:
    """Raise the error of a failed disk."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))
