"""Waiting for servers that may be silent: how long, what interrupts it, and which are given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
REMOTE_TIMEOUT = 60
"""Seconds that a server may be silent, unless :func:`set_remote_timeout` says otherwise."""
TRY_AGAIN = "try again when the server is well"
_LONGEST_WAIT = 0.5  # seconds at once: Ctrl-C just before a wait is heard at its end
_MOST_SILENCES = 3
_timeout: float = REMOTE_TIMEOUT
_interrupt: Callable[[], None] | None = None


class NoAnswerError(Exception):
    """No answer came in time, or the server was given up before; ``str()`` of it says so."""


def remote_timeout() -> float:
    """Seconds that a server may be silent before it is given up."""
    return _timeout


def set_remote_timeout(seconds: float) -> None:
    """Set that for this process; processes that it spawns begin with :data:`REMOTE_TIMEOUT`."""
    global _timeout
    _timeout = seconds


def set_interrupt(interrupt: Callable[[], None]) -> None:
    """Have something called twice a second while this process waits; what it raises ends that.

    It raises no OSError.
    """
    global _interrupt
    _interrupt = interrupt


class Server:
    """What this process knows of a host or a bucket: when a byte came from it, and how often none.

    One that is dead is not waited for at every one of a thousand objects.
    """

    def __init__(self) -> None:
        self.last_heard = 0.0
        self._silences = 0
        self._last_silence = 0.0

    def heard(self) -> None:
        """Note that bytes have come."""
        self.last_heard = time.monotonic()
        self._silences = 0

    def was_silent(self) -> None:
        """Note that it was given up once more."""
        self._last_silence = time.monotonic()
        self._silences += 1

    def require_alive(self) -> None:
        """Raise NoAnswerError where the last objects got no byte, until a timeout has passed."""
        is_over = time.monotonic() > self._last_silence + _timeout
        if self._silences >= _MOST_SILENCES and not is_over:
            raise NoAnswerError(
                f"no answer came for {_timeout:g} s at {self._silences} objects in a row, and the "
                f"server was given up; {TRY_AGAIN}"
            )

    def wait_for(self, answer: Future[Any], seconds: float) -> bool:
        """Wait as long as bytes come from the server at least every so many seconds.

        Returns whether the call has come to its end; if not it is left to itself.
        """
        from concurrent.futures import wait  # it takes its time to load; local files need none

        began = time.monotonic()
        while not answer.done():
            left = max(began, self.last_heard) + seconds - time.monotonic()
            if left <= 0:
                return False
            wait([answer], min(left, _LONGEST_WAIT))
            heed_interrupt()
        return True

    def ask(self, question: Callable[[], T]) -> T:
        """Have something answered within the timeout; raises what the question raises."""
        self.require_alive()
        answer = call(question)
        if self.wait_for(answer, _timeout):
            return answer.result()
        self.was_silent()
        raise NoAnswerError(f"no answer came for {_timeout:g} s; {TRY_AGAIN}")


def call(function: Callable[[], T]) -> Future[T]:
    """Call something in a thread of its own: a silent server may hold a library for ever."""
    from concurrent.futures import Future

    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="tfod-remote", daemon=True).start()
    return future


def pause(seconds: float) -> None:
    """Wait before a server is asked again."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LONGEST_WAIT))
        heed_interrupt()


def heed_interrupt() -> None:
    """Raise what ends the waiting, if it shall end."""
    if _interrupt is not None:
        _interrupt()


_servers: dict[str, Server] = {}


def server_of(url: str) -> Server:
    """The host or the bucket of a URL."""
    scheme, _, inside = url.partition("://")
    return _servers.setdefault(f"{scheme}://{inside.partition('/')[0]}", Server())
