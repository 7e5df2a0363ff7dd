"""Whether the service lives, whether it is ready, its metrics, and its description."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import flask_openapi3 as openapi
from flask import Response, current_app

from tfod_validator import data_folder, metrics, security
from tfod_validator.api import describe_api

_log = logging.getLogger("tfod.service")
_OPERATION = [openapi.Tag(name="operation")]
_TOKEN: list[dict[str, list[str]]] = [{"token": []}]


def _answer(description: str, name: str = "application/json") -> dict[str, object]:
    schema = {"type": "object" if name == "application/json" else "string"}
    return {"description": description, "content": {name: {"schema": schema}}}


health = openapi.APIBlueprint(
    "health", __name__, operation_id_callback=lambda name, path, method: name
)


@health.get("/healthz", tags=_OPERATION, responses={200: _answer("It does.")})
def live() -> Response:
    """Whether the process answers."""
    return _json({"status": "ok"}, 200)


@health.get(
    "/readyz",
    tags=_OPERATION,
    responses={200: _answer("All are."), 503: _answer("One is not.")},
)
def ready() -> Response:
    """Whether database, disk, data folder and workers are there.

    The data folder is there if it is the one of the service that uses the database, and not
    another, or a place where nothing is mounted.
    """
    settings = security.current_settings()
    store = security.current_store()
    mark = current_app.extensions["tfod.mark"]
    least = settings.limits.min_free_bytes
    checks = {
        "database": _holds(store.ping),
        "disk": _holds(lambda: data_folder.free_bytes(settings) > least),
        "folder": _holds(lambda: data_folder.sees_mark(settings, mark)),
        "workers": _holds(lambda: store.count_workers() > 0),
    }
    if not checks["folder"]:
        _log.warning(data_folder.wrong_folder(settings, mark))
    is_ready = all(checks.values())
    shown = {name: "ok" if holds else "failing" for name, holds in checks.items()}
    status = {"status": "ok" if is_ready else "failing", "checks": shown}
    return _json(status, 200 if is_ready else 503)


@health.get(
    "/metrics",
    tags=_OPERATION,
    security=_TOKEN,
    responses={200: _answer("Metrics.", "text/plain")},
)
def metrics_page() -> Response:
    """Metrics for Prometheus, of all processes."""
    store = security.current_store()
    return Response(metrics.exposition(store), content_type=metrics.CONTENT_TYPE)


@health.get(
    "/openapi.json",
    tags=_OPERATION,
    security=_TOKEN,
    responses={200: _answer("OpenAPI 3.1.")},
)
def description() -> Response:
    """This description."""
    return _json(describe_api(), 200)


def _holds(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except Exception:
        _log.warning("not ready", exc_info=True)
        return False


def _json(document: object, status: int) -> Response:
    return Response(json.dumps(document, indent=2) + "\n", status, mimetype="application/json")
