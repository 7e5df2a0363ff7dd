"""What a deployment may choose: places, servers, tokens and limits.

Every setting is an option of ``tfod serve`` and an environment variable: ``--max-body-bytes`` and
``TFOD_MAX_BODY_BYTES``. Options win.
"""

from __future__ import annotations

import json
import os
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tfod.errors import TfodError

ENVIRONMENT_PREFIX = "TFOD_"
_HANDED_DOWN = "TFOD_SERVICE_SETTINGS"
"""Holds all settings as JSON, from the process that serves to those it starts."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _limit(default: int, meaning: str) -> Any:
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class Limits:
    """Where the service stops, with the name it uses when it says so."""

    max_body_bytes: int = _limit(4 << 30, "an upload may be so long")
    max_upload_seconds: int = _limit(_HOUR, "an upload may take so long")
    max_files: int = _limit(1000, "an upload may have so many files")
    max_uploads_per_client: int = _limit(64, "uploads of one client at the same time")
    max_uploads_per_minute: int = _limit(120, "uploads of one client in a minute")
    max_sign_ins_per_minute: int = _limit(10, "attempts of one client to sign in, in a minute")
    max_queued_per_client: int = _limit(100, "validations of one client that wait")
    max_queued: int = _limit(10_000, "validations that wait in all")
    max_running_per_client: int = _limit(
        4, "validations of one client at the same time; one place is always left to others"
    )
    max_archive_entries: int = _limit(100_000, "a zip may have so many entries")
    max_archive_ratio: int = _limit(200, "an entry of a zip may unpack to so many times its size")
    max_archive_bytes: int = _limit(16 << 30, "a zip may unpack to so many bytes")
    max_records: int = _limit(10_000_000, "an upload may have so many records")
    max_record_bytes: int = _limit(256 << 20, "larger records are not read")
    max_findings: int = _limit(1000, "a report lists at most so many; all are counted")
    max_images: int = _limit(12, "images with their boxes drawn, in a report")
    max_report_bytes: int = _limit(16 << 20, "a report may have so many, as JSON")
    max_check_bytes: int = _limit(2 << 30, "memory that a check may use; it needs 400 MiB")
    max_check_seconds: int = _limit(15 * _MINUTE, "a check may take so long")
    max_attempts: int = _limit(3, "a check is begun so often if the service itself dies meanwhile")
    max_wait_seconds: int = _limit(_MINUTE, "a request may wait so long for its report")
    max_event_streams: int = _limit(32, "streams of progress at the same time")
    report_seconds: int = _limit(30 * _DAY, "a report is kept so long")
    min_free_bytes: int = _limit(512 << 20, "space on the disk that uploads leave free")


@dataclass(frozen=True)
class Settings:
    """How the service is run.

    Attributes:
        data: folder of uploads, of the databases where no server is named, and of the secret key.
        database_url: of PostgreSQL; without it SQLite in ``data``.
        redis_url: of Redis, for the queue; without it SQLite in ``data``.
        tokens: bearer tokens that are accepted; without any the service is open.
        secret_key: signs cookies; without it one is made and kept in ``data``.
        hosts: names by which the service may be called; without any all are accepted, but for a
            service on loopback, which answers to loopback's names only.
        trusted_proxies: how many proxies before the service append to ``X-Forwarded-*``.
        checks: how many checks a worker process runs at the same time.
        threads: of a web process.
        limits: where the service stops.
    """

    data: Path
    database_url: str = ""
    redis_url: str = ""
    tokens: tuple[str, ...] = ()
    secret_key: str = ""
    hosts: tuple[str, ...] = ()
    trusted_proxies: int = 0
    checks: int = 3
    threads: int = 128
    limits: Limits = field(default_factory=Limits)

    @property
    def uploads(self) -> Path:
        """Where complete uploads are, a folder each."""
        return self.data / "uploads"

    @property
    def incoming(self) -> Path:
        """Where uploads are while they arrive."""
        return self.data / "incoming"

    @property
    def metrics(self) -> Path:
        """Where processes share what they count."""
        return self.data / "metrics"

    def database(self) -> str:
        """SQLAlchemy's URL of the database."""
        url = self.database_url or f"sqlite:///{self.data / 'reports.sqlite3'}"
        for scheme in ("postgres://", "postgresql://"):
            if url.startswith(scheme):
                return "postgresql+psycopg://" + url[len(scheme) :]
        return url

    def to_environment(self) -> dict[str, str]:
        """The variable that hands the settings down to processes of the service."""
        values = asdict(self) | {"data": str(self.data)}
        return {_HANDED_DOWN: json.dumps(values)}

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
        """What :meth:`to_environment` has handed down."""
        values = json.loads(environment[_HANDED_DOWN])
        return Settings(
            **values
            | {
                "data": Path(values["data"]),
                "tokens": tuple(values["tokens"]),
                "hosts": tuple(values["hosts"]),
                "limits": Limits(**values["limits"]),
            }
        )


def limits_from(options: Mapping[str, int | None], environment: Mapping[str, str]) -> Limits:
    """The limits by options, or else by environment variables, or else as they are.

    Raises:
        TfodError: a variable is no whole number above 0.
    """
    chosen = {}
    for one in fields(Limits):
        value = options.get(one.name)
        name = ENVIRONMENT_PREFIX + one.name.upper()
        if value is None and environment.get(name):
            text = environment[name]
            if not text.isascii() or not text.isdigit() or not int(text):
                raise TfodError(f"{name}={text}: must be a whole number, 1 or more")
            value = int(text)
        if value is not None:
            chosen[one.name] = value
    return Limits(**chosen)


def list_of(text: str) -> tuple[str, ...]:
    """The parts of a text with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def limit_names() -> list[tuple[str, int, str]]:
    """Name, default and meaning of each limit."""
    known = typing.get_type_hints(Limits)
    return [
        (one.name, typing.cast(int, one.default), one.metadata["help"])
        for one in fields(Limits)
        if known[one.name] is int
    ]
