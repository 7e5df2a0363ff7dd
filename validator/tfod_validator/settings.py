"""What a deployment may choose: addresses, processes, tokens and limits.

Each is an environment variable: ``TFOD_PORT``, ``TFOD_MAX_BODY_BYTES``. Those that are no limits
are options of ``tfod serve`` too, which win.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENVIRONMENT_PREFIX = "TFOD_"
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder in which processes share what they count."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_DATA = Path("tfod-data")


def _option(default: Any, group: str, meaning: str, least: int = 0, most: int | None = None) -> Any:
    about = {"help": meaning, "group": group, "least": least, "most": most}
    return field(default=default, metadata=about)


def _limit(default: int, meaning: str, most: int | None = None) -> Any:
    return field(default=default, metadata={"help": meaning, "least": 1, "most": most})


@dataclass(frozen=True)
class Limits:
    """Where the service stops; an answer that a limit causes has its name."""

    max_body_bytes: int = _limit(4 << 30, "length of an upload")
    max_upload_seconds: int = _limit(_HOUR, "time that an upload may take")
    max_files: int = _limit(1000, "files of an upload")
    max_uploads_per_client: int = _limit(64, "uploads of one client at the same time")
    max_uploads_per_minute: int = _limit(120, "uploads of one client in a minute")
    max_sign_ins_per_minute: int = _limit(10, "attempts of one client to sign in, in a minute")
    max_queued_per_client: int = _limit(100, "validations of one client that wait")
    max_queued: int = _limit(10_000, "validations that wait in all")
    max_running_per_client: int = _limit(
        4, "validations of one client at the same time; one place is always left to others"
    )
    max_archive_entries: int = _limit(100_000, "entries of a zip")
    max_archive_ratio: int = _limit(200, "size of an unpacked entry of a zip, as a multiple")
    max_archive_bytes: int = _limit(16 << 30, "bytes that a zip unpacks to")
    max_records: int = _limit(10_000_000, "records of an upload")
    max_record_bytes: int = _limit(256 << 20, "larger records are not read")
    max_findings: int = _limit(1000, "findings that a report lists; all are counted")
    max_images: int = _limit(12, "images with their boxes drawn, in a report")
    max_report_bytes: int = _limit(16 << 20, "length of a report as JSON")
    max_check_bytes: int = _limit(2 << 30, "memory that a check may use; it needs 400 MiB")
    max_check_seconds: int = _limit(15 * _MINUTE, "time that a check may take")
    max_attempts: int = _limit(3, "attempts of a check whose process or machine dies meanwhile")
    max_wait_seconds: int = _limit(
        _MINUTE, "time that a request may wait for its report, at most 60", most=_MINUTE
    )
    max_event_streams: int = _limit(32, "streams of progress at the same time")
    report_seconds: int = _limit(30 * _DAY, "a report is kept so long")
    min_free_bytes: int = _limit(512 << 20, "space on the disk that uploads leave free")


@dataclass(frozen=True)
class Settings:
    """What a deployment has chosen; fields with a help text are options of ``tfod serve``.

    Attributes:
        database_url: of PostgreSQL; without it SQLite in ``data``.
        tokens: bearer tokens that are accepted; without any the service is open.
        secret_key: signs cookies; without it one is made and kept in ``data``.
        limits: where the service stops.
    """

    data: Path = _option(_DATA, "where", "folder for uploads and reports")  # noqa: RUF009
    host: str = _option("127.0.0.1", "where", "address to listen at")
    port: int = _option(8080, "where", "0 for any that is free", most=65535)
    hosts: tuple[str, ...] = _option(
        (), "where", "names by which it may be called; without them all, on loopback loopback's"
    )
    trusted_proxies: int = _option(0, "where", "so many proxies before it append to X-Forwarded-*")
    web: int = _option(1, "how many", "web processes")
    workers: int = _option(1, "how many", "worker processes")
    checks: int = _option(3, "how many", "checks that a worker runs at a time", least=1)
    threads: int = _option(128, "how many", "threads of a web process", least=1)
    database_url: str = ""
    tokens: tuple[str, ...] = ()
    secret_key: str = ""
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
        scheme, _, rest = url.partition("://")
        return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url
