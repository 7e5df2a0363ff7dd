"""What a deployment may choose, each by an environment variable: ``TFOD_PORT``, ``TFOD_TOKEN``.

Flask reads them (``Config.from_prefixed_env``); where the service listens, and its folder, are
options of ``tfod serve`` too, which win.
"""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from flask import Config
from tfod.cli.arguments import whole_number
from tfod.errors import TfodError

PREFIX = "TFOD"
LEAST_CHECK_BYTES = 400 << 20
"""With less memory a check cannot import what it needs."""
_HERE = Path(__file__).parent
_FOLDERS = (_HERE / "examples", _HERE.parents[1] / "examples")  # in the wheel, and in a clone
EXAMPLES = {
    name: next(one for one in _FOLDERS if one.is_dir()) / f"shapes_{name}.zip"
    for name in ("good", "broken")
}
"""Zips that the page offers to try."""
_LOOPBACK = ("localhost", "127.0.0.1")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _setting(default: Any, meaning: str, least: int = 1, most: int | None = None) -> Any:
    return field(default=default, metadata={"help": meaning, "least": least, "most": most})


@dataclass(frozen=True)
class Settings:
    """What a deployment has chosen; an answer that a limit causes has the limit's name."""

    data: Path = _setting(Path("tfod-data"), "folder for uploads and reports")  # noqa: RUF009
    host: str = _setting("127.0.0.1", "address to listen at")
    port: int = _setting(8080, "port to listen at; 0 for any that is free", 0, 65535)
    token: str = _setting("", "who has it may use the service; without one everybody")
    queue: str = _setting("", "URL of a Redis, for workers beside this process (`--worker`)")
    trusted_proxy: str = _setting("", "address of a proxy, whose X-Forwarded-* count; * for any")
    trusted_hosts: str = _setting("", "names by which it may be called, with commas; else all")
    checks: int = _setting(4, "checks at a time")
    threads: int = _setting(64, "requests at a time; half of them may wait for a report", 2)
    max_connections: int = _setting(256, "connections of one address at a time; no proxy's", 1, 900)
    max_body_bytes: int = _setting(4 << 30, "length of an upload")
    max_upload_seconds: int = _setting(_HOUR, "time that an upload may take")
    max_files: int = _setting(1000, "files of an upload")
    max_waiting_per_client: int = _setting(100, "validations of one address that wait")
    max_waiting: int = _setting(10_000, "validations that wait in all")
    max_archive_entries: int = _setting(100_000, "entries of a zip")
    max_archive_ratio: int = _setting(200, "size of an unpacked entry of a zip, as a multiple")
    max_archive_bytes: int = _setting(16 << 30, "bytes that a zip unpacks to")
    max_records: int = _setting(10_000_000, "records of an upload")
    max_record_bytes: int = _setting(256 << 20, "larger records are not read")
    max_findings: int = _setting(1000, "findings that a report lists; all are counted")
    max_images: int = _setting(12, "images with their boxes drawn, in a report")
    max_report_bytes: int = _setting(16 << 20, "length of a report")
    max_check_bytes: int = _setting(2 << 30, "memory that a check may use", LEAST_CHECK_BYTES)
    max_check_seconds: int = _setting(15 * _MINUTE, "time that a check may take")
    max_attempts: int = _setting(3, "attempts of a check whose process or machine dies meanwhile")
    max_wait_seconds: int = _setting(_MINUTE, "time that a request may wait for its report")
    upload_seconds: int = _setting(_HOUR, "an upload is kept so long, to be repaired")
    report_seconds: int = _setting(30 * _DAY, "a report is kept so long")
    min_free_bytes: int = _setting(512 << 20, "space on the disk that uploads leave free")

    @staticmethod
    def of(environment: Mapping[str, Any] | None = None, **given: Any) -> Settings:
        """The settings of the environment; ``given`` are options, which win unless they are None.

        Args:
            environment: Flask's configuration; None for that of the process's environment.
            given: by the names of the fields.

        Raises:
            TfodError: a variable makes no sense.
        """
        if environment is None:
            environment = Config("")
            environment.from_prefixed_env(PREFIX, loads=str)
        texts = {one: environment.get(one.name.upper()) for one in fields(Settings)}
        chosen = {one.name: _read(one, text) for one, text in texts.items() if text}
        chosen |= {name: value for name, value in given.items() if value is not None}
        return Settings(**{**chosen, "data": Path(chosen.get("data", Settings.data)).absolute()})

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return self.host.lower() == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def hosts(self) -> list[str] | None:
        """Names by which it may be called; None for all. No other than these lead to loopback.

        Werkzeug, which looks, knows no addresses of IPv6.
        """
        named = [one.strip() for one in self.trusted_hosts.split(",") if one.strip()]
        if named or (self.is_local and not self.trusted_proxy and ":" not in self.host):
            return [*named, *_LOOPBACK, self.host]
        return None

    def is_proxy(self, address: str) -> bool:
        """Whether connections from an address are many clients'."""
        return self.trusted_proxy in ("*", address)


def _read(one: Field[Any], text: str) -> Any:
    if not isinstance(one.default, int):
        return Path(text) if isinstance(one.default, Path) else text
    try:
        return whole_number(one.metadata["least"], one.metadata["most"])(text)
    except argparse.ArgumentTypeError as error:
        raise TfodError(f"{PREFIX}_{one.name.upper()}: {error}") from None
