"""What all requests of a web process share."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import current_app

from tfod_validator.errors import ProblemError
from tfod_validator.jobs.data_folder import DataFolder
from tfod_validator.jobs.database import Database
from tfod_validator.settings import Settings


class Arriving:
    """How many uploads of each client arrive at this moment, in this process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self, client: str, most: int) -> Iterator[None]:
        """Count an upload until the block ends.

        Raises:
            ProblemError: there are too many.
        """
        limit = "max_uploads_per_client"
        with self._lock:
            if self._counts[client] >= most:
                detail = f"{most:,} of your uploads arrive already; wait until some have arrived."
                raise ProblemError(429, detail, limit=limit, headers={"Retry-After": "10"})
            self._counts[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._counts[client] -= 1
                self._counts += Counter()  # forgets those that are 0


class Service:
    """What views need; ``is_draining`` says whether the process has got SIGTERM."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings)
        self.database.create_tables()
        self.folder = DataFolder(settings, self.database, takes_uploads=True)
        self.folder.is_there()  # makes its mark
        self.arriving = Arriving()
        self.is_draining: Callable[[], bool] = lambda: False
        # Long answers leave threads to others.
        streams = min(settings.limits.max_event_streams, max(1, settings.threads // 4))
        self.streams = threading.BoundedSemaphore(streams)
        self.waiting = threading.BoundedSemaphore(max(1, settings.threads // 2))


def service() -> Service:
    """That of the app which answers the current request."""
    found: Service = current_app.extensions["tfod"]
    return found
