"""What all requests of a web process share."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import current_app

from tfod_validator.errors import ProblemError, too_many
from tfod_validator.jobs.data_folder import DataFolder
from tfod_validator.jobs.database import Database, Validation
from tfod_validator.settings import Settings

_LOOK_EVERY = 0.25
_FIRST_PAUSE = 0.02


class Service:
    """What views need; ``is_draining`` says whether the process has got SIGTERM."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings)
        self.folder = DataFolder(settings, self.database, takes_uploads=True)
        self.is_draining: Callable[[], bool] = lambda: False
        # Long answers leave threads to others.
        streams = min(settings.limits.max_event_streams, max(1, settings.threads // 4))
        self.streams = threading.BoundedSemaphore(streams)
        self._waiting = threading.BoundedSemaphore(max(1, settings.threads // 2))
        self._arriving: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def arriving(self, client: str) -> Iterator[None]:
        """Count an upload of a client that arrives in this process, until the block ends.

        Raises:
            ProblemError: there are too many.
        """
        most = self.settings.limits.max_uploads_per_client
        with self._lock:
            if self._arriving[client] >= most:
                detail = f"{most:,} of your uploads arrive already; wait until some have arrived."
                raise too_many(detail, "max_uploads_per_client")
            self._arriving[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._arriving[client] -= 1
                self._arriving += Counter()  # forgets those that are 0

    def find(self, key: str) -> Validation:
        """A validation.

        Raises:
            ProblemError: there is none.
        """
        found = self.database.find(key) if key.isprintable() else None
        if found is None:
            detail = (
                "There is no such report: it was deleted, its time is over, or the link is wrong."
            )
            raise ProblemError(404, detail)
        return found

    def follow(
        self, found: Validation, end: float = math.inf, pause: float = _LOOK_EVERY
    ) -> Iterator[Validation | None]:
        """A validation again and again until it is over, deleted (None), or it is time to end."""
        yield found
        while not found.is_over and time.monotonic() < end and not self.is_draining():
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(_LOOK_EVERY, pause * 1.3)
            again = self.database.find(found.id)
            yield again
            if again is None:
                return
            found = again

    def wait_for(self, found: Validation, seconds: float) -> Validation:
        """Wait until a check has ended, but not for longer than allowed, nor if too many wait.

        Raises:
            ProblemError: it was deleted meanwhile.
        """
        if not seconds or not self._waiting.acquire(blocking=False):
            return found
        end = time.monotonic() + min(seconds, self.settings.limits.max_wait_seconds)
        try:
            for one in self.follow(found, end, _FIRST_PAUSE):
                found = one or self.find(found.id)  # 404 when it was deleted meanwhile
        finally:
            self._waiting.release()
        return found


def service() -> Service:
    """That of the app which answers the current request."""
    found: Service = current_app.extensions["tfod"]
    return found
