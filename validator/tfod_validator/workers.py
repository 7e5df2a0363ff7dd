"""Who checks what waits: threads of this process, or RQ's workers on any machine.

Both take it from the data folder; whose turn it is these threads decide among addresses, and RQ by
first come, first served.
"""

from __future__ import annotations

import abc
import logging
import multiprocessing
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import prometheus_client as prometheus
from tfod.errors import TfodError

from tfod_validator.answers import ProblemError
from tfod_validator.folder import DataFolder, Result
from tfod_validator.settings import Settings

_QUEUE = "tfod"
_CLEAN_EVERY, _LOOK_EVERY = 60.0, 0.5
_DRAIN_SECONDS = 10.0
_MAINTENANCE_SECONDS = 60
_log = logging.getLogger("tfod.worker")
_ended = prometheus.Counter("tfod_checks_total", "Checks that have ended.", ["outcome"])
_records = prometheus.Counter("tfod_checked_records_total", "Records that were checked.")
_seconds = prometheus.Histogram(
    "tfod_check_seconds", "Time that checks took.", buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
)


class Queue(abc.ABC):
    """What waits in the data folder; who checks it, a subclass says.

    Attributes:
        settings, folder: of the service.
        stopping: is set at SIGTERM: requests stop waiting.
        places: for requests that wait for a report: half of the threads.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.folder = settings, DataFolder(settings)
        self.stopping = threading.Event()
        self.wait_slots = threading.BoundedSemaphore(settings.threads // 2)

    @abc.abstractmethod
    def add(self, key: str, client: str) -> None:
        """Have an upload of an address checked; again does nothing."""

    @abc.abstractmethod
    def count(self, client: str) -> tuple[int, int]:
        """How many of an address wait, and how many in all."""

    @abc.abstractmethod
    def is_alive(self) -> bool:
        """Whether somebody will check what waits."""

    def start(self) -> None:
        """Add what waits, now and each minute: it may have been left; and clean up."""
        threading.Thread(target=self._look_after, daemon=True).start()

    def stop(self) -> None:
        """Let what runs end, for a while; what does not is begun again at the next start."""
        self.stopping.set()

    def _look_after(self) -> None:
        while True:
            try:
                for key, request in self.folder.waiting():
                    self.add(key, request.client)
                self.folder.clean()
            except Exception:
                _log.exception("the data folder cannot be looked after")
            if self.stopping.wait(_CLEAN_EVERY):
                return


class LocalQueue(Queue):
    """Threads of this process, each with one child at a time.

    Next is an address of which the fewest checks run, whose turn is longest ago; one place is
    always left to others.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._most = max(1, settings.checks - 1)
        self._waiting: dict[str, dict[str, None]] = {}  # ids by address, in order
        self._running: dict[str, str] = {}  # addresses by id
        self._changed = threading.Condition()
        self._given_up = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, key: str, client: str) -> None:
        with self._changed:
            if key not in self._running:
                self._waiting.setdefault(client, {})[key] = None
                self._changed.notify()

    def count(self, client: str) -> tuple[int, int]:
        with self._changed:
            return len(self._waiting.get(client, ())), sum(map(len, self._waiting.values()))

    def is_alive(self) -> bool:
        return all(one.is_alive() for one in self._threads)

    def start(self) -> None:
        context = _forkserver()
        for _ in range(self.settings.checks):
            self._threads.append(threading.Thread(target=self._work, args=[context], daemon=True))
            self._threads[-1].start()
        super().start()

    def stop(self) -> None:
        super().stop()
        with self._changed:
            self._changed.notify_all()
        end = time.monotonic() + _DRAIN_SECONDS
        for one in self._threads:
            one.join(max(0.0, end - time.monotonic()))
        self._given_up.set()
        for one in self._threads:
            one.join()

    def take(self) -> str | None:
        """Whose turn it is; waits for one. None when the service stops."""
        with self._changed:
            while not self.stopping.is_set():
                running = Counter(self._running.values())
                free = [one for one in self._waiting if running[one] < self._most]
                if free:
                    client = min(free, key=running.__getitem__)
                    keys = self._waiting.pop(client)
                    key = next(iter(keys))
                    del keys[key]
                    if keys:
                        self._waiting[client] = keys  # as the last
                    self._running[key] = client
                    return key
                self._changed.wait()
            return None

    def done(self, key: str) -> None:
        """Say that what was taken has ended."""
        with self._changed:
            del self._running[key]
            self._changed.notify_all()

    def _work(self, context: Any) -> None:
        while (key := self.take()) is not None:
            try:
                with self.folder.lock(key) as is_mine:
                    if is_mine:
                        check(key, self.settings, context, self._given_up)
            except Exception:
                _log.exception("a check cannot be done")
            finally:
                self.done(key)


