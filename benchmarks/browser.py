"""Measure the page that checks in the browser, and ``tfod check`` on the same shards.

    make browser
    python benchmarks/browser.py [--images 500 6000] [--decode 200] [--repeats 3]

Needs Chromium, and ``pip install -e .[test-all]``. Every value is the median of several new pages.
The times of the page are wall times in the browser: from the start of the page until it is ready,
from the click on "Check" until the first image and until the report, and from the click on "Next"
until the next image, half a second after the last one. The command runs in a new process
with one thread, on the same files, which are in the cache of the system.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data import Data, write_images
from playwright.sync_api import sync_playwright
from sizes import QUICK

_ROOT = Path(__file__).parents[1]
_CHROMIUM = shutil.which("chromium") or "chromium"
_MILLISECONDS = 120_000
_MILLISECONDS_TO_CHOOSE = 1000  # between "Ready" and the click, less than people need
_NEXT_IMAGES = """
async () => {
  const times = [];
  const shown = document.querySelector("#viewer .shown");
  for (let number = 0; number < 10; number += 1) {
    const changed = new Promise((resolve) => {
      new MutationObserver((_, observer) => { observer.disconnect(); resolve(); })
        .observe(shown, { childList: true });
    });
    const began = performance.now();
    document.querySelector("#viewer [data-move='1']").click();
    await changed;
    times.push((performance.now() - began) / 1000);
    await new Promise((resolve) => setTimeout(resolve, 500)); // a look at the image
  }
  return times;
}
"""


def main() -> int:
    options = _parse_arguments()
    with (
        tempfile.TemporaryDirectory(prefix="tfod-benchmark-", dir=options.folder) as name,
        _serve(options.page) as url,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        print(f"Chromium {browser.version}, {os.cpu_count()} cores, decode: {options.decode}")
        for count in options.images:
            data = Data(Path(name), QUICK)
            write_images(data, str(count), count)
            shard = data.shard(str(count))
            runs = [_check(browser, url, shard, options.decode) for _ in range(options.repeats)]
            command = [_run_command(shard, options.decode) for _ in range(options.repeats)]
            print(f"{count:,} images, {shard.stat().st_size / 1e6:.0f} MB")
            for what in runs[0]:
                print(f"  {what:<24} {statistics.median(run[what] for run in runs):6.3f} s")
            print(f"  {'tfod check':<24} {statistics.median(command):6.3f} s", flush=True)
        browser.close()
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--page", type=Path, default=_ROOT / "build/browser", help="built page")
    parser.add_argument("--images", nargs="+", type=int, default=[500, 6000], metavar="N")
    parser.add_argument("--decode", default="auto", help="images to decode, as for tfod check")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="folder for the temporary data")
    return parser.parse_args()


class _Handler(http.server.SimpleHTTPRequestHandler):
    """A static host that logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Print no line for each request."""


@contextmanager
def _serve(page: Path) -> Iterator[str]:
    handler = functools.partial(_Handler, directory=str(page))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def _check(browser: Any, url: str, shard: Path, decode: str) -> dict[str, float]:
    """Open a new page, check a shard with its label map, and page through the images."""
    page = browser.new_page()
    page.set_default_timeout(_MILLISECONDS)
    times = {}
    began = time.perf_counter()
    page.goto(url)
    page.get_by_text("Ready.").wait_for()
    times["ready"] = time.perf_counter() - began
    page.locator("#file").set_input_files([shard, shard.parent / "label_map.pbtxt"])
    if decode != "auto":
        page.locator("#options > summary").click()
        box = page.locator("[name=decode]")
        box.evaluate("(box, value) => { box.value = value; }", decode)
        box.check()
    page.wait_for_timeout(_MILLISECONDS_TO_CHOOSE)
    began = time.perf_counter()
    page.locator("#send").click()
    page.locator("#viewer svg").first.wait_for()
    times["first image"] = time.perf_counter() - began
    page.locator(".verdict").wait_for()
    times["report"] = time.perf_counter() - began
    times["next image"] = statistics.median(page.evaluate(_NEXT_IMAGES))
    page.close()
    return times


def _run_command(shard: Path, decode: str) -> float:
    options = ["--jobs", "1", "--format", "json"]
    if decode != "auto":
        options += ["--decode", decode]
    began = time.perf_counter()
    command = [sys.executable, "-m", "tfod", "check", str(shard), *options]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
