"""The service serves the folder of ``make browser`` at /browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tfod.errors import TfodError
from tfod_validator.settings import Settings
from tfod_validator.templating import BROWSER_POLICY

from tests.validator.conftest import Service, running_service

OFFER = 'href="/browser/"'


@pytest.fixture(scope="module")
def served(browser_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a token, which the page does not need."""
    data = tmp_path_factory.mktemp("served") / "data"
    environment = {"TFOD_BROWSER": str(browser_folder), "TFOD_TOKEN": "sesame"}
    with running_service(data, **environment) as running:
        yield running


def test_all_files_are_public_and_have_their_types(served: Service, browser_folder: Path) -> None:
    types = {
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".json": "application/json",
        ".svg": "image/svg+xml; charset=utf-8",
        ".wasm": "application/wasm",
    }
    paths = [path for path in browser_folder.rglob("*") if path.is_file()]
    assert {*types} <= {path.suffix for path in paths}
    for path in paths:
        response = served.get(f"/browser/{path.relative_to(browser_folder)}")
        assert response.status_code == 200 and response.content == path.read_bytes()
        if path.suffix in types:
            assert response.headers["Content-Type"] == types[path.suffix]
        # The policy also holds in the worker, which is a response, too.
        policy = response.headers["Content-Security-Policy"]
        assert policy == f"{BROWSER_POLICY}; frame-ancestors 'none'"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["X-Frame-Options"] == "DENY"


def test_unchanged_files_are_not_sent_again(served: Service) -> None:
    first = served.get("/browser/pyodide/pyodide.asm.wasm")
    assert first.headers["Cache-Control"] == "no-cache"
    again = served.get(
        "/browser/pyodide/pyodide.asm.wasm", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


def test_the_folder_is_an_address(served: Service, browser_folder: Path) -> None:
    response = served.get("/browser", allow_redirects=False)
    assert response.status_code == 308
    assert response.headers["Location"].rpartition("/browser")[2] == "/"
    assert served.get("/browser").content == (browser_folder / "index.html").read_bytes()


def test_nothing_else_is_public(served: Service) -> None:
    for path in ("/browser/../metrics", "/browser/%2e%2e/metrics", "/browser/%2Fetc%2Fpasswd"):
        response = served.get(path)
        assert response.status_code in (401, 404) and "tfod_" not in response.text
    assert served.post("/browser/").status_code == 405
    assert served.get("/browsers").status_code == 401


def test_the_front_page_offers_it(served: Service) -> None:
    assert OFFER in served.get("/", auth=("any", "sesame")).text


def test_without_the_folder(tmp_path: Path) -> None:
    with running_service(tmp_path / "data") as running:
        assert OFFER not in running.get("/").text
        assert running.get("/browser/").status_code == 404


def test_a_folder_without_the_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TfodError, match=r"TFOD_BROWSER: \S+ has no index.html.*make browser"):
        Settings.of({"BROWSER": str(tmp_path)})
    (tmp_path / "index.html").touch()
    assert Settings.of({"BROWSER": str(tmp_path)}).browser == str(tmp_path)