def _forkserver() -> ForkServerContext:
    """Begins children in milliseconds: from a process that has imported what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tfod_validator.child", __name__])
    context.Process(target=int).start()  # it has imported it when this returns
    return context


def check(key: str, settings: Settings, context: Any, abort: threading.Event) -> None:
    """Check what waits in children, and publish how that ends, unless somebody else has.

    A check whose process is killed is begun again, which may happen ``max_attempts`` times.

    Args:
        key: its id.
        settings: of the service.
        context: of multiprocessing, begins a child.
        abort: is looked at twice a second, and ends the check; the attempt does not count.
    """
    folder, began, problem = DataFolder(settings), time.time(), None
    found = folder.find(key)
    if found is None or found.result is not None:
        return
    with suppress(FileNotFoundError):  # it was deleted meanwhile
        while True:
            attempt, number = folder.begin_attempt(key)
            if number > settings.max_attempts:
                times = f"was begun {settings.max_attempts} times and never ended"
                cause = "most likely for want of memory; check the upload in parts."
                problem = ProblemError(500, f"The check {times}, {cause}")
                break
            arguments = (replace(settings, token="", queue=""), attempt, found.request)
            child = context.Process(target=_run, args=arguments, daemon=True)
            is_late = _wait_for(child, attempt, settings, abort)
            if abort.is_set() and child.exitcode:
                shutil.rmtree(attempt, ignore_errors=True)
                return
            problem = _problem_of_end(child.exitcode, settings, is_late=is_late)
            if child.exitcode == 0 or problem:
                break
        if problem:
            result = Result(None, began, time.time(), failure=problem.document)
            folder.write_result(attempt, result)
        if published := folder.publish(attempt):
            _count(published)


def _count(result: Result) -> None:
    outcome = {True: "valid", False: "invalid", None: "failed"}[result.valid]
    seconds = result.ended - result.started
    _ended.labels(outcome).inc()
    _seconds.observe(seconds)
    _records.inc(result.records)
    _log.info("checked: %s, %d records, %.3f s", outcome, result.records, seconds)


def _wait_for(child: Any, attempt: Path, settings: Settings, abort: threading.Event) -> bool:
    """Begin a child and wait until it has ended, which it is made to; whether it was too late."""
    child.start()
    end = time.monotonic() + settings.max_check_seconds
    try:
        while child.is_alive() and attempt.exists() and not abort.is_set():
            if time.monotonic() > end:
                return True
            child.join(_LOOK_EVERY)
        return False
    finally:
        child.kill()
        child.join()


def _problem_of_end(status: int, settings: Settings, *, is_late: bool) -> ProblemError | None:
    """Why a child has not done a check; None if it has, or if it was killed, which may pass."""
    if status in (0, -signal.SIGKILL, 255) and not (is_late and status):  # 255: status unknown
        return None
    if is_late:
        limit = f"{settings.max_check_seconds:,} seconds allowed"
        detail = f"The check took longer than the {limit}; check it in parts."
        return ProblemError(422, detail, limit="max_check_seconds")
    how = f"ended with exit status {status}"
    if status < 0:
        how = f"was ended by {signal.Signals(-status).name}"
    return ProblemError(500, f"The check's process {how}; upload again to try again.")


def _run(*arguments: Any) -> None:
    from tfod_validator.child import run  # which the process that begins this need not import

    run(*arguments)


class RedisQueue(Queue):
    """RQ on Redis: its workers check, on any machine that has the data folder."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._queue = _queue_of(settings)

    def add(self, key: str, client: str) -> None:
        from rq import Retry
        from rq.job import Job

        if Job.exists(key, self._queue.connection):  # it may have been accepted when Redis was away
            return
        most = self.settings.max_attempts
        self._queue.enqueue(
            check_waiting,
            key,
            job_id=key,
            job_timeout=most * self.settings.max_check_seconds + 60,
            retry=Retry(max=most),
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
        serializer=queue.serializer,
        maintenance_interval=_MAINTENANCE_SECONDS,
        worker_ttl=_MAINTENANCE_SECONDS + 15,
    )
    worker.work()


def check_waiting(key: str) -> None:
    """What one of RQ's workers does for an upload that waits in the data folder."""
    check(key, Settings.of(), multiprocessing.get_context("fork"), threading.Event())
