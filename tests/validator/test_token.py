"""Any server requires the token, and no service starts without its guard."""

from __future__ import annotations

import base64
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import requests
import waitress
from flask import Flask
from tfod_validator.access import get_network, is_allowed
from tfod_validator.app import create_app
from tfod_validator.settings import Settings
from tfod_validator.workers import LocalQueue

from tests.commands import run_python
from tests.validator.conftest import UPLOADS
from tests.validator.sockets import TOKEN

PUBLIC = {"static", "api.live", "api.ready", "pages.report_style", "pages.browser"}
OPEN_PATHS = ("/healthz", "/readyz", "/report.css", "/static/openapi.json")
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode("latin-1")).decode()


@pytest.mark.parametrize(
    "value",
    [
        *("", "Bearer", "Bearer nonsense", "Bearer Sesame", "Bearer sesame-1234", "Sesame-1234"),
        *("Bearer \xff", "Basic Sesame-1234", "Basic !", "Digest Sesame-1234"),
        *(basic("Sesame-1234:"), basic("a:Sesame-1234:"), basic("\xff:Sesame-1234")),
    ],
)
def test_values_without_the_token(value: str) -> None:
    for path in ("/", "/api/v1/rules", "/metrics", "/nothing", "//healthz", "/reports/x"):
        assert not is_allowed(path, value, TOKEN)
    assert is_allowed("/healthz", value, TOKEN) and is_allowed("/", value, "")


def test_values_with_the_token() -> None:
    for value in ("Bearer Sesame-1234", "bearer  Sesame-1234 ", basic("a:Sesame-1234")):
        assert is_allowed("/", value, TOKEN)


def test_a_network_of_ipv6_is_one_client() -> None:
    for address, network in (
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:2", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("unknown", "unknown"),
    ):
        assert get_network(address) == network


@pytest.fixture
def app(tmp_path: Path) -> Flask:
    """An app with a token, whose queue has not been started."""
    settings = Settings(data=tmp_path, token=TOKEN)
    queue = LocalQueue(settings)
    queue.folder.create()
    return create_app(settings, queue)


def test_every_route_needs_the_token(app: Flask) -> None:
    client = app.test_client()
    for rule in app.url_map.iter_rules():
        path = re.sub(r"<(?:\w+:)?\w+>", "x", rule.rule)
        for method in sorted(rule.methods or ()):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Tfod-Refused": "nothing"}):
                status = client.open(path, method=method, headers=headers).status_code
                assert (status == 401) is (rule.endpoint not in PUBLIC), (method, path, headers)
            assert client.open(path, method=method, headers=BEARER).status_code != 401, path


def test_other_paths_need_it_too(app: Flask) -> None:
    client = app.test_client()
    for path in ("/nothing", "/healthz/", "/healthz.html", "/readyz/x", "/api"):
        assert client.get(path).status_code == client.post(path).status_code == 401
        assert client.get(path, headers=BEARER).status_code == 404


def test_the_answer_names_the_scheme(app: Flask) -> None:
    for path, scheme in (("/api/v1/rules", "Bearer"), ("/", "Basic")):
        answer = app.test_client().get(path)
        assert answer.headers["WWW-Authenticate"] == f'{scheme} realm="tfod"'
        assert "Authorization: Bearer TOKEN" in answer.get_json(force=True)["detail"]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def test_a_server_without_the_guard(app: Flask) -> None:
    """The app itself refuses, and an upload leaves no file."""
    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"

        def status(path: str, headers: Any = None, files: Any = None) -> int:
            method = "POST" if files else "GET"
            answer = requests.request(method, url + path, headers=headers, files=files, timeout=60)
            return answer.status_code

        try:
            for headers in ({}, {"Tfod-Refused": "nothing"}):
                for path in ("/", "/rules", "/api/v1/rules", "/metrics", "/openapi.json"):
                    assert status(path, headers) == 401
                for path in ("/validations", UPLOADS):
                    assert status(path, headers, {"file": ("a.tfrecord", b"x")}) == 401
            assert all(status(path) in (200, 503) for path in OPEN_PATHS)
            assert status("/", BEARER) == 200
        finally:
            server.shutdown()
    assert not [*app.extensions["tfod"].settings.data.glob("*/*")]


@pytest.mark.parametrize("name", ["channel_class", "parser_class"])
def test_a_waitress_that_bypasses_the_guard_does_not_start(tmp_path: Path, name: str) -> None:
    """In this copy of waitress, an attribute has another name."""
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
