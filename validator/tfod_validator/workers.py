"""Workers that run the waiting checks: threads of this process, or RQ workers on any machine.

Both take uploads from the data folder. The threads alternate between client addresses; RQ serves
uploads in the order of their arrival.
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
_POLL_SECONDS, _DRAIN_SECONDS = 0.5, 10.0
_MAINTENANCE_SECONDS = 60
_log = logging.getLogger("tfod.worker")
_checks = prometheus.Counter("tfod_checks_total", "Number of finished checks.", ["outcome"])
_records = prometheus.Counter("tfod_checked_records_total", "Number of checked records.")
_seconds = prometheus.Histogram(
    "tfod_check_seconds", "Duration of checks.", buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
)


class Queue(abc.ABC):
    """The uploads that wait for a check. Subclasses decide where the checks run.

    Attributes:
        stopping: set when the service shuts down, to release requests that wait for a report.
        wait_slots: limits the requests that wait for a report to half of the threads.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.folder = settings, DataFolder(settings)
        self.stopping = threading.Event()
        self.wait_slots = threading.BoundedSemaphore(settings.threads // 2)

    @abc.abstractmethod
    def add(self, key: str, client: str) -> None:
        """Queue an upload of a client; does nothing if it is already queued or running."""

    @abc.abstractmethod
    def count(self, client: str) -> tuple[int, int]:
        """Return how many uploads wait, of this client and in total."""

    @abc.abstractmethod
    def is_alive(self) -> bool:
        """Return whether the queue has a worker that is running."""

    def start(self) -> None:
        """Start a thread that queues all waiting uploads and deletes expired data every minute."""
        threading.Thread(target=self._maintain, daemon=True).start()

    def stop(self) -> None:
        """Wait a few seconds for running checks; the rest is checked after the next start."""
        self.stopping.set()

    def _maintain(self) -> None:
        while True:
            try:
                for key, request in self.folder.list_waiting():
                    self.add(key, request.client)
                self.folder.clean()
            except Exception:
                _log.exception("cannot maintain the data folder")
            if self.stopping.wait(_MAINTENANCE_SECONDS):
                return


class LocalQueue(Queue):
    """Checks uploads in threads of this process, each of which runs one child process at a time.

    The next upload belongs to the client with the fewest running checks or, among several, to the
    client that was served least recently. A single client cannot occupy all threads.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._max_per_client = max(1, settings.checks - 1)
        self._waiting: dict[str, dict[str, None]] = {}  # by client, ids in order of arrival
        self._running: dict[str, str] = {}  # id to client
        self._changed = threading.Condition()
        self._abort = threading.Event()
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
        return all(thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        context = _start_forkserver()
        for _ in range(self.settings.checks):
            self._threads.append(threading.Thread(target=self._work, args=[context], daemon=True))
            self._threads[-1].start()
        super().start()

    def stop(self) -> None:
        super().stop()
        with self._changed:
            self._changed.notify_all()
        deadline = time.monotonic() + _DRAIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._abort.set()
        for thread in self._threads:
            thread.join()

    def take(self) -> str | None:
        """Wait for the next upload and return its id, or None when the service shuts down."""
        with self._changed:
            while not self.stopping.is_set():
                running = Counter(self._running.values())
                eligible = [name for name in self._waiting if running[name] < self._max_per_client]
                if eligible:
                    client = min(eligible, key=running.__getitem__)
                    keys = self._waiting.pop(client)
                    key = next(iter(keys))
                    del keys[key]
                    if keys:
                        self._waiting[client] = keys  # moves the client to the end
                    self._running[key] = client
                    return key
                self._changed.wait()
            return None

    def finish(self, key: str) -> None:
        """Mark an upload that :meth:`take` returned as finished."""
        with self._changed:
            del self._running[key]
            self._changed.notify_all()

    def _work(self, context: Any) -> None:
        while (key := self.take()) is not None:
            try:
                with self.folder.lock(key) as is_locked:
                    if is_locked:
                        check(key, self.settings, context, self._abort)
            except Exception:
                _log.exception("check failed")
            finally:
                self.finish(key)


def _start_forkserver() -> ForkServerContext:
    """Start a process with the imports of a check, from which checks are forked quickly."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tfod_validator.child", __name__])
    context.Process(target=int).start()  # returns after the imports
    return context


