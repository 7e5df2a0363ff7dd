"""A validation as JSON."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from flask import url_for

from tfod_validator.current import current_store
from tfod_validator.validation import REPORTS, Validation


def job(validation: Validation, *, with_report: bool = True) -> dict[str, Any]:
    """A validation with its state, its progress and, when it is finished, its report."""
    key = validation.id
    is_finished = validation.state == "finished"
    return {
        "id": key,
        "state": validation.state,
        "created": _moment(validation.created),
        "started": _moment(validation.started),
        "ended": _moment(validation.ended),
        "expires": _moment(validation.expires),
        "files": [
            {"name": one.name, "bytes": one.bytes, "role": one.role}
            for one in validation.request.files
        ],
        "options": {
            "for": validation.request.receiver,
            "profile": validation.request.profile,
            "decode": validation.request.decode,
            "fail_on": validation.request.fail_on,
        },
        "progress": progress(validation),
        "valid": validation.valid,
        "report": _report(key) if is_finished and with_report else None,
        "failure": validation.failure,
        "images": [
            {"href": url_for("api.image", key=key, number=number), **about}
            for number, about in enumerate(validation.images)
        ],
        "links": _links(key),
    }


def progress(validation: Validation) -> dict[str, Any]:
    """How far a check is; how many records there are is known at its end."""
    records = validation.records_done
    return {
        "bytes": {"done": validation.bytes_done, "total": validation.bytes_total},
        "records": {"done": records, "total": records if validation.is_over else None},
    }


def _report(key: str) -> Any:
    store = current_store()
    content = store.document(key, REPORTS["json"])
    return None if content is None else json.loads(content)


def _links(key: str) -> dict[str, str]:
    links = {
        "self": url_for("api.validation", key=key),
        "page": url_for("pages.report", key=key),
        "events": url_for("api.events", key=key),
    }
    for name in REPORTS:
        links[name] = url_for("api.report", key=key, format=name)
    return links


def _moment(seconds: float | None) -> str | None:
    """A time as RFC 3339 has it."""
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
