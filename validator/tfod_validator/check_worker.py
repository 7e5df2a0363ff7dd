"""A worker: takes up validations, has them checked, and keeps the house clean."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy.exc import SQLAlchemyError

from tfod_validator import metrics, uploads
from tfod_validator.jobs import Store
from tfod_validator.problems import problem_document
from tfod_validator.queue import Queue
from tfod_validator.sandbox import RetryError, StoppedError, prepare, run_in_sandbox
from tfod_validator.settings import Settings
from tfod_validator.validation import Outcome, Validation, short_id

LEASE_SECONDS = 10.0
"""A validation whose worker has not been heard of for so long is begun again."""
_RENEW_EVERY = 0.5
_SWEEP_EVERY = 2.0
_CLEAN_EVERY = 60.0
_ORPHANED_AFTER = 60.0
_ABANDONED_AFTER = 3600.0
_FORGOTTEN_AFTER = 3600.0
_TRIES = 30
_log = logging.getLogger("tfod.worker")


class Worker:
    """What a worker process does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limits = settings.limits
        self._store = Store(settings)
        self._queue = Queue(settings, self.work)
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._mark: str | None = None
        self._is_told = False

    def run(self, stop: threading.Event, drain_seconds: float) -> None:
        """Work until told to stop; what then runs may go on for so many seconds."""
        self._store.create_tables()
        prepare()
        sweeper = threading.Thread(target=self._sweep_always, args=(stop,), name="sweeper")
        sweeper.start()
        consumer = self._queue.huey.create_consumer(
            workers=self._settings.checks,
            worker_type="thread",
            initial_delay=0.05,
            max_delay=0.3,
            periodic=False,
            shutdown_timeout=drain_seconds,
        )
        handlers = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
        consumer.start()
        for number, handler in handlers.items():  # huey has its own
            signal.signal(number, handler)
        while not stop.wait(1.0):
            consumer.check_worker_health()
        self._stopping.set()
        consumer.stop_flag.set()
        self._end(consumer.worker_threads, drain_seconds)
        sweeper.join()
        with suppress(SQLAlchemyError):  # it is forgotten later anyway
            self._store.forget_worker(self._name)

    def give_up(self) -> None:
        """Give back what runs, at once."""
        self._stopping.set()
        self._given_up.set()

    def _end(self, workers: list[tuple[object, threading.Thread]], seconds: float) -> None:
        """Let what runs end; after so many seconds it is given back, to run again later."""
        end = time.monotonic() + seconds
        for _, thread in workers:
            thread.join(max(0.0, end - time.monotonic()))
        self._given_up.set()
        for _, thread in workers:
            thread.join()

    def work(self) -> None:
        """Check what waits, one after the other, until there is nothing more."""
        while not self._stopping.is_set() and self._is_at_home():
            lease = time.time() + LEASE_SECONDS
            found = self._store.claim(self._name, lease, self._most_running())
            if found is None:
                return
            self._check(found)

    def _most_running(self) -> int:
        """How many checks of one client may run: all but one of those that can."""
        places = max(1, self._store.count_workers()) * self._settings.checks
        return min(self._limits.max_running_per_client, max(1, places - 1))

    def _is_at_home(self) -> bool:
        """Whether the data folder is here; without it no upload can be checked, nor cleaned up."""
        if self._mark is None:
            self._mark = uploads.settle_mark(self._settings, self._store, takes_uploads=False)
        is_here = uploads.sees_mark(self._settings, self._mark)
        if self._mark is not None and not is_here and not self._is_told:
            _log.error(uploads.wrong_folder(self._settings, self._mark))
            self._is_told = True
        return is_here

    def _check(self, found: Validation) -> None:
        key = found.id
        began = time.monotonic()
        try:
            outcome = run_in_sandbox(
                uploads.folder_of(self._settings, key),
                found.request,
                self._limits,
                self._keeper(key),
            )
        except StoppedError:
            if self._given_up.is_set():
                self._patiently(lambda: self._store.give_back(key, self._name))
            return  # somebody else has it, or it was deleted
        except RetryError as error:
            fields = {"validation": short_id(key), "attempt": found.attempts}
            _log.warning("a check has to be tried again", extra={"fields": fields})
            if found.attempts < min(error.most_attempts, self._limits.max_attempts):
                until = time.time() + error.seconds
                self._patiently(lambda: self._store.put_off(key, self._name, until))
                return
            outcome = Outcome({}, None, failure=problem_document(500, str(error)))
        except Exception:
            _log.exception("a check failed", extra={"fields": {"validation": short_id(key)}})
            detail = "The service has made a mistake; its log has more. Upload again to try again."
            outcome = Outcome({}, None, failure=problem_document(500, detail))
        self._finish(found, outcome, time.monotonic() - began)

    def _keeper(self, key: str) -> Callable[[int, int], bool]:
        """What renews the lease of a validation while it is checked, and says whether to go on."""
        renewed = 0.0
        lost = time.monotonic() + LEASE_SECONDS

        def keep(read: int, records: int) -> bool:
            nonlocal renewed, lost
            now = time.monotonic()
            if self._given_up.is_set():
                return False
            if now - renewed < _RENEW_EVERY:
                return True
            renewed = now
            try:
                lease = time.time() + LEASE_SECONDS
                mine = self._store.renew(key, self._name, lease, (read, records))
            except SQLAlchemyError:
                return now < lost  # the database may come back before another takes over
            lost = now + LEASE_SECONDS
            return mine

        return keep

    def _finish(self, found: Validation, outcome: Outcome, seconds: float) -> None:
        key = found.id
        is_kept = self._patiently(lambda: self._store.finish(key, self._name, outcome))
        self._patiently(lambda: self._remove_files(key))
        if not is_kept:
            return  # it was deleted, or another worker has begun it again
        verdict = {True: "valid", False: "invalid", None: "failed"}[outcome.valid]
        metrics.CHECKS.labels(verdict).inc()
        metrics.CHECK_SECONDS.observe(seconds)
        metrics.CHECKED_RECORDS.inc(outcome.records)
        fields = {
            "validation": short_id(key),
            "outcome": verdict,
            "status": (outcome.failure or {}).get("status", 200),
            "seconds": round(seconds, 3),
            "bytes": found.bytes_total,
            "records": outcome.records,
            "attempt": found.attempts,
        }
        _log.info("checked", extra={"fields": fields})

    def _remove_files(self, key: str) -> bool:
        """Remove the files of an upload, unless it is still to be checked."""
        if key not in self._store.needs_files([key]):
            uploads.remove(self._settings, key)
        return True

    def _patiently(self, action: Callable[[], bool]) -> bool:
        """Do what needs the database, again if it does not answer for a while.

        Where it does not come back, the lease ends, and another worker begins again.
        """
        for _ in range(_TRIES):
            try:
                return action()
            except SQLAlchemyError:
                _log.exception("the database does not answer")
                if self._given_up.wait(1.0):
                    break
        return False

    def _sweep_always(self, stop: threading.Event) -> None:
        cleaned = 0.0
        while True:
            try:
                if not self._is_at_home():
                    self._store.forget_worker(self._name)
                else:
                    self._sweep()
                    if time.monotonic() - cleaned > _CLEAN_EVERY:
                        cleaned = time.monotonic()
                        self.clean()
            except Exception:  # servers may be away for a while
                _log.exception("looking after things failed")
            if stop.wait(_SWEEP_EVERY):
                return

    def _sweep(self) -> None:
        """Find what was begun and is held by nobody, and what waits though nobody was woken."""
        now = time.time()
        self._store.see_worker(self._name, now - _FORGOTTEN_AFTER)
        most = self._limits.max_attempts
        detail = f"The check was begun {most} times and never ended; upload less, or in parts."
        again = self._store.recover(most, problem_document(500, detail))
        if again:
            _log.warning(
                "begun again", extra={"fields": {"validations": [short_id(key) for key in again]}}
            )
        if self._store.has_work(self._name, self._most_running()):
            for _ in range(self._settings.checks - len(self._queue)):
                self._queue.wake()

    def clean(self) -> None:
        """Delete reports that are too old, and files that nobody needs any more."""
        gone = self._store.delete_expired()
        for key in gone:
            uploads.remove(self._settings, key)
        there = uploads.complete_ones(self._settings, _ORPHANED_AFTER)
        for key in set(there) - self._store.needs_files(there):
            uploads.remove(self._settings, key)
        uploads.remove_abandoned(self._settings, _ABANDONED_AFTER)
        if gone:
            _log.info("expired", extra={"fields": {"validations": len(gone)}})
