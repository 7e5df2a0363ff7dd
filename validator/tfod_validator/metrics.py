"""Metrics for Prometheus. Processes share what they count through files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from tfod_validator.jobs import Store

CONTENT_TYPE = CONTENT_TYPE_LATEST
_METHODS = frozenset(("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"))
_SHARED = "PROMETHEUS_MULTIPROC_DIR"

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


class _States(Collector):
    """How many validations there are, by what the database says."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "tfod_validations", "Validations that are kept.", labels=["state"]
        )
        for state, count in self._store.counts().items():
            family.add_metric([state], count)
        yield family


def method_label(method: str) -> str:
    """A method as a label. Clients may invent others without end, and each label is kept."""
    return method if method in _METHODS else "other"


def exposition(store: Store) -> bytes:
    """All metrics of all processes, in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(_States(store))
    if os.environ.get(_SHARED):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
    return generate_latest(registry) + generate_latest(REGISTRY)


def _reserve_space() -> None:
    """Have this process's files wholly on the disk.

    They are mapped into memory: where the disk is full when a part of one is written for the first
    time, the system kills the process.
    """
    folder = os.environ.get(_SHARED)
    if folder and hasattr(os, "posix_fallocate"):
        for path in Path(folder).glob(f"*_{os.getpid()}.db"):
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


_reserve_space()
