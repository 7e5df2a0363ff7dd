"""A worker process: claims validations, has them checked, and removes what is not needed any more.

The processes of checks are forked from one that this process starts, so it keeps no secrets in its
environment.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy.exc import SQLAlchemyError

from tfod_validator.jobs.data_folder import DataFolder
from tfod_validator.jobs.database import Database, Validation
from tfod_validator.jobs.request import Result, failed
from tfod_validator.jobs.sandbox import RetryError, StoppedError, prepare, run_in_sandbox
from tfod_validator.serve import monitoring
from tfod_validator.settings import ENVIRONMENT_PREFIX, Settings

LEASE_SECONDS = 10.0
"""A validation whose worker has not renewed its lease for so long may be claimed by another."""
_RENEW_EVERY = 0.5
_LOOK_EVERY = 0.2
_REPORT_EVERY = 2.0
_CLEAN_EVERY = 60.0
_FORGOTTEN_AFTER = 3600.0
_TRIES = 30
_log = logging.getLogger("tfod.worker")


class Worker:
    """What a worker process does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limits = settings.limits
        self._database = Database(settings)
        self._folder = DataFolder(settings, self._database, takes_uploads=False)
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._busy: set[str] = set()
        self._threads = [threading.Thread(target=self._work_always) for _ in range(settings.checks)]

    def start(self) -> None:
        """Work until :meth:`stop` is called."""
        for name in [one for one in os.environ if one.startswith(ENVIRONMENT_PREFIX)]:
            del os.environ[name]  # those of the checks get this environment
        prepare()
        threading.Thread(target=self._report_always, daemon=True).start()
        for one in self._threads:
            one.start()

    def stop(self, seconds: float) -> None:
        """Let checks go on for so long, and release those that have not ended then."""
        self._stopping.set()
        end = time.monotonic() + seconds
        for one in self._threads:
            one.join(max(0.0, end - time.monotonic()))
        self._given_up.set()
        for one in self._threads:
            one.join()
        with suppress(SQLAlchemyError):  # it is forgotten later anyway
            self._database.forget_worker(self._name)

    def _report_always(self) -> None:
        cleaned = -_CLEAN_EVERY
        while not self._stopping.is_set():
            try:
                if not self._folder.is_there():
                    self._database.forget_worker(self._name)
                else:
                    self._database.see_worker(self._name, time.time() - _FORGOTTEN_AFTER)
                    if time.monotonic() - cleaned > _CLEAN_EVERY:
                        cleaned = time.monotonic()
                        self._folder.clean()
            except Exception:  # the database may be away for a while
                _log.exception("the worker cannot report")
            self._stopping.wait(_REPORT_EVERY)

    def _work_always(self) -> None:
        while not self._stopping.is_set():
            try:
                self.work()
            except Exception:
                _log.exception("a validation cannot be claimed")
            self._stopping.wait(_LOOK_EVERY)

    def work(self) -> None:
        """Check what waits, one after the other, until there is nothing more.

        Without the data folder no upload can be checked or removed.
        """
        while not self._stopping.is_set() and self._folder.is_there():
            if not self._database.has_work():
                return
            lease = time.time() + LEASE_SECONDS
            # Of one client all but one of the checks that can run at the same time.
            places = max(1, self._database.count_workers()) * self._settings.checks
            most_running = min(self._limits.max_running_per_client, max(1, places - 1))
            # After a pause of the machine, what runs here has an ended lease: it is no free work.
            found = self._database.claim(self._name, lease, most_running, tuple(self._busy))
            if found is None:
                return
            self._busy.add(found.id)
            try:
                self._check(found)
            finally:
                self._busy.discard(found.id)

    def _check(self, found: Validation) -> None:
        began = time.monotonic()
        about = {"validation": found.id[:6], "attempt": found.attempts}  # all would open the report
        if found.attempts > 1:
            _log.warning("a check is tried again", extra={"fields": about})
        try:
            result = self._result_of(found)
        except StoppedError:
            if self._given_up.is_set():
                self._release(found, counts=False)
            return  # another worker has it, or it was deleted
        except RetryError as error:
            if found.attempts < min(error.most_attempts, self._limits.max_attempts):
                self._release(found, counts=True, until=time.time() + error.seconds)
                return
            result = failed(500, str(error))
        except Exception:
            _log.exception("a check failed", extra={"fields": about})
            detail = "The service has made a mistake; its log has more. Upload again to try again."
            result = failed(500, detail)
        is_kept = self._retry(lambda: self._database.finish(found.id, self._name, result))
        self._retry(lambda: self._remove_files(found.id))
        if not is_kept:
            return  # it was deleted, or another worker has begun it again
        seconds = time.monotonic() - began
        outcome = {True: "valid", False: "invalid", None: "failed"}[result.valid]
        monitoring.CHECKS.labels(outcome).inc()
        monitoring.CHECK_SECONDS.observe(seconds)
        monitoring.CHECKED_RECORDS.inc(result.records)
        about |= {
            "outcome": outcome,
            "status": (result.failure or {}).get("status", 200),
            "seconds": round(seconds, 3),
            "bytes": found.bytes_total,
            "records": result.records,
        }
        _log.info("checked", extra={"fields": about})

    def _result_of(self, found: Validation) -> Result:
        most = self._limits.max_attempts
        if found.attempts > most:
            detail = f"The check was begun {most} times and never ended; check it in parts."
            return failed(500, detail)
        renewed = 0.0
        lost = time.monotonic() + LEASE_SECONDS

        def keep(read: int, records: int) -> bool:
            """Renew the lease now and then; say whether to go on."""
            nonlocal renewed, lost
            now = time.monotonic()
            if self._given_up.is_set():
                return False
            if now - renewed < _RENEW_EVERY:
                return True
            renewed, done = now, (min(read, found.bytes_total), records)
            try:
                lease = time.time() + LEASE_SECONDS
                is_mine = self._database.renew(found.id, self._name, lease, done)
            except SQLAlchemyError:
                return now < lost  # the database may come back before another worker claims it
            lost = now + LEASE_SECONDS
            return is_mine

        return run_in_sandbox(self._folder.of_upload(found.id), found.request, self._limits, keep)

    def _release(self, found: Validation, *, counts: bool, until: float | None = None) -> None:
        self._retry(
            lambda: self._database.release(found.id, self._name, counts=counts, until=until)
        )

    def _remove_files(self, key: str) -> bool:
        if not self._database.needs_files([key]):
            self._folder.remove(key)
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
