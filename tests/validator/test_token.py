"""The token is needed whatever server is in front of the app, and no service starts unguarded."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import requests
import waitress
from flask import Flask
from tfod_validator.app import create_app
from tfod_validator.settings import Settings
from tfod_validator.workers import LocalQueue

from tests.commands import run_python

TOKEN = "Sesame-1234"
PUBLIC = {"static", "api.live", "api.ready", "pages.report_style"}
OPEN_PATHS = ("/healthz", "/readyz", "/report.css", "/static/openapi.json")


@pytest.fixture
def app(tmp_path: Path) -> Flask:
    """An app with a token, whose queue has not been started."""
    settings = Settings(data=tmp_path, token=TOKEN)
    queue = LocalQueue(settings)
    queue.folder.create()
    return create_app(settings, queue)


def requests_of(app: Flask) -> Iterator[tuple[str, str, str]]:
    """Each endpoint with a path and each of its methods."""
    for rule in app.url_map.iter_rules():
        path = re.sub(r"<(?:\w+:)?\w+>", "x", rule.rule)
        for method in sorted(rule.methods or ()):
            yield rule.endpoint, method, path


def test_every_route_needs_the_token(app: Flask) -> None:
    client = app.test_client()
    for endpoint, method, path in requests_of(app):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Tfod-Refused": "nothing"}):
            status = client.open(path, method=method, headers=headers).status_code
            assert (status == 401) is (endpoint not in PUBLIC), (method, path, headers, status)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert client.open(path, method=method, headers=headers).status_code != 401, path


@pytest.mark.parametrize("path", ["/nothing", "/healthz/", "/healthz.html", "/readyz/x", "/api"])
def test_other_paths_need_it_too(app: Flask, path: str) -> None:
    client = app.test_client()
    assert client.get(path).status_code == client.post(path).status_code == 401
    assert client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404


def test_the_answer_says_how_to_send_it(app: Flask) -> None:
    for path, scheme in (("/api/v1/rules", "Bearer"), ("/", "Basic")):
        answer = app.test_client().get(path)
        assert answer.headers["WWW-Authenticate"] == f'{scheme} realm="tfod"'
        assert "Authorization: Bearer TOKEN" in answer.get_json(force=True)["detail"]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def test_another_server_in_front_of_the_app(app: Flask) -> None:
    """It has no guard: the app refuses by itself, and an upload leaves nothing."""
    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            for headers in ({}, {"Tfod-Refused": "nothing"}):
                for path in ("/", "/rules", "/api/v1/rules", "/metrics", "/openapi.json"):
                    assert requests.get(url + path, headers=headers, timeout=60).status_code == 401
                for path in ("/validations", "/api/v1/validations"):
                    form = {"file": ("a.tfrecord", b"x")}
                    answer = requests.post(url + path, files=form, headers=headers, timeout=60)
                    assert answer.status_code == 401
            for path in OPEN_PATHS:
                assert requests.get(url + path, timeout=60).status_code in (200, 503), path
            headers = {"Authorization": f"Bearer {TOKEN}"}
            assert requests.get(url, headers=headers, timeout=60).status_code == 200
        finally:
            server.shutdown()
    data = app.extensions["tfod"].settings.data
    assert not [*data.glob("*/*")]


@pytest.mark.parametrize("name", ["channel_class", "parser_class"])
def test_a_waitress_that_bypasses_the_guard_does_not_start(tmp_path: Path, name: str) -> None:
    """A copy of waitress in which an attribute has another name."""
    package = tmp_path / "patched" / "waitress"
    shutil.copytree(Path(waitress.__file__).parent, package)
    sources = {module: module.read_text() for module in package.glob("*.py")}
    assert any(name in source for source in sources.values())
    for module, source in sources.items():
        module.write_text(re.sub(rf"\b{name}\b", f"{name}_of_4", source))
    served = run_python(
        *("-m", "tfod.cli.main", "serve", "--port", "0", "--data", tmp_path / "data"),
        PYTHONPATH=os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")]),
    )
    assert served.code == 2 and "serving on" not in served.err
    assert "waitress bypasses the guard" in served.err and "pip install" in served.err
