"""Who checks what waits: threads of this process, or RQ's workers on any machine.

Both take it from the data folder; whose turn it is these threads decide among addresses, and RQ by
first come, first served.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from tfod.errors import TfodError

from tfod_validator import metrics
from tfod_validator.attempt import DiedError, StoppedError, forkserver, run_attempt
from tfod_validator.folder import DataFolder, Request, Result
from tfod_validator.settings import Settings

_QUEUE = "tfod"
_CLEAN_EVERY = 60.0
_DRAIN_SECONDS = 10.0
_MAINTENANCE_SECONDS = 60
_log = logging.getLogger("tfod.worker")


class Queue(Protocol):
    """What the service hands accepted uploads to."""

    def add(self, key: str, request: Request) -> None:
        """Have an upload checked that waits in the data folder."""

    def count(self, client: str) -> tuple[int, int]:
        """How many of an address wait, and how many in all."""

    def is_alive(self) -> bool:
        """Whether somebody will check what waits."""

    def stop(self) -> None:
        """Let what runs end, for a while; what does not is begun again at the next start."""


class Turns:
    """What waits: next is an address of which the fewest checks run, whose turn is longest ago."""

    def __init__(self, places: int) -> None:
        self._most = max(1, places - 1)  # one place is always left to others
        self._waiting: dict[str, deque[str]] = {}
        self._known: set[str] = set()
        self._running: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._is_over = False

    def add(self, key: str, client: str) -> None:
        """Let something wait, if it does not already, nor runs."""
        with self._changed:
            if key not in self._known:
                self._known.add(key)
                self._waiting.setdefault(client, deque()).append(key)
                self._changed.notify()

    def take(self) -> tuple[str, str] | None:
        """Whose turn it is, and the address; waits for one. None when there are no more turns."""
        with self._changed:
            while not self._is_over:
                free = [one for one in self._waiting if self._running[one] < self._most]
                if free:
                    client = min(free, key=self._running.__getitem__)
                    keys = self._waiting.pop(client)
                    key = keys.popleft()
                    if keys:
                        self._waiting[client] = keys  # as the last
                    self._running[client] += 1
                    return key, client
                self._changed.wait()
            return None

    def done(self, key: str, client: str) -> None:
        """Say that what was taken has ended."""
        with self._changed:
            self._known.discard(key)
            self._running[client] -= 1
            self._running += Counter()  # forgets those that are 0
            self._changed.notify_all()

    def count(self, client: str) -> tuple[int, int]:
        """How many of an address wait, and how many in all."""
        with self._changed:
            return len(self._waiting.get(client, ())), sum(map(len, self._waiting.values()))

    def end(self) -> None:
        """Give no more turns."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class Workers:
    """Threads of this process, each with one child at a time, and one that cleans up."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._folder = settings, DataFolder(settings)
        self._turns = Turns(settings.checks)
        self._context = forkserver()
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, daemon=True) for _ in range(settings.checks)
        ]
        about = (self._folder, self._stopping, self.add)
        threading.Thread(target=_look_after, args=about, daemon=True).start()
        for one in self._threads:
            one.start()

    def add(self, key: str, request: Request) -> None:
        self._turns.add(key, request.client)

    def count(self, client: str) -> tuple[int, int]:
        return self._turns.count(client)

    def is_alive(self) -> bool:
        return all(one.is_alive() for one in self._threads)

    def stop(self) -> None:
        self._stopping.set()
        self._turns.end()
        end = time.monotonic() + _DRAIN_SECONDS
        for one in self._threads:
            one.join(max(0.0, end - time.monotonic()))
        self._given_up.set()
        for one in self._threads:
            one.join()

    def _work(self) -> None:
        while (turn := self._turns.take()) is not None:
            key, client = turn
            died = False
            try:
                with self._folder.held(key) as is_mine:
                    found = self._folder.find(key) if is_mine else None
                    if found is not None and not found.is_over:
                        self._check(key, found.request)
            except DiedError:
                died = True
                _log.warning("a check was killed: it is begun again")
            except StoppedError:
                pass
            except Exception:
                _log.exception("a check cannot be done")
            finally:
                self._turns.done(key, client)
            if died:
                self._turns.add(key, client)

    def _check(self, key: str, request: Request) -> None:
        def is_wanted() -> bool:
            return not self._given_up.is_set()

        note(run_attempt(key, request, self._settings, self._context, is_wanted))


class RedisQueue:
    """RQ on Redis: its workers check, on any machine that has the data folder."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._queue = settings, _queue_of(settings)
        self._stopping = threading.Event()
        about = (DataFolder(settings), self._stopping, self.add)
        threading.Thread(target=_look_after, args=about, daemon=True).start()

    def add(self, key: str, request: Request) -> None:
        from rq import Retry
        from rq.job import Job

        if Job.exists(key, self._queue.connection):  # it may have been accepted when Redis was away
            return
        self._queue.enqueue(
            check_waiting,
            key,
            job_id=key,
            job_timeout=self._settings.max_check_seconds + 60,
            retry=Retry(max=self._settings.max_attempts),
            result_ttl=0,
            failure_ttl=0,
        )

    def count(self, client: str) -> tuple[int, int]:
        from redis import RedisError

        with suppress(RedisError):
            return 0, int(self._queue.count)
        return 0, 0  # uploads are accepted, and queued when Redis is there again

    def is_alive(self) -> bool:
        from rq import Worker

        return bool(Worker.count(queue=self._queue))

    def stop(self) -> None:
        self._stopping.set()


