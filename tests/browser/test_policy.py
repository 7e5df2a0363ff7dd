"""The policy of the page holds on any static host: neither page nor worker can send anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser.conftest import static_host
from tests.commands import TIMEOUT

ASK = "url => fetch(url).then(response => response.status, error => String(error))"


def test_requests_to_other_hosts_are_refused(
    browser_folder: Path, tmp_path: Path, chromium: Any
) -> None:
    (tmp_path / "of").mkdir()
    (tmp_path / "of" / "a-project").symlink_to(browser_folder)
    path = "of/a-project/packages.json"
    with static_host(tmp_path) as host, static_host(tmp_path) as other:
        page = chromium.new_page()
        page.goto(f"{host}of/a-project/#record=1")
        page.get_by_text("Ready.").wait_for(timeout=TIMEOUT * 1000)
        (worker,) = page.workers
        for place in (page, worker):
            assert place.evaluate(ASK, host + path) == 200
            assert "Failed to fetch" in place.evaluate(ASK, other + path)
        page.close()
