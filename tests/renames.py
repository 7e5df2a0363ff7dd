"""Failures and signals between two renames, by audit events of Python: no function is replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator

_watching: list[Callable[[], None]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    # A module that is imported for the first time is no file of ours.
    if event == "os.rename" and _watching and not str(arguments[1]).endswith(".pyc"):
        _watching[0]()


sys.addaudithook(_hook)  # for ever; it does nothing until somebody watches


class Renames:
    """Counts renames, and does something in front of one of them."""

    def __init__(self, number: int, act: Callable[[], None], lasting: bool) -> None:
        self.number = number
        self.lasting = lasting
        self.act = act
        self.seen = 0

    @property
    def reached(self) -> bool:
        """Whether it came to that rename."""
        return self.seen >= self.number

    def __call__(self) -> None:
        self.seen += 1
        if self.seen == self.number or (self.lasting and self.reached):
            self.act()


@contextlib.contextmanager
def at_rename(number: int, act: Callable[[], None], lasting: bool = False) -> Iterator[Renames]:
    """Do something in front of this rename, counted from 1, and in front of all behind it."""
    watch = Renames(number, act, lasting)
    _watching.append(watch)
    try:
        yield watch
    finally:
        _watching.remove(watch)


def fail() -> None:
    """As a disk that is gone."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))
