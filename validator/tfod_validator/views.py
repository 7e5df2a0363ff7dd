"""The pages: upload files, watch the progress, read and share the report, repair a copy.

They work without scripts. The templates escape texts from uploads and make their control characters
visible.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from datetime import datetime, timezone
from mmap import ACCESS_READ, mmap
from pathlib import PurePath

from flask import (
    Blueprint,
    Response,
    redirect,
    render_template,
    request,
    send_from_directory,
    url_for,
)
from flask.blueprints import BlueprintSetupState
from markupsafe import Markup
from tfod.checker.finding import FAMILIES, plural, size
from tfod.checker.reporters.html import AFTER_HEAD, find_body, report_css
from tfod.checker.reporters.wording import describe_overrides, group_by_family
from tfod.checker.rules.registry import all_rules
from werkzeug.wrappers import Response as AnyResponse

from tfod_validator.answers import ProblemError, stream_part
from tfod_validator.api import read_parameters
from tfod_validator.folder import Validation
from tfod_validator.offers import LABELS
from tfod_validator.settings import PREFIX, Settings
from tfod_validator.templating import BROWSER_POLICY, list_choices, prepare
from tfod_validator.uploads import accept as accept_upload
from tfod_validator.uploads import change, find, queue

pages = Blueprint("pages", __name__)
_CONTENT_TYPES = {".js": "text/javascript", ".wasm": "application/wasm"}
"""Types that the page needs and that some machines do not know."""
_STATE_WORDS = {"failed": "failed", "queued": "waiting", "running": "checking"}


@pages.record_once
def _prepare(state: BlueprintSetupState) -> None:
    """Set up the template environment."""
    environment = state.app.jinja_env
    prepare(environment)
    environment.filters.update(moment=_format_time, status=_status_word, span=_format_duration)


@pages.get("/")
def index() -> str:
    """Render the upload page."""
    return render_template("index.html", settings=queue().settings, **list_choices())


@pages.post("/validations")
def accept() -> AnyResponse:
    """Accept files from the plain form; the script of the page uses the API instead."""
    read_parameters()
    return _to_report(*accept_upload({}))


@pages.get("/reports/<key>")
def report(key: str) -> AnyResponse | str:
    """Render a validation: its progress, its failure, or its report."""
    validation = find(key)
    values = {
        "validation": validation,
        "rules": all_rules(),
        "labels": LABELS,
        "token": request.args.get("token", ""),
        "upload_ends": queue().folder.upload_ends(key),
        "expires": validation.request.created + queue().settings.report_seconds,
        "api": url_for("api.validation", key=key),
        "address": url_for("pages.report", key=key, _external=True),
    }
    if validation.state != "finished":
        return render_template("report.html", **values)
    # The check has rendered the report and escaped every text in it.
    path = validation.document("html")
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as page:
        start, middle, stop = find_body(page)
        head = page[start:middle].decode()
    text = render_template("report.html", head=Markup(head), sections=Markup(AFTER_HEAD), **values)
    before, _, after = text.partition(AFTER_HEAD)
    return stream_part(before, path, middle, stop, after, "text/html")


@pages.post("/reports/<key>/delete")
def delete(key: str) -> AnyResponse:
    """Delete an upload and its report."""
    queue().folder.delete(find(key, request.form.get("token", "")).id)
    return redirect(url_for("pages.index"), 303)


@pages.post("/reports/<key>/repair", defaults={"converts": False})
@pages.post("/reports/<key>/convert", defaults={"converts": True})
def change_copy(key: str, *, converts: bool) -> AnyResponse:
    """Repair a copy of an upload or convert it to shards, and check it."""
    token, odd_boxes = request.form.get("token", ""), request.form.get("odd_boxes") or None
    return _to_report(*change(key, token, odd_boxes, converts=converts))


def _to_report(validation: Validation, token: str) -> AnyResponse:
    """Redirect to a new validation; a script removes the token from the URL."""
    return redirect(url_for("pages.report", key=validation.id, token=token), 303)


@pages.get("/rules")
def rules() -> str:
    """Render the list of rules."""
    families = [
        (name, FAMILIES[name], [(rule, list(describe_overrides(rule))) for rule in rules])
        for name, rules in group_by_family(all_rules().values()).items()
    ]
    return render_template("rules.html", families=families, count=len(all_rules()))


@pages.get("/docs")
def docs() -> str:
    """Render the documentation of the HTTP API, with the limits of this service."""
    base = url_for("pages.index", _external=True).rstrip("/")
    limits = []
    for setting in fields(Settings):
        name, value = setting.name, getattr(queue().settings, setting.name)
        if name.startswith(("max_", "min_", "report_", "upload_")):
            variable = f"{PREFIX}_{name.upper()}"
            limits.append((variable, value, _format_limit(name, value), setting.metadata["help"]))
    return render_template("docs.html", base=base, limits=limits)


def _format_limit(name: str, value: int) -> str:
    if name.endswith("_bytes"):
        return size(value)
    return _format_duration(value) if name.endswith("_seconds") else ""


@pages.get("/browser/", defaults={"name": "index.html"})
@pages.get("/browser/<path:name>")
def browser(name: str) -> AnyResponse:
    """Return a file of the page that checks in the browser, if ``TFOD_BROWSER`` names it."""
    folder = queue().settings.browser
    if not folder:
        raise ProblemError(404, "This service does not have the page that checks in the browser.")
    content_type = _CONTENT_TYPES.get(PurePath(name).suffix)
    response = send_from_directory(folder, name, mimetype=content_type)
    # The worker of the page has the policy of its own response.
    response.headers["Content-Security-Policy"] = f"{BROWSER_POLICY}; frame-ancestors 'none'"
    return response


@pages.get("/report.css")
def report_style() -> AnyResponse:
    """Return the style sheet of reports and pages."""
    style = report_css()
    response = Response(style, mimetype="text/css")
    response.headers["Cache-Control"] = "no-cache"
    response.set_etag(hashlib.sha256(style.encode()).hexdigest()[:32])
    return response.make_conditional(request)


def _status_word(validation: Validation) -> str:
    if validation.result is not None and validation.result.valid is not None:
        return "valid" if validation.result.valid else "invalid"
    return _STATE_WORDS[validation.state]


def _format_time(seconds: float) -> str:
    time = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"


def _format_duration(seconds: int) -> str:
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds % unit == 0:
            return plural(seconds // unit, name)
    raise AssertionError
