"""Settings of the service, from environment variables such as ``TFOD_PORT`` and ``TFOD_TOKEN``.

Flask reads them (``Config.from_prefixed_env``). Options of ``tfod serve`` take precedence.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from flask import Config
from tfod.cli.arguments import whole_number
from tfod.errors import TfodError
from tfod.tfrecord.storage.urls import is_loopback

PREFIX = "TFOD"
MIN_CHECK_BYTES = 400 << 20
"""The memory that a check needs for its imports."""
_LOOPBACK = ("localhost", "127.0.0.1")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _setting(default: Any, text: str, minimum: int = 1, maximum: int | None = None) -> Any:
    return field(default=default, metadata={"help": text, "minimum": minimum, "maximum": maximum})


@dataclass(frozen=True)
class Settings:
    """The settings of a deployment. An error response names the limit that was exceeded."""

    data: Path = _setting(Path("tfod-data"), "folder for uploads and reports")  # noqa: RUF009
    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8080, "port to listen on; 0 for any free port", 0, 65535)
    token: str = _setting("", "token required to use the service; without one, anyone can use it")
    queue: str = _setting("", "URL of a Redis server, for workers in other processes (`--worker`)")
    browser: str = _setting("", "folder of `make browser`, served at /browser")
    trusted_proxy: str = _setting("", "address of a proxy whose X-Forwarded-* are used; * for any")
    trusted_hosts: str = _setting("", "comma-separated host names of the service; empty for any")
    checks: int = _setting(4, "checks at the same time")
    threads: int = _setting(64, "requests at the same time; half of them may wait for a report", 2)
    max_connections: int = _setting(256, "connections per address, except for a proxy", 1, 900)
    max_body_bytes: int = _setting(4 << 30, "size of an upload")
    max_upload_seconds: int = _setting(_HOUR, "duration of an upload")
    max_files: int = _setting(1000, "files per upload")
    max_waiting_per_client: int = _setting(100, "waiting validations per client address")
    max_waiting: int = _setting(10_000, "waiting validations in total")
    max_archive_entries: int = _setting(100_000, "entries of a zip")
    max_archive_ratio: int = _setting(200, "compression ratio of a zip entry")
    max_archive_bytes: int = _setting(16 << 30, "unpacked size of a zip")
    max_records: int = _setting(10_000_000, "records per upload")
    max_record_bytes: int = _setting(256 << 20, "size of a record; larger records are not read")
    max_findings: int = _setting(1000, "findings listed in a report; all findings are counted")
    max_images: int = _setting(12, "images drawn in a report, with their boxes")
    max_report_bytes: int = _setting(16 << 20, "size of a report")
    max_check_bytes: int = _setting(2 << 30, "memory of a check", MIN_CHECK_BYTES)
    max_check_seconds: int = _setting(15 * _MINUTE, "duration of a check")
    max_attempts: int = _setting(3, "attempts of a check whose process or machine dies")
    max_wait_seconds: int = _setting(_MINUTE, "how long a request may wait for its report")
    upload_seconds: int = _setting(_HOUR, "how long an upload is kept, so that it can be repaired")
    report_seconds: int = _setting(30 * _DAY, "how long a report is kept")
    min_free_bytes: int = _setting(512 << 20, "free disk space that uploads do not use")

    @staticmethod
    def of(environment: Mapping[str, Any] | None = None, **options: Any) -> Settings:
        """Read the settings from a Flask configuration, or from the environment of the process.

        Options that are not None take precedence. Raises TfodError if a variable is invalid.
        """
        if environment is None:
            environment = Config("")
            environment.from_prefixed_env(PREFIX, loads=str)
        texts = {setting: environment.get(setting.name.upper()) for setting in fields(Settings)}
        values = {setting.name: _parse(setting, text) for setting, text in texts.items() if text}
        values |= {name: value for name, value in options.items() if value is not None}
        if browser := values.get("browser"):
            if not Path(browser, "index.html").is_file():
                raise TfodError(
                    f"{PREFIX}_BROWSER: {browser} has no index.html; name the folder that "
                    "`make browser` builds: build/browser"
                )
            values["browser"] = str(Path(browser).absolute())
        return Settings(**{**values, "data": Path(values.get("data", Settings.data)).absolute()})

    @property
    def is_local(self) -> bool:
        """Whether the service can only be reached from this machine."""
        return is_loopback(self.host)

    @property
    def hosts(self) -> list[str] | None:
        """The trusted host names; None for any. On loopback, only its names are trusted."""
        names = [name.strip() for name in self.trusted_hosts.split(",") if name.strip()]
        # Werkzeug, which checks the names, does not support IPv6 addresses.
        if names or (self.is_local and not self.trusted_proxy and ":" not in self.host):
            return [*names, *_LOOPBACK, self.host]
        return None

    def is_proxy(self, address: str) -> bool:
        """Check whether an address is the trusted proxy, which connects for many clients."""
        return self.trusted_proxy in ("*", address)


def _parse(setting: Field[Any], text: str) -> Any:
    if not isinstance(setting.default, int):
        return Path(text) if isinstance(setting.default, Path) else text
    try:
        return whole_number(setting.metadata["minimum"], setting.metadata["maximum"])(text)
    except argparse.ArgumentTypeError as error:
        raise TfodError(f"{PREFIX}_{setting.name.upper()}: {error}") from None
