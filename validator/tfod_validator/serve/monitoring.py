"""Logs and metrics of all processes.

Logs are a JSON object a line on standard error; nothing of what was uploaded is in them. Fields are
added with ``extra={"fields": {...}}``. Metrics are for Prometheus; processes share what they count
through files.
"""

from __future__ import annotations

import json
import logging.config
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from tfod_validator.settings import METRICS_FOLDER

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": f"{__name__}.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
    "loggers": {"gunicorn.error": {"level": "ERROR", "propagate": True, "handlers": []}},
}
"""The configuration of the standard library's ``logging``."""
_METHODS = frozenset(("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"))
_log = logging.getLogger("tfod")

REQUESTS = Counter(
    "tfod_http_requests_total", "Requests that were answered.", ["method", "endpoint", "status"]
)
REQUEST_SECONDS = Histogram(
    "tfod_http_request_seconds", "Time from a whole request to its answer.", ["endpoint"]
)
CHECKS = Counter("tfod_checks_total", "Checks that have ended.", ["outcome"])
CHECK_SECONDS = Histogram(
    "tfod_check_seconds",
    "Time that checks took.",
    buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000),
)
CHECKED_RECORDS = Counter("tfod_checked_records_total", "Records that were checked.")
UPLOADED_BYTES = Counter("tfod_uploaded_bytes_total", "Bytes that were uploaded.")


class JsonFormatter(logging.Formatter):
    """A record as a JSON object; whatever is in it, it is one line of ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        line = getattr(record, "fields", {}) | line
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging() -> None:
    """Let this process log as the service does; also errors that are not caught, and warnings."""
    logging.config.dictConfig(LOGGING)
    logging.captureWarnings(True)
    sys.excepthook = lambda *error: _log.critical("the process ends by an error", exc_info=error)
    threading.excepthook = lambda given: _log.critical(
        "a thread ends by an error", exc_info=given.exc_value
    )


def method_label(method: str) -> str:
    """A method as a label. Clients may invent others without end, and each label is kept."""
    return method if method in _METHODS else "other"


@dataclass(frozen=True, eq=False)  # a registry keeps collectors in a dictionary
class _States(Collector):
    """How many validations are in each state."""

    counts: Mapping[str, int]

    def collect(self) -> Iterator[Metric]:
        about = "Validations that are kept."
        family = GaugeMetricFamily("tfod_validations", about, labels=["state"])
        for state, count in self.counts.items():
            family.add_metric([state], count)
        yield family


def exposition(states: Mapping[str, int]) -> bytes:
    """All metrics of all processes, in Prometheus's text format.

    Args:
        states: how many validations are in each state, by what the database says.
    """
    registry = CollectorRegistry()
    registry.register(_States(states))
    if os.environ.get(METRICS_FOLDER):
        # prometheus-client has no types here.
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
    return generate_latest(registry) + generate_latest(REGISTRY)


def reserve_space() -> None:
    """Have this process's files wholly on the disk.

    They are mapped into memory: where the disk is full when a part of one is written for the first
    time, the system kills the process.
    """
    UPLOADED_BYTES.inc(0)  # after a fork the files of this process are not made before that
    folder = os.environ.get(METRICS_FOLDER)
    if folder and hasattr(os, "posix_fallocate"):
        for path in Path(folder).glob(f"*_{os.getpid()}.db"):
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
