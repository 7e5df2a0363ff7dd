"""Take docs/service.png, the picture of a report in the README; ``make screenshot`` runs it.

Needs Chromium: ``apt-get install chromium`` on Debian.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parents[1]
SIZE = "1280,960"
BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def main() -> None:
    """Serve, upload an example with defects, and take a picture of its report."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("make screenshot needs Chromium; on Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tfod", "serve", "--port", "0", "--data", folder]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                address = next(
                    word.rstrip("/")
                    for line in server.stderr or ()
                    for word in line.split()
                    if word.startswith("http://")
                )
                page = upload(address)
                subprocess.run(
                    [browser, *FLAGS, f"--user-data-dir={folder}/browser", f"--window-size={SIZE}",
                     f"--screenshot={ROOT / 'docs' / 'service.png'}", page],
                    check=True,
                    stderr=subprocess.DEVNULL,  # Chromium's messages about D-Bus
                )  # fmt: skip
            finally:
                server.send_signal(signal.SIGTERM)


def upload(address: str) -> str:
    """Upload the example and return the address of its report."""
    with (ROOT / "examples" / "shapes_broken.zip").open("rb") as file:
        answer = requests.post(
            f"{address}/api/v1/validations?wait=60", files={"file": file}, timeout=90
        )
    answer.raise_for_status()
    return f"{address}/reports/{answer.json()['id']}"


if __name__ == "__main__":
    main()
