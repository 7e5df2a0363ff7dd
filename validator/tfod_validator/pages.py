"""The pages: drop files, see how far the check is, read and share the report.

They work without scripts; scripts add bars that move. Texts from uploads are escaped by the
templates, and their control characters are spelled out.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

from flask import (
    Blueprint,
    Response,
    make_response,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from flask.blueprints import BlueprintSetupState
from markupsafe import Markup, escape
from pydantic import ValidationError
from tfod.check.findings.finding import FAMILIES, plural, size
from tfod.check.profiles.profile import READY
from tfod.check.receivers import RECEIVERS
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.html import AFTER_HEAD, report_css
from tfod.check.reporters.rules_pages import by_family, changes
from tfod.check.rules.registry import all_rules
from tfod.version import __version__
from werkzeug.wrappers import Response as AnyResponse

from tfod_validator import security, uploads
from tfod_validator.errors import ProblemError, invalid_parameter
from tfod_validator.jobs.database import Validation
from tfod_validator.jobs.request import BODY
from tfod_validator.schemas import UploadParameters, describe_api
from tfod_validator.service import service
from tfod_validator.settings import ENVIRONMENT_PREFIX

pages = Blueprint("pages", __name__)
_MOST_RECENT = 10


@pages.record_once
def _prepare(state: BlueprintSetupState) -> None:
    """Let templates show texts safely, and know what all pages have in common."""
    environment = state.app.jinja_env
    environment.finalize = lambda value: visible(value) if type(value) is str else value
    environment.trim_blocks = environment.lstrip_blocks = True
    own = (_called, _standing, _moment, _spans, _type, _example, _anchor)
    environment.filters.update({one.__name__.strip("_"): one for one in own})
    environment.filters.update(size=size, plural=plural)
    environment.globals.update(version=__version__, signed_in_token=security.signed_in_token)


@pages.get("/")
def index() -> str:
    """Where files are dropped."""
    found = [service().database.find(key) for key in session.get("recent", ())]
    return render_template(
        "index.html",
        limits=service().settings.limits,
        receivers=RECEIVERS.values(),
        profiles=READY.values(),
        recent=[one for one in found if one is not None],
    )


@pages.post("/validations")
def accept() -> AnyResponse:
    """Take files in, from the page's script or from the plain form."""
    try:
        parameters = UploadParameters(**request.args)
    except ValidationError as error:
        raise invalid_parameter(error) from None
    validation = uploads.accept(request, parameters, owner=security.current_browser(make=True))
    recent = [key for key in session.get("recent", ()) if key != validation.id]
    session["recent"] = [validation.id, *recent][:_MOST_RECENT]
    session.permanent = True
    page = url_for("pages.report", key=validation.id)
    if request.accept_mimetypes.best_match(("text/html", "application/json")) == "text/html":
        return redirect(page, 303)
    return make_response({"page": page, "id": validation.id}, 202, {"Location": page})


@pages.get("/reports/<key>")
def report(key: str) -> str:
    """A validation: how far it is, why it failed, or its report."""
    one = service().find(key)
    head, sections = "", ""
    if one.state == "finished":
        # It was rendered by the check, with every text in it escaped.
        body = (service().database.document(key, BODY) or b"").decode("utf-8")
        head, _, sections = body.partition(AFTER_HEAD)
    return render_template(
        "report.html",
        one=one,
        head=Markup(head),
        sections=Markup(sections),
        is_owner=security.is_owner(one),
        api=url_for("api.validation", key=key),
        address=url_for("pages.report", key=key, _external=True),
    )


@pages.post("/reports/<key>/delete")
def delete(key: str) -> AnyResponse:
    """Remove an upload and its report."""
    one = service().find(key)
    security.delete(one)
    session["recent"] = [other for other in session.get("recent", ()) if other != one.id]
    return redirect(url_for("pages.index"), 303)


@pages.get("/rules")
def rules() -> str:
    """What is checked."""
    families = [
        (name, FAMILIES[name], [(one, list(changes(one))) for one in rules])
        for name, rules in by_family(all_rules().values()).items()
    ]
    return render_template("rules.html", families=families, count=len(all_rules()))


@pages.get("/docs")
def docs() -> str:
    """How the HTTP API is used: its description, laid out."""
    spec = describe_api()
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, item in spec["paths"].items():
        for method, operation in item.items():
            groups.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    base = url_for("pages.index", _external=True).rstrip("/")
    limits = service().settings.limits
    rows = [
        (ENVIRONMENT_PREFIX + one.name.upper(), getattr(limits, one.name), one.metadata["help"])
        for one in fields(limits)
    ]
    return render_template("docs.html", info=spec["info"], groups=groups, base=base, limits=rows)


@pages.route("/sign-in", methods=["GET", "POST"])
def sign_in() -> Any:
    """Ask for a token, where tokens are needed."""
    if not service().settings.tokens:
        raise ProblemError(404, "This service needs no token; there is nothing to sign in to.")
    target = _local(request.args.get("next", ""))
    if request.method == "GET":
        return render_template("sign_in.html", wrong=False, next=target)
    if not security.sign_in(request.form.get("token", "").strip()):
        return render_template("sign_in.html", wrong=True, next=target), 403
    return redirect(target, 303)


@pages.post("/sign-out")
def sign_out() -> AnyResponse:
    """Forget the token, and which reports this browser has seen."""
    session.clear()
    return redirect(url_for("pages.index"), 303)


@pages.get("/report.css")
def report_style() -> AnyResponse:
    """The style sheet that reports and pages share."""
    style = report_css()
    answer = Response(style, mimetype="text/css")
    answer.headers["Cache-Control"] = "no-cache"
    answer.set_etag(hashlib.sha256(style.encode()).hexdigest()[:32])
    return answer.make_conditional(request)


def _local(target: str) -> str:
    """Where to go next, on this service and nowhere else."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_path and target.isprintable() else url_for("pages.index")


def _called(one: Validation) -> str:
    """What people call a validation: its first file, and how many more there are."""
    names = [file.name for file in one.request.sources]
    more = f" and {plural(len(names) - 1, 'more file')}" if len(names) > 1 else ""
    return (names[0] if names else "upload") + more


def _standing(one: Validation) -> str:
    """A validation's state in a word."""
    if one.state == "finished":
        return "valid" if one.valid else "invalid"
    return {"failed": "failed", "queued": "waiting", "running": "checking"}[one.state]


def _moment(seconds: float, separator: str = " ") -> str:
    """A time in UTC; with ``T`` as machines read it."""
    when = datetime.fromtimestamp(seconds, timezone.utc)
    if separator == "T":
        return when.isoformat(timespec="seconds")
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def _spans(text: str) -> Markup:
    """A text with what is between backticks as code."""
    return Markup(re.sub("`(.*?)`", r'<span class="code">\1</span>', str(escape(text))))


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(one) for one in schema["enum"] if one)
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    return "file" if schema.get("format") == "binary" else str(schema.get("type", "anything"))


def _example(operation: dict[str, Any], method: str, address: str) -> str:
    parts = ["curl"]
    if method not in ("GET", "POST"):
        parts.append(f"-X {method}")
    types = {name for one in operation["responses"].values() for name in one.get("content", {})}
    if "text/event-stream" in types:
        parts.append("--no-buffer")
    if "image/svg+xml" in types:
        parts.append("-o image.svg")
    if "requestBody" in operation:
        parts.append("-F file=@anno.zip")
    for name, value in (("code", "BOX003"), ("number", "0"), ("key", "$key")):
        address = address.replace(f"{{{name}}}", value)
    return f'{" ".join(parts)} "{address}"'


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
