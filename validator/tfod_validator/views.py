"""The pages: drop files, see how far the check is, read and share the report, repair a copy.

They work without scripts; scripts add bars that move. Texts from uploads are escaped by the
templates, and their control characters are spelled out.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from datetime import datetime, timezone
from mmap import ACCESS_READ, mmap

from flask import Blueprint, Response, redirect, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from markupsafe import Markup
from tfod.checker.finding import FAMILIES, plural, size
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import RECEIVERS
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.html import AFTER_HEAD, find_body, report_css
from tfod.checker.reporters.wording import describe_overrides, group_by_family
from tfod.checker.rules.registry import all_rules
from tfod.version import __version__
from werkzeug.wrappers import Response as AnyResponse

from tfod_validator.answers import around
from tfod_validator.api import parameters
from tfod_validator.folder import Validation
from tfod_validator.settings import PREFIX, Settings
from tfod_validator.uploads import accept as accept_upload
from tfod_validator.uploads import find, queue
from tfod_validator.uploads import repair as repair_upload

pages = Blueprint("pages", __name__)
_STANDINGS = {"failed": "failed", "queued": "waiting", "running": "checking"}
_FIRST_CHOICES = ("cvat", "od-api", "any")
"""What is asked for on the page at once; the other receivers are among the options."""


@pages.record_once
def _prepare(state: BlueprintSetupState) -> None:
    """Let templates show texts safely, and know what all pages have in common."""
    environment = state.app.jinja_env
    environment.finalize = lambda value: visible(value) if type(value) is str else value
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters.update(
        size=size,
        plural=plural,
        moment=_moment,
        standing=_standing,
        span=_span,
        sentence=lambda text: text[:1].upper() + text[1:],
    )
    environment.globals.update(version=__version__)


@pages.get("/")
def index() -> str:
    """Where files are dropped."""
    return render_template(
        "index.html",
        settings=queue().settings,
        others=[one for name, one in RECEIVERS.items() if name not in _FIRST_CHOICES],
        profiles=READY.values(),
    )


@pages.post("/validations")
def accept() -> AnyResponse:
    """Take files in from the plain form; the page's script asks the API."""
    parameters()
    return _to_report(*accept_upload({}))


@pages.get("/reports/<key>")
def report(key: str) -> AnyResponse | str:
    """A validation: how far it is, why it failed, or its report."""
    found = find(key)
    values = {
        "one": found,
        "rules": all_rules(),
        "token": request.args.get("token", ""),
        "upload_ends": queue().folder.upload_ends(key),
        "expires": found.request.created + queue().settings.report_seconds,
        "api": url_for("api.validation", key=key),
        "address": url_for("pages.report", key=key, _external=True),
    }
    if found.state != "finished":
        return render_template("report.html", **values)
    # The report was rendered by the check, with every text in it escaped.
    path = found.document("html")
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as page:
        start, middle, stop = find_body(page)
        head = page[start:middle].decode()
    text = render_template("report.html", head=Markup(head), sections=Markup(AFTER_HEAD), **values)
    before, _, after = text.partition(AFTER_HEAD)
    return around(before, path, middle, stop, after, "text/html")


@pages.post("/reports/<key>/delete")
def delete(key: str) -> AnyResponse:
    """Remove an upload and its report."""
    queue().folder.delete(find(key, request.form.get("token", "")).id)
    return redirect(url_for("pages.index"), 303)


@pages.post("/reports/<key>/repair")
def repair(key: str) -> AnyResponse:
    """Repair a copy of an upload, and check it."""
    return _to_report(*repair_upload(key, request.form.get("token", "")))


def _to_report(found: Validation, token: str) -> AnyResponse:
    """Lead to a new validation: the address has the token, which a script takes out of it."""
    return redirect(url_for("pages.report", key=found.id, token=token), 303)


@pages.get("/rules")
def rules() -> str:
    """What is checked."""
    families = [
        (name, FAMILIES[name], [(one, list(describe_overrides(one))) for one in rules])
        for name, rules in group_by_family(all_rules().values()).items()
    ]
    return render_template("rules.html", families=families, count=len(all_rules()))


@pages.get("/docs")
def docs() -> str:
    """How the HTTP API is used, and the limits of this service."""
    settings = queue().settings
    base = url_for("pages.index", _external=True).rstrip("/")
    rows = [
        (f"{PREFIX}_{one.name.upper()}", value, _said(one.name, value), one.metadata["help"])
        for one in fields(Settings)
        if one.name.startswith(("max_", "min_", "report_", "upload_"))
        for value in (getattr(settings, one.name),)
    ]
    return render_template("docs.html", base=base, limits=rows)


def _said(name: str, value: int) -> str:
    """A limit as people say it."""
    if name.endswith("_bytes"):
        return size(value)
    return _span(value) if name.endswith("_seconds") else ""


@pages.get("/report.css")
def report_style() -> AnyResponse:
    """The style sheet that reports and pages share."""
    style = report_css()
    answer = Response(style, mimetype="text/css")
    answer.headers["Cache-Control"] = "no-cache"
    answer.set_etag(hashlib.sha256(style.encode()).hexdigest()[:32])
    return answer.make_conditional(request)


def _standing(one: Validation) -> str:
    """A validation's state in a word."""
    if one.result is not None and one.result.valid is not None:
        return "valid" if one.result.valid else "invalid"
    return _STANDINGS[one.state]


def _moment(seconds: float) -> str:
    """A time in UTC."""
    when = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def _span(seconds: int) -> str:
    """A time that something is kept."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds % unit == 0:
            return plural(seconds // unit, name)
    raise AssertionError
