"""Pages in Chromium, for all tests: the fixtures ``chromium`` and ``open_page``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.commands import TIMEOUT, require

_CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""Debian's; without windows, it takes two thirds of the time."""
_ARGUMENTS = ["--host-resolver-rules=MAP tfod.test 127.0.0.1", "--no-sandbox", "--disable-gpu"]
OpenPage = Callable[..., Any]
"""The fixture ``open_page``."""


def launch(chromium: Any, *arguments: str) -> Any:
    """Start a browser with additional arguments."""
    return chromium.launch(executable_path=_CHROMIUM, args=[*_ARGUMENTS, *arguments])


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright."""
    require("Chromium", _CHROMIUM is not None)
    for package in ("playwright", "axe_playwright_python"):
        require(package, find_spec(package) is not None)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = launch(driver.chromium)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[OpenPage]:
    """Open pages in fresh contexts; no page may run an attack, fail, or violate its policy."""
    contexts, troubles = [], []

    def note(message: Any) -> None:
        if message.type == "error" and "status of" not in message.text:  # refused requests
            troubles.append(message.text)

    def make(**options: Any) -> Any:
        contexts.append(chromium.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(TIMEOUT * 1000)
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", note)
        return page

    yield make
    for context in contexts:
        context.close()
    assert troubles == [], troubles


def assert_accessible(page: Any, skipped: str = "#none") -> None:
    """Assert that a page has no violations and does not scroll sideways, in light and dark."""
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    for scheme, shades in (("light", range(600, 766)), ("dark", range(150))):
        page.emulate_media(color_scheme=scheme)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            found = Axe().run(page, {"exclude": [[skipped]]}).response["violations"]
            assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found] == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", colour))) in shades
