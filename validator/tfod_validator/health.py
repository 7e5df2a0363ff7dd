"""Whether the service lives, whether it is ready, and what it counts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from flask import Blueprint, Response, current_app

from tfod_validator import metrics, uploads
from tfod_validator.current import (
    current_mark,
    current_queue,
    current_settings,
    current_store,
)
from tfod_validator.openapi import describe_api
from tfod_validator.parameters import Operation, operation
from tfod_validator.settings import Settings

health = Blueprint("health", __name__)
_log = logging.getLogger("tfod.service")
_CHECKS = {"application/json": {"type": "object"}}


@health.get("/healthz")
@operation(
    Operation(
        summary="Whether the process answers",
        tag="operation",
        responses={200: ("It does.", _CHECKS)},
        open=True,
    )
)
def live() -> Response:
    """Answer, and ask nobody."""
    return _json({"status": "ok"}, 200)


@health.get("/readyz")
@operation(
    Operation(
        summary="Whether database, queue, disk, data folder and workers are there",
        tag="operation",
        description="The data folder is there if it is the one of the service that uses the "
        "database, and not another, or a place where nothing is mounted.",
        responses={200: ("All are.", _CHECKS), 503: ("One is not.", _CHECKS)},
        open=True,
    )
)
def ready() -> Response:
    """Ask all that an upload needs."""
    settings = current_settings()
    store = current_store()
    queue = current_queue()
    least = settings.limits.min_free_bytes
    checks = {
        "database": _answers(store.ping),
        "queue": _answers(lambda: len(queue)),
        "disk": _answers(lambda: _require(uploads.free_bytes(settings) > least)),
        "folder": _answers(lambda: _require_folder(settings)),
        "workers": _answers(lambda: _require(store.count_workers() > 0)),
    }
    is_ready = all(checks.values())
    shown = {name: "ok" if sound else "failing" for name, sound in checks.items()}
    status = {"status": "ok" if is_ready else "failing", "checks": shown}
    return _json(status, 200 if is_ready else 503)


@health.get("/metrics")
@operation(
    Operation(
        summary="Metrics for Prometheus",
        tag="operation",
        responses={200: ("Metrics.", {"text/plain": {"type": "string"}})},
    )
)
def metrics_page() -> Response:
    """What all processes have counted."""
    store = current_store()
    return Response(metrics.exposition(store), content_type=metrics.CONTENT_TYPE)


@health.get("/openapi.json")
@operation(
    Operation(
        summary="This description",
        tag="operation",
        responses={200: ("OpenAPI 3.1.", {"application/json": {"type": "object"}})},
    )
)
def openapi() -> Response:
    """The description of the API, from its code."""
    return _json(describe_api(current_app), 200)


def _require_folder(settings: Settings) -> None:
    if not uploads.sees_mark(settings, current_mark()):
        raise RuntimeError(uploads.wrong_folder(settings, current_mark()))


def _require(is_so: bool) -> None:
    if not is_so:
        raise RuntimeError("not so")


def _answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except Exception:
        _log.warning("not ready", exc_info=True)
        return False
    return True


def _json(document: object, status: int) -> Response:
    return Response(json.dumps(document, indent=2) + "\n", status, mimetype="application/json")