def check(key: str, settings: Settings, context: Any, abort: threading.Event) -> None:
    """Check an upload in a child process and publish the report, or the reason of the failure.

    If the child process is killed, the check is repeated, up to ``max_attempts`` times in total.
    Nothing is published if another process has already published a report. Set ``abort`` to end
    the check within half a second; the attempt is then not counted.
    """
    folder, started, problem = DataFolder(settings), time.time(), None
    validation = folder.find(key)
    if validation is None or validation.result is not None:
        return
    with suppress(FileNotFoundError):  # the upload was deleted in the meantime
        while True:
            attempt, number = folder.begin_attempt(key)
            if number > settings.max_attempts:
                reason = f"was started {settings.max_attempts} times and never finished"
                hint = "probably because it ran out of memory. Check the upload in parts."
                problem = ProblemError(500, f"The check {reason}, {hint}")
                break
            arguments = (replace(settings, token="", queue=""), attempt, validation.request)
            child = context.Process(target=_run, args=arguments, daemon=True)
            timed_out = _run_to_end(child, attempt, settings, abort)
            if abort.is_set() and child.exitcode:
                shutil.rmtree(attempt, ignore_errors=True)
                return
            problem = _find_problem(child.exitcode, settings, timed_out=timed_out)
            if child.exitcode == 0 or problem:
                break
        if problem:
            result = Result(None, started, time.time(), failure=problem.document)
            folder.write_result(attempt, result)
        if published := folder.publish(attempt):
            _count(published)


def _count(result: Result) -> None:
    outcome = {True: "valid", False: "invalid", None: "failed"}[result.valid]
    seconds = result.ended - result.started
    _checks.labels(outcome).inc()
    _seconds.observe(seconds)
    _records.inc(result.records)
    _log.info("checked: %s, %d records, %.3f s", outcome, result.records, seconds)


def _run_to_end(child: Any, attempt: Path, settings: Settings, abort: threading.Event) -> bool:
    """Run a child process until it exits or has to be killed; return whether it timed out."""
    child.start()
    deadline = time.monotonic() + settings.max_check_seconds
    try:
        while child.is_alive() and attempt.exists() and not abort.is_set():
            if time.monotonic() > deadline:
                return True
            child.join(_POLL_SECONDS)
        return False
    finally:
        child.kill()
        child.join()


def _find_problem(status: int, settings: Settings, *, timed_out: bool) -> ProblemError | None:
    """Return why a check failed; None if it succeeded, or was killed and must be repeated."""
    if status in (0, -signal.SIGKILL, 255) and not (timed_out and status):  # 255: unknown status
        return None
    if timed_out:
        limit = f"{settings.max_check_seconds:,} seconds"
        detail = f"The check took longer than {limit}. Check the upload in parts."
        return ProblemError(422, detail, limit="max_check_seconds")
    reason = f"exited with status {status}"
    if status < 0:
        reason = f"was terminated by {signal.Signals(-status).name}"
    return ProblemError(500, f"The process of the check {reason}. Upload the files again.")


def _run(*arguments: Any) -> None:
    from tfod_validator.child import run  # not needed in the process that starts the child

    run(*arguments)


class RedisQueue(Queue):
    """Checks uploads with RQ workers, on any machine that shares the data folder."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._queue = _connect(settings)

    def add(self, key: str, client: str) -> None:
        from rq import Retry
        from rq.job import Job

        if Job.exists(key, self._queue.connection):  # it is offered again every minute
            return
        max_attempts = self.settings.max_attempts
        self._queue.enqueue(
            check_waiting,
            key,
            job_id=key,
            job_timeout=max_attempts * self.settings.max_check_seconds + 60,
            retry=Retry(max=max_attempts),
            result_ttl=0,
            failure_ttl=0,
        )

    def count(self, client: str) -> tuple[int, int]:
        from redis import RedisError

        with suppress(RedisError):
            return 0, int(self._queue.count)
        return 0, 0  # accept uploads now, and queue them when Redis is available again

    def is_alive(self) -> bool:
        from rq import Worker

        return bool(Worker.count(queue=self._queue))


def _connect(settings: Settings) -> Any:
    from redis import Redis
    from rq import Queue as RemoteQueue
    from rq.serializers import JSONSerializer

    try:
        connection = Redis.from_url(settings.queue)
    except ValueError:  # not chained: its text may contain the password
        raise TfodError("TFOD_QUEUE: expected redis://:PASSWORD@HOST:6379") from None
    return RemoteQueue(_QUEUE, connection=connection, serializer=JSONSerializer)


def work(settings: Settings) -> None:
    """Run an RQ worker until SIGTERM; raise TfodError if Redis does not respond."""
    from redis import RedisError
    from rq import Worker

    import tfod_validator.child  # noqa: F401 - RQ forks for each check: import it only once

    queue = _connect(settings)
    try:
        queue.connection.ping()
    except RedisError as error:
        raise TfodError(f"TFOD_QUEUE: Redis does not respond ({error})") from None
    print("tfod: waiting for uploads", file=sys.stderr, flush=True)
    # An idle worker takes over the checks of dead workers every worker_ttl - 15 seconds.
    worker = Worker(
        [queue],
        connection=queue.connection,
        serializer=queue.serializer,
        maintenance_interval=_MAINTENANCE_SECONDS,
        worker_ttl=_MAINTENANCE_SECONDS + 15,
    )
    worker.work()


def check_waiting(key: str) -> None:
    """Check a waiting upload; this is the job that RQ workers run."""
    check(key, Settings.of(), multiprocessing.get_context("fork"), threading.Event())
