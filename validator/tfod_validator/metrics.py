"""What Prometheus is told, at ``/metrics``; workers of RQ are not in it."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

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
