"""Pyodide, and the page of ``make browser``, for all tests of a run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.pyodide import ROOT, find_pyodide, locked
from tests.chromium import OpenPage
from tests.commands import Result, require, run_python

Open = Callable[..., Any]
"""The fixture ``open_ready``."""


@pytest.fixture(scope="session")
def pyodide() -> Path:
    """A folder with Pyodide and its packages."""
    return find_pyodide()


def build_page(output: Path, source: object, **environment: str) -> Result:
    """Run the command of ``make browser``."""
    options = ("--pyodide", source, "--output", output)
    return run_python("-m", "validator.browser.build", *options, folder=ROOT, **environment)


class _Handler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")  # only policies forbid requests
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def static_host(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback as a static host does; yield its URL with a slash."""
    handler = partial(_Handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser_folder(pyodide: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page, which only one process of a run builds."""
    base = tmp_path_factory.getbasetemp()
    output = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "browser"
    with locked(output):
        if not output.exists():
            done = build_page(output, pyodide)
            require("rustc for WebAssembly", "libstd-rust-dev-wasm32" not in done.err)
            done.succeeded()
    return output


@pytest.fixture(scope="module")
def host(browser_folder: Path) -> Iterator[str]:
    """The address of the page on a static host."""
    with static_host(browser_folder) as url:
        yield url


@pytest.fixture
def open_ready(host: str, open_page: OpenPage) -> Open:
    """Open the page and wait until it is ready. After that, it has no network."""

    def open_ready(address: str = "", **options: Any) -> Any:
        page = open_page(**options)
        page.goto(host + address)
        page.get_by_text("Ready. Your files stay").wait_for()
        page.context.set_offline(True)
        return page

    return open_ready


def drop(page: Any, *paths: Path) -> None:
    """Drop files and folders of the disk, as from a file manager."""
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": list(map(str, paths)), "dragOperationsMask": 1}
    for event in ("dragEnter", "dragOver", "drop"):
        parameters = {"type": event, "x": 300, "y": 300, "data": data}
        session.send("Input.dispatchDragEvent", parameters)
    page.get_by_text(paths[-1].name).first.wait_for()
