"""The queue: huey, on SQLite or on Redis.

It only wakes workers up. What is to be done is in the store, so nothing depends on a message that
is lost, or comes twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from huey import RedisHuey, SqliteHuey

from tfod_validator.settings import Settings

_NAME = "tfod"
_PATIENCE = 10.0


class Queue:
    """Messages to workers: there is something to do."""

    def __init__(self, settings: Settings, work: Callable[[], None] | None = None) -> None:
        """Connect to the queue.

        Args:
            settings: where it is.
            work: what a worker does when it is woken.
        """
        if settings.redis_url:
            from redis import ConnectionPool  # of the extra 'scale'

            pool = ConnectionPool.from_url(
                settings.redis_url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE
            )
            self.huey = RedisHuey(_NAME, connection_pool=pool, results=False)
        else:
            file = str(settings.data / "queue.sqlite3")
            # A message that a power failure takes is no loss: workers look by themselves, too.
            self.huey = SqliteHuey(_NAME, filename=file, results=False, timeout=30, fsync=False)

        def look() -> None:  # its name and module are what the queue holds
            if work is not None:
                work()

        self._task: Any = self.huey.task()(look)

    def wake(self) -> None:
        """Let a worker look for something to do."""
        self._task()

    def __len__(self) -> int:
        """How many messages wait; asks the queue's server."""
        return int(self.huey.pending_count())
