"""Waiting for servers that may be silent: what interrupts it, and which of them are given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tfod.errors import TfodError

T = TypeVar("T")
LONGEST_WAIT = 0.5
"""Seconds at once: Ctrl-C just before a wait, and what else interrupts it, is heard at its end."""
WHEN_WELL = "try again when the server is well"
_MOST_SILENCES = 3
PATIENCE = 60.0
"""Seconds that a server may be silent, if nobody has said otherwise."""
_patience = PATIENCE


def _go_on() -> None:
    pass


_heed: Callable[[], None] = _go_on


def patience() -> float:
    """For so many seconds a server may be silent before it is given up."""
    return _patience


def set_patience(seconds: float) -> None:
    """Set that for this process (else :data:`PATIENCE`); what it spawns does not inherit it."""
    global _patience
    _patience = seconds


def set_interrupt(heed: Callable[[], None]) -> None:
    """Have something called, in this process, twice a second by all who wait for a server.

    Args:
        heed: raises what ends the waiting, no OSError; else the waiting goes on.
    """
    global _heed
    _heed = heed


def heed_interrupt() -> None:
    """Raise whatever ends the waiting, if it shall end."""
    _heed()


class Server:
    """What this process knows of a host or a bucket: when a byte came from it, and how often none.

    One that is dead is not waited for at every one of a thousand objects.
    """

    def __init__(self) -> None:
        self.last_heard = 0.0
        self._silences = 0
        self._last_silence = 0.0

    def heard(self) -> None:
        """Take note that bytes have come."""
        self.last_heard = time.monotonic()
        self._silences = 0

    def was_silent(self) -> None:
        """Take note that all patience with it was in vain, once more."""
        self._last_silence = time.monotonic()
        self._silences += 1

    def require_hope(self) -> None:
        """See that it is not given up; it is asked again after as long as patience lasts.

        Raises:
            SilentError: the last objects got no byte at all.
        """
        is_over = time.monotonic() > self._last_silence + _patience
        if self._silences >= _MOST_SILENCES and not is_over:
            times = f"at {self._silences} objects in a row, and the server was given up"
            raise SilentError(f"no answer came for {_patience:g} s {times}; {WHEN_WELL}")


class SilentError(TfodError):
    """No answer came, or none was waited for any more; ``str()`` of it says so."""


_servers: dict[str, Server] = {}


def server_of(url: str) -> Server:
    """The host or the bucket of a URL."""
    scheme, _, inside = url.partition("://")
    return _servers.setdefault(f"{scheme}://{inside.partition('/')[0]}", Server())


def ask_patiently(question: Callable[[], T], server: Server) -> T:
    """Ask in a thread of its own: a server that is silent may hold a library for ever.

    Raises:
        SilentError: nothing came as long as patience lasts.
        BaseException: whatever the question raises.
    """
    answers: list[T] = []
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(question())
        except BaseException as error:
            failures.append(error)

    server.require_hope()
    thread = threading.Thread(target=ask, name="tfod-remote-listing", daemon=True)
    thread.start()
    began = time.monotonic()
    while thread.is_alive():
        left = max(began, server.last_heard) + _patience - time.monotonic()
        if left <= 0:
            break
        thread.join(min(left, LONGEST_WAIT))
        heed_interrupt()
    if failures:
        raise failures[0]
    if not answers:
        server.was_silent()
        raise SilentError(f"no answer came for {_patience:g} s; {WHEN_WELL}")
    return answers[0]
