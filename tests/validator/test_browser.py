"""The pages in Chromium: upload, progress, report, sharing; with scripts, without, by keyboard."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from tfod_validator.jobs.check_upload import run_check
from tfod_validator.jobs.database import Database
from tfod_validator.jobs.request import Result
from tfod_validator.settings import Settings

from tests.commands import require
from tests.mutants.sound import LABEL_MAP, jpeg, other, record, shard, with_boxes
from tests.validator.conftest import Service, running_service
from tests.zip_forge import real_zip

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""Debian's, best without what shows windows: it takes two thirds of the time."""
ARGUMENTS = (
    "--host-resolver-rules=MAP tfod.test 127.0.0.1",
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    "--disable-software-rasterizer",
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
ATTACK = "<img src=x onerror=alert(1)>\"'&"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
BAD = "1 error in 1 of 2 images"
REMOTE_TIMEOUT = 120_000
"""Milliseconds that the browser waits for something."""
NAMED = {"mimeType": "application/zip"}
Start = Callable[..., Service]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright."""
    require("Chromium", CHROMIUM is not None)
    for package in ("playwright", "axe_playwright_python"):
        require(package, find_spec(package) is not None)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages in fresh contexts; no page may run an attack, fail, or break its policy."""
    contexts, troubles = [], []

    def note(message: Any) -> None:
        # Answers that are refused, and a header that means nothing without https.
        expected = ("status of", "Cross-Origin-Opener-Policy header has been ignored")
        if message.type == "error" and not any(one in message.text for one in expected):
            troubles.append(message.text)

    def make(**options: Any) -> Any:
        contexts.append(chromium.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(REMOTE_TIMEOUT)
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", note)
        return page

    yield make
    for one in contexts:
        one.close()
    assert troubles == []


def zipped(*payloads: bytes) -> bytes:
    return real_zip([("default.tfrecord", shard(*payloads)), ("label_map.pbtxt", LABEL_MAP)])


def good() -> bytes:
    return zipped(record(), other())


def bad(text: str = "cat") -> bytes:
    """A zip with an inverted box, a class that is not in the map, and an image to look at."""
    boxes = [(0.75, 0.25, 0.25, 0.75), (0.1, 0.1, 0.5, 0.9)]
    return zipped(with_boxes(boxes, [text, "dog"], [1, 2]), other())


def choose(page: Any, *files: tuple[str, bytes]) -> None:
    given = [{"name": name, "buffer": data, **NAMED} for name, data in files]
    page.locator("#file").set_input_files(given)


def upload_and_wait(page: Any, url: str, *files: tuple[str, bytes]) -> str:
    """Choose files and send them; returns the address of their report."""
    page.goto(url)
    choose(page, *files)
    page.get_by_role("button", name="Check", exact=True).click()
    page.wait_for_url("**/reports/*")
    return str(page.url)


def verdict_on(page: Any) -> str:
    """The verdict, once it is there."""
    return str(page.locator(".verdict").inner_text())


def fits(page: Any) -> bool:
    """Whether nothing has to be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


class Worker:
    """A worker whose progress a test decides."""

    def __init__(self, service: Service) -> None:
        self.settings = Settings(data=service.data)
        self.store = Database(self.settings)

    def begin(self, address: str) -> str:
        key = address.rpartition("/")[2]
        claimed = self.store.claim("test", time.time() + 600, 10)
        assert claimed is not None and claimed.id == key
        return key

    def tell(self, key: str, part: float, records: int) -> None:
        total = self.store.find(key).bytes_total
        assert self.store.renew(key, "test", time.time() + 600, (int(total * part), records))

    def end(self, key: str, outcome: Result | None = None) -> None:
        found = self.store.find(key)
        assert found is not None
        folder = self.settings.uploads / key
        made = outcome or run_check(folder, found.request, self.settings.limits, lambda *_: None)
        assert self.store.finish(key, "test", made)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without workers: what is uploaded waits until the test itself goes on with it."""
    data = tmp_path_factory.mktemp("waiting")
    hosts = ("--hosts", "tfod.test,127.0.0.1")
    with running_service(data, "--workers", "0", *hosts) as running:
        yield running


@pytest.fixture(scope="module")
def with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service without workers, to which one has to sign in."""
    tokens = {"TFOD_TOKENS": "sesame,barley"}
    data = tmp_path_factory.mktemp("with_tokens")
    with running_service(data, "--workers", "0", environment=tokens) as running:
        yield running.url


# Upload and report


def test_from_choosing_a_file_to_the_report(service: Service, open_page: Any) -> None:
    page = open_page()
    upload_and_wait(page, service.url, ("anno.zip", bad()))
    assert verdict_on(page) == BAD
    assert page.title() == "Invalid: anno.zip · tfod"
    page.get_by_role("link", name="Box is inverted").click()
    assert "What to do:" in page.locator("#BOX006").inner_text()
    image = page.locator(".card.error svg.image")
    assert image.locator("image").count() == 1 and image.locator("g.bad").count() == 1
    assert image.locator("text.bad").text_content() == "cat"
    assert image.bounding_box()["width"] > 100
    assert page.locator(".charts .bar rect").count() >= 2
    link = page.get_by_role("link", name="Larger image")
    answer = page.request.get(page.evaluate("one => one.href", link.element_handle()))
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.body().startswith(b"<svg ")


def test_dropped_files_are_collected_and_can_be_removed(service: Service, open_page: Any) -> None:
    page = open_page()
    page.goto(service.url)
    for name, data in (("a.tfrecord", shard(record())), ("label_map.pbtxt", LABEL_MAP)):
        made = page.evaluate_handle(
            """([name, bytes]) => {
                const files = new DataTransfer();
                files.items.add(new File([new Uint8Array(bytes)], name));
                return files;
            }""",
            [name, list(data)],
        )
        page.dispatch_event(".drop", "dragover", {"dataTransfer": made})
        page.dispatch_event(".drop", "drop", {"dataTransfer": made})
    choosing = page.get_by_role("list", name="Chosen files").get_by_role("listitem")
    assert choosing.count() == 2
    page.get_by_role("button", name="Remove label_map.pbtxt").click()
    assert choosing.count() == 1
    page.get_by_role("button", name="Check", exact=True).click()
    assert verdict_on(page) == "Valid: 1 image, 2 boxes"
    assert "a.tfrecord" in page.title()


def test_options_are_followed(service: Service, open_page: Any) -> None:
    page = open_page()
    page.goto(service.url)
    choose(page, ("anno.zip", zipped(with_boxes([(0.1, 0.1, 0.1001, 0.9)]), other())))
    page.get_by_role("radio", name="CVAT").check()
    page.get_by_text("Options").click()
    page.get_by_label("Warnings make it invalid, too").check()
    labels = json.dumps([{"name": "cat"}, {"name": "dog"}]).encode()
    page.get_by_label("Labels of the CVAT task").set_input_files(
        {"name": "labels.json", "mimeType": "application/json", "buffer": labels}
    )
    page.get_by_role("button", name="Check", exact=True).click()
    assert verdict_on(page) == "Not ready for CVAT: 1 warning in 1 of 2 images"
    assert "warnings fail, too" in page.locator(".head").inner_text()
    page.get_by_text("What was checked").click()
    assert "Profile cvat" in page.locator("main").inner_text()


@pytest.mark.parametrize(
    ("button", "output", "scripts"),
    [
        ("a good zip", "Ready for CVAT: 12 images, 34 boxes", True),
        ("a broken one", "Not ready for CVAT: 2 errors in 2 of 12 images", False),
    ],
)
def test_the_page_offers_zips_to_try(
    service: Service, open_page: Any, button: str, output: str, scripts: bool
) -> None:
    page = open_page(java_script_enabled=scripts)
    page.goto(service.url)
    page.get_by_role("button", name=button).click()
    page.wait_for_url("**/reports/*")
    assert verdict_on(page) == output
    assert page.locator(".card svg.image image").count() >= 4


def test_a_zip_of_another_format_is_named(service: Service, open_page: Any) -> None:
    page = open_page()
    coco = real_zip([("annotations/instances_default.json", b"{}")])
    upload_and_wait(page, service.url, ("coco.zip", coco))
    assert verdict_on(page) == "This zip holds COCO annotations, not TFRecord"
    assert page.locator(".next li").inner_text() == (
        "Export the annotations as TFRecord 1.0 instead, or unpack it first and convert the "
        "folder; to import these into CVAT, choose COCO 1.0 in its menu."
    )


def test_a_missing_label_map_is_to_be_uploaded(service: Service, open_page: Any) -> None:
    """No option of the command line is named where there is none."""
    page = open_page()
    upload_and_wait(page, service.url, ("a.tfrecord", shard(record())))
    verdict_on(page)
    page.locator("summary", has_text="No label map").click()
    output = page.locator("main").inner_text()
    assert "Upload the right label map (label_map.pbtxt) together with the shards." in output
    assert "--label-map" not in output


def crowd() -> bytes:
    """38 images, in which 13 rules find something."""
    inverted, outside, flat = (0.75, 0.2, 0.25, 0.7), (0.1, 0.1, 1.4, 0.9), (0.3, 0.2, 0.3, 0.8)
    nearly, nan = (0.1, 0.1, 1.01, 0.9), (float("nan"), 0.1, 0.5, 0.9)
    spoiled: list[dict[str, Any]] = [
        {"boxes": [inverted]},
        {"boxes": [outside]},
        {"boxes": [flat]},
        {"boxes": [nearly]},
        {"boxes": [nan]},
        {"boxes": [(0.1, 0.1, 0.5, 0.5)] * 2},
        {"boxes": [(0.1, 0.1, 0.5, 0.5)], "text": ["cot"], "label": [1]},
        {"boxes": [(0.1, 0.1, 0.5, 0.5)], "text": ["cat"], "label": [9]},
        {"boxes": [(0.1, 0.1, 0.5, 0.5)], "height": 40, "width": 20},
        {"boxes": [(0.1, 0.1, 0.5, 0.5)], "format": "png"},
        {"boxes": [(0.1, 0.1, 0.5, 0.5)], "encoded": jpeg()[:-40]},
        {"boxes": [(0.1, 0.1, 0.5, 0.5)], "filename": "../../a.jpg"},
    ]
    records = [
        with_boxes(**{"name": f"street/camera 3/2024-05-17/frame_{n:06}.jpg", **spoiled[n % 12]})
        for n in range(38)
    ]
    return zipped(*records)


def test_many_findings_fit_in_five_screens(service: Service, open_page: Any) -> None:
    page = open_page()
    upload_and_wait(page, service.url, ("anno.zip", crowd()))
    assert verdict_on(page).endswith(" of 38 images")
    assert page.locator(".rule").count() >= 13
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        height = page.evaluate("document.documentElement.scrollHeight")
        assert height <= 5 * size["height"]
        assert fits(page)


# Progress


def test_the_upload_shows_how_far_it_is_and_can_be_cancelled(
    waiting: Service, open_page: Any
) -> None:
    page = open_page()
    page.goto(waiting.url)
    choose(page, ("large.zip", bytes(6_000_000)))
    network = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 1_000_000}
    network.send("Network.emulateNetworkConditions", slow)
    page.get_by_role("button", name="Check", exact=True).click()
    page.get_by_text(" of 6.0 MB").wait_for()
    assert 0 < page.locator("#sent").evaluate("bar => bar.position") < 1
    page.get_by_role("button", name="Cancel").click()
    assert page.get_by_role("alert").inner_text() == "The upload was cancelled."
    assert page.get_by_role("button", name="Check", exact=True).is_enabled()


@pytest.mark.parametrize("events", [True, False], ids=["events", "asking"])
def test_the_check_shows_how_far_it_is(waiting: Service, open_page: Any, events: bool) -> None:
    page, worker = open_page(), Worker(waiting)
    if not events:
        page.route("**/events", lambda route: route.fulfill(status=503))
    address = upload_and_wait(page, waiting.url, ("anno.zip", bad()))
    assert page.get_by_role("heading", name="Waiting").is_visible()
    key = worker.begin(address)
    page.get_by_role("heading", name="Checking").wait_for()
    worker.tell(key, 0.51, 1234)
    page.get_by_text(", 1,234 records").wait_for()
    assert page.get_by_role("progressbar").evaluate("bar => bar.position") == pytest.approx(
        0.5, 0.1
    )
    assert page.get_by_role("status").inner_text() == "50 percent checked"
    worker.end(key)
    assert verdict_on(page) == BAD
    assert page.get_by_role("status").inner_text() == "Invalid: anno.zip · tfod"
    assert page.url == address and page.locator("progress").count() == 0


def test_a_check_that_fails_says_why(waiting: Service, open_page: Any) -> None:
    page, worker = open_page(), Worker(waiting)
    key = worker.begin(upload_and_wait(page, waiting.url, ("label_map.pbtxt", LABEL_MAP)))
    problem = {"title": "x", "status": 422, "detail": f"Too many {ATTACK}.", "limit": "max_records"}
    worker.end(key, Result({}, None, failure=problem))
    page.get_by_role("heading", name="The check could not be done").wait_for()
    text = page.locator("main").inner_text()
    assert ATTACK in text and "max_records" in text


# Sharing and remembering


def test_the_link_can_be_copied_and_opened_elsewhere(service: Service, open_page: Any) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    address = upload_and_wait(page, service.url, ("anno.zip", bad()))
    verdict_on(page)
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == address == page.get_by_label("Link to this report").input_value()
    stranger = open_page()
    stranger.goto(copied)
    assert verdict_on(stranger) == BAD
    stranger.goto(service.url)
    assert stranger.get_by_role("heading", name="Recent").count() == 0


def test_a_browser_remembers_its_reports_until_they_are_deleted(
    service: Service, open_page: Any
) -> None:
    page = open_page()
    addresses = [
        upload_and_wait(page, service.url, (f"{n}.zip", data))
        for n, data in enumerate([good(), bad()])
    ]
    verdict_on(page)
    page.goto(service.url)
    recent = page.locator(".recent li")
    assert recent.count() == 2
    assert "1.zip" in recent.first.inner_text() and "invalid" in recent.first.inner_text()
    recent.first.get_by_role("link").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Delete it now").click()
    page.wait_for_url(service.url + "/")
    assert recent.count() == 1
    assert page.goto(addresses[1]).status == 404
    assert page.get_by_role("heading", name="Nothing here").is_visible()


# Attacks and limits


def test_attacks_in_names_stay_text(service: Service, open_page: Any) -> None:
    page = open_page()
    name = f"{ATTACK}\u202egpj.zip"
    upload_and_wait(page, service.url, (name, bad(ATTACK)))
    assert verdict_on(page) == "2 errors in 1 of 2 images"
    shown = page.locator("main").inner_text()
    assert ATTACK in shown and r"\u202e" in shown and "\u202e" not in shown
    assert ATTACK in page.title()
    assert page.locator("[onerror], [src=x]").count() == 0
    page.goto(service.url)
    assert ATTACK in page.locator(".recent").inner_text()
    choose(page, (name, b"x"))
    assert ATTACK in page.locator("#chosen").inner_text()
    assert page.locator("[onerror], [src=x]").count() == 0


def test_limits_are_told_before_and_after_sending(start_service: Start, open_page: Any) -> None:
    limits = {"TFOD_MAX_BODY_BYTES": "9000", "TFOD_MAX_QUEUED_PER_CLIENT": "1"}
    url = start_service("--workers", "0", **limits).url
    page = open_page()
    page.goto(url)
    choose(page, ("large.zip", bytes(10_000)))
    alert = page.get_by_role("alert")
    assert alert.inner_text().startswith("These files have 10.0 kB; at most 9.0 kB")
    page.get_by_role("button", name="Check", exact=True).click()
    assert page.url == url + "/"
    upload_and_wait(page, url, ("a.zip", good()))
    page.goto(url)
    choose(page, ("b.zip", good()))
    page.get_by_role("button", name="Check", exact=True).click()
    page.get_by_text("wait already; try again").wait_for()
    assert page.get_by_role("button", name="Check", exact=True).is_visible()


def test_signing_in_and_out(with_tokens: str, open_page: Any) -> None:
    url = with_tokens
    page = open_page()
    page.goto(url + "/rules")
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("This token is not known here.").wait_for()
    page.get_by_label("Token").fill("barley")
    page.keyboard.press("Enter")
    page.wait_for_url(url + "/rules")
    upload_and_wait(page, url, ("anno.zip", good()))
    page.get_by_role("heading", name="Waiting").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    page.goto(url + "/sign-in?next=//example.org/")
    page.get_by_label("Token").fill("sesame")
    page.keyboard.press("Enter")
    page.wait_for_url(url + "/")


# Without scripts, by keyboard, on a phone


def test_without_scripts(service: Service, open_page: Any) -> None:
    page = open_page(java_script_enabled=False)
    address = upload_and_wait(page, service.url, ("anno.zip", bad(ATTACK)))
    assert verdict_on(page) == "2 errors in 1 of 2 images"  # the page asks again by itself
    assert page.locator("svg.image").first.is_visible()
    assert page.get_by_label("Link to this report").input_value() == address
    assert page.get_by_role("button", name="Copy").count() == 0
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Delete it now").click()
    page.wait_for_url(service.url + "/")
    page.get_by_role("button", name="Check", exact=True).click()  # the browser asks for a file
    assert page.url == service.url + "/"


def test_forms_work_without_https(waiting: Service, open_page: Any) -> None:
    """There browsers do not send Sec-Fetch-Site, only the origin."""
    url = waiting.url.replace("127.0.0.1", "tfod.test")
    page, worker = open_page(java_script_enabled=False), Worker(waiting)
    address = upload_and_wait(page, url, ("anno.zip", good()))
    assert address.startswith(url)
    worker.end(worker.begin(address))
    assert verdict_on(page) == "Valid: 2 images, 4 boxes"
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Delete it now").click()
    page.wait_for_url(url + "/")


def test_by_keyboard_alone(service: Service, open_page: Any) -> None:
    page = open_page()
    choosers: list[Any] = []
    page.on(
        "filechooser", lambda one: choosers.append(one)
    )  # from the beginning: it takes a moment to be heard
    page.goto(service.url)

    def focused() -> str:
        return str(page.evaluate("document.activeElement.innerText || document.activeElement.id"))

    def tab_to(name: str) -> list[str]:
        """Press Tab until that is focused; returns what was on the way."""
        visited: list[str] = []
        while name not in visited:
            page.keyboard.press("Tab")
            visited.append(focused())
            assert len(visited) < 40, visited
        return visited

    assert tab_to("Skip to the content") == ["Skip to the content"]
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "for"
    tab_to("file")
    assert page.locator(".drop").evaluate("one => getComputedStyle(one).borderColor") != ""
    page.keyboard.press("Space")
    while not choosers:
        page.wait_for_timeout(50)
    choosers[0].set_files({"name": "anno.zip", "buffer": bad(), **NAMED})
    tab_to("Check")
    page.keyboard.press("Enter")
    assert verdict_on(page) == BAD
    assert {"HTML", "JSON", "JUnit", "Text", "link", "Copy"} <= {*tab_to("Delete")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_violations_or_scrolls_sideways(
    waiting: Service, with_tokens: str, open_page: Any, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()
    asked: dict[str, Any] = {"resultTypes": ["violations"]}
    if scheme == "dark":  # the pages have the same parts in other colours
        asked["runOnly"] = ["color-contrast"]
    page, worker = open_page(color_scheme=scheme, viewport=PHONE), Worker(waiting)
    found: dict[str, Any] = {}

    def check(name: str) -> None:
        found[name] = axe.run(page, options=asked).response["violations"]
        assert fits(page), name

    page.goto(with_tokens)
    check("sign-in")
    address = upload_and_wait(page, waiting.url, (ATTACK * 5, bad(ATTACK)))
    check("waiting")
    key = worker.begin(address)
    page.get_by_role("heading", name="Checking").wait_for()
    check("running")
    worker.end(key)
    verdict_on(page)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    check("finished")
    key = worker.begin(upload_and_wait(page, waiting.url, ("a.zip", b"x")))
    worker.end(key, Result({}, None, failure={"title": "x", "status": 422, "detail": "No."}))
    page.get_by_role("heading", name="The check could not be done").wait_for()
    check("failed")
    for path in ("/", "/rules", "/docs", "/nothing"):
        page.goto(waiting.url + path)
        if path == "/":
            choose(page, ("anno.zip", good()))
            page.get_by_text("Options").click()
        check(path)
        if scheme == "light":  # colours are the same on any screen
            page.set_viewport_size(DESK)
            check(path + " on a desk")
            page.set_viewport_size(PHONE)
    output = {
        name: [(one["id"], one["nodes"][0]["html"][:200]) for one in violations]
        for name, violations in found.items()
        if violations
    }
    assert output == {}
    assert len(found) == (13 if scheme == "light" else 9)


def test_dark_is_dark(service: Service, open_page: Any) -> None:
    shades = []
    for scheme in ("light", "dark"):
        page = open_page(color_scheme=scheme)
        page.goto(service.url)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades.append(sum(map(int, colour[4:-1].split(","))))
    assert shades[0] > 600 and shades[1] < 150
