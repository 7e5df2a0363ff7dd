"""A worker process: claims validations, has them checked, and removes what is not needed any more.

The processes of checks are forked from one that this process starts, so it keeps no secrets in its
environment.
"""

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
from dataclasses import replace

from sqlalchemy.exc import SQLAlchemyError

from tfod_validator import data_folder, logs, metrics
from tfod_validator.jobs import Store
from tfod_validator.processes import DRAIN_SECONDS, follow_parent
from tfod_validator.sandbox import RetryError, StoppedError, prepare, run_in_sandbox
from tfod_validator.settings import ENVIRONMENT_PREFIX, Settings
from tfod_validator.validation import Result, Validation, failed, short_id

LEASE_SECONDS = 10.0
"""A validation whose worker has not renewed its lease for so long may be claimed by another."""
_RENEW_EVERY = 0.5
_LOOK_EVERY = 0.2
_REPORT_EVERY = 2.0
_CLEAN_EVERY = 60.0
_ORPHANED_AFTER = 60.0
_ABANDONED_AFTER = 3600.0
_FORGOTTEN_AFTER = 3600.0
_TRIES = 30
_log = logging.getLogger("tfod.worker")


def main() -> int:
    """Work until SIGTERM comes, or the process that started this one is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    logs.configure()
    settings = Settings.from_environment()
    for name in [one for one in os.environ if one.startswith(ENVIRONMENT_PREFIX)]:
        del os.environ[name]
    known = replace(settings, tokens=(), secret_key="", database_url="")
    os.environ.update(known.to_environment())
    worker = Worker(settings)

    def give_up() -> None:
        worker.give_up()
        stop.set()

    follow_parent(give_up)
    worker.run(stop)
    return 0


class Worker:
    """What a worker process does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limits = settings.limits
        self._store = Store(settings)
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._mark: str | None = None
        self._has_warned = False
        self._busy: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Work until the event is set; checks that run then may go on for a while."""
        self._store.create_tables()
        prepare()
        threads = [threading.Thread(target=self._work_always) for _ in range(self._settings.checks)]
        for one in threads:
            one.start()
        cleaned = 0.0
        while True:
            try:
                if self._has_folder():
                    self._store.see_worker(self._name, time.time() - _FORGOTTEN_AFTER)
                    if time.monotonic() - cleaned > _CLEAN_EVERY:
                        cleaned = time.monotonic()
                        self.clean()
                else:
                    self._store.forget_worker(self._name)
            except Exception:  # the database may be away for a while
                _log.exception("the worker cannot report")
            if stop.wait(_REPORT_EVERY):
                break
        self._stopping.set()
        end = time.monotonic() + DRAIN_SECONDS
        for one in threads:
            one.join(max(0.0, end - time.monotonic()))
        self._given_up.set()
        for one in threads:
            one.join()
        with suppress(SQLAlchemyError):  # it is forgotten later anyway
            self._store.forget_worker(self._name)

    def give_up(self) -> None:
        """Release what runs, at once."""
        self._stopping.set()
        self._given_up.set()

    def _work_always(self) -> None:
        while not self._stopping.is_set():
            try:
                self.work()
            except Exception:
                _log.exception("a validation cannot be claimed")
            self._stopping.wait(_LOOK_EVERY)

    def work(self) -> None:
        """Check what waits, one after the other, until there is nothing more."""
        while not self._stopping.is_set() and self._has_folder():
            lease = time.time() + LEASE_SECONDS
            # After a pause of the machine, what runs here has an ended lease: it is no free work.
            found = self._store.claim(self._name, lease, self._most_running(), tuple(self._busy))
            if found is None:
                return
            self._busy.add(found.id)
            try:
                self._check(found)
            finally:
                self._busy.discard(found.id)

    def clean(self) -> None:
        """Delete expired reports, and files that are not needed any more."""
        expired = data_folder.clean(
            self._settings,
            self._store,
            orphaned_after=_ORPHANED_AFTER,
            abandoned_after=self._limits.max_upload_seconds + _ABANDONED_AFTER,
        )
        if expired:
            _log.info("expired", extra={"fields": {"validations": expired}})

    def _most_running(self) -> int:
        """How many checks of one client may run: all but one of those that can."""
        places = max(1, self._store.count_workers()) * self._settings.checks
        return min(self._limits.max_running_per_client, max(1, places - 1))

    def _has_folder(self) -> bool:
        """Whether the data folder is here; without it no upload can be checked or removed."""
        if self._mark is None:
            self._mark = data_folder.settle_mark(self._settings, self._store, takes_uploads=False)
        is_here = data_folder.sees_mark(self._settings, self._mark)
        if self._mark is not None and not is_here and not self._has_warned:
            _log.error(data_folder.wrong_folder(self._settings, self._mark))
            self._has_warned = True
        return is_here

    def _check(self, found: Validation) -> None:
        key = found.id
        began = time.monotonic()
        most = self._limits.max_attempts
        if found.attempts > 1:
            fields = {"validation": short_id(key), "attempt": found.attempts}
            _log.warning("a check is tried again", extra={"fields": fields})
        try:
            if found.attempts > most:
                detail = f"The check was begun {most} times and never ended; check it in parts."
                result = failed(500, detail)
            else:
                folder = data_folder.folder_of(self._settings, key)
                result = run_in_sandbox(folder, found.request, self._limits, self._keeper(key))
        except StoppedError:
            if self._given_up.is_set():
                self._retry(lambda: self._store.release(key, self._name, counts=False))
            return  # another worker has it, or it was deleted
        except RetryError as error:
            if found.attempts < min(error.most_attempts, most):
                until = time.time() + error.seconds
                self._retry(lambda: self._store.release(key, self._name, counts=True, until=until))
                return
            result = failed(500, str(error))
        except Exception:
            _log.exception("a check failed", extra={"fields": {"validation": short_id(key)}})
            detail = "The service has made a mistake; its log has more. Upload again to try again."
            result = failed(500, detail)
        self._finish(found, result, time.monotonic() - began)

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
                return now < lost  # the database may come back before another worker claims it
            lost = now + LEASE_SECONDS
            return mine

        return keep

    def _finish(self, found: Validation, result: Result, seconds: float) -> None:
        key = found.id
        is_kept = self._retry(lambda: self._store.finish(key, self._name, result))
        self._retry(lambda: self._remove_files(key))
        if not is_kept:
            return  # it was deleted, or another worker has begun it again
        outcome = {True: "valid", False: "invalid", None: "failed"}[result.valid]
        metrics.CHECKS.labels(outcome).inc()
        metrics.CHECK_SECONDS.observe(seconds)
        metrics.CHECKED_RECORDS.inc(result.records)
        fields = {
            "validation": short_id(key),
            "outcome": outcome,
            "status": (result.failure or {}).get("status", 200),
            "seconds": round(seconds, 3),
            "bytes": found.bytes_total,
            "records": result.records,
            "attempt": found.attempts,
        }
        _log.info("checked", extra={"fields": fields})

    def _remove_files(self, key: str) -> bool:
        """Remove the files of an upload, unless it is still to be checked."""
        if key not in self._store.needs_files([key]):
            data_folder.remove(self._settings, key)
        return True

    def _retry(self, action: Callable[[], bool]) -> bool:
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