def _look_after(folder: DataFolder, stopping: threading.Event, add: Callable[..., None]) -> None:
    """Clean up, and add what waits and nobody has: it was there at the start, or was left."""
    while True:
        try:
            for key, request in folder.waiting():
                add(key, request)
            folder.clean()
        except Exception:
            _log.exception("the data folder cannot be looked after")
        if stopping.wait(_CLEAN_EVERY):
            return


def _queue_of(settings: Settings) -> Any:
    from redis import Redis
    from rq import Queue as RemoteQueue
    from rq.serializers import JSONSerializer

    try:
        connection = Redis.from_url(settings.queue)
    except ValueError:  # its text may hold the password
        raise TfodError("TFOD_QUEUE: write redis://:PASSWORD@HOST:6379") from None
    return RemoteQueue(_QUEUE, connection=connection, serializer=JSONSerializer)


def work(settings: Settings) -> None:
    """Be one of RQ's workers, until SIGTERM comes.

    Raises:
        TfodError: Redis does not answer.
    """
    from redis import RedisError
    from rq import Worker
    from rq.serializers import JSONSerializer

    import tfod_validator.child  # noqa: F401 - before the fork that each check is

    queue = _queue_of(settings)
    try:
        queue.connection.ping()
    except RedisError as error:
        raise TfodError(f"TFOD_QUEUE: Redis does not answer ({error})") from None
    print("tfod: working", file=sys.stderr, flush=True)
    # An idle worker looks for checks of workers that have died when worker_ttl - 15 s are over.
    worker = Worker(
        [queue],
        connection=queue.connection,
        serializer=JSONSerializer,
        maintenance_interval=_MAINTENANCE_SECONDS,
        worker_ttl=_MAINTENANCE_SECONDS + 15,
    )
    worker.work()


def check_waiting(key: str) -> None:
    """What one of RQ's workers does for an upload that waits in the data folder.

    Raises:
        DiedError: the check was killed; RQ begins it again.
    """
    settings = Settings.of()
    found = DataFolder(settings).find(key)
    if found is not None and not found.is_over:
        note(run_attempt(key, found.request, settings, multiprocessing.get_context("fork")))


def note(result: Result | None) -> None:
    """Count and log a check that has ended."""
    if result is None:  # it was deleted, or another has published it
        return
    outcome = {True: "valid", False: "invalid", None: "failed"}[result.valid]
    seconds = result.ended - result.started
    metrics.CHECKS.labels(outcome).inc()
    metrics.CHECK_SECONDS.observe(seconds)
    metrics.CHECKED_RECORDS.inc(result.records)
    _log.info("checked: %s, %d records, %.3f s", outcome, result.records, seconds)
