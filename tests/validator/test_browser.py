"""The page in Chromium: drop, report, repair, check again; by keyboard, without scripts."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tfod_validator.folder import PROGRESS, DataFolder, Request, Result, UploadedFile
from tfod_validator.settings import Settings

from tests.chromium import OpenPage, assert_accessible
from tests.commands import wait_until
from tests.mutants.sound import LABEL_MAP, other, record, shard, with_boxes
from tests.validator.conftest import Service, Start, running_service
from tests.zip_forge import real_zip

EXAMPLES = Path(__file__).parents[2] / "examples"
ATTACK = "<img src=x onerror=alert(1)>\"'&"
BROKEN = "Not ready for CVAT: 1 error in 1 of 12 images"
REPAIRED = "Ready for CVAT: 11 images, 29 boxes"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that also has a host name."""
    data = tmp_path_factory.mktemp("served") / "data"
    with running_service(data, TFOD_TRUSTED_HOSTS="tfod.test") as running:
        yield running


@pytest.fixture
def url(served: Service) -> str:
    """The address of the service."""
    return served.url


def zipped(*payloads: bytes) -> bytes:
    return real_zip([("default.tfrecord", shard(*payloads)), ("label_map.pbtxt", LABEL_MAP)])


def broken_zip() -> bytes:
    """Return the good example with another checksum of the last record."""
    with zipfile.ZipFile(EXAMPLES / "shapes_good.zip") as good:
        files = {name: bytearray(good.read(name)) for name in good.namelist()}
    files["default.tfrecord"][-1] ^= 1
    return real_zip((name, bytes(data)) for name, data in files.items())


def named(name: str, data: bytes) -> Any:
    return {"name": name, "buffer": data, "mimeType": "application/zip"}


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def has_button(page: Any, name: str) -> bool:
    return bool(page.get_by_role("button", name=name, exact=True).is_visible())


def press_check(page: Any, for_: str) -> None:
    page.get_by_role("radio", name=for_).check()
    press(page, "Check")
    page.wait_for_url("**/reports/*")


def send(page: Any, url: str, data: bytes, name: str = "anno.zip", for_: str = "For CVAT") -> None:
    """Choose a file, send it, and wait for the page of its report."""
    page.goto(url)
    page.locator("#file").set_input_files(named(name, data))
    press_check(page, for_)


def verdict_on(page: Any) -> str:
    """Wait for the verdict, and return it."""
    return str(page.locator(".verdict").inner_text())


def repair(page: Any) -> None:
    """Press the button, and wait for the page of the copy."""
    before = page.url
    page.get_by_role("button", name="Repair a copy").click()
    page.wait_for_url(lambda url: "/reports/" in url and url != before)


def delete(page: Any, url: str) -> None:
    page.get_by_text("Delete", exact=True).click()
    press(page, "Delete now")
    page.wait_for_url(url + "/")


def download(page: Any, link: str) -> tuple[str, Path]:
    """Follow a link, and return the suggested name and the downloaded file."""
    page.get_by_role("link", name=link).wait_for()
    with page.expect_download() as event:
        page.get_by_role("link", name=link).click()
    return event.value.suggested_filename, event.value.path()


class HeldUpload:
    """An upload that no worker begins, since this process holds its lock."""

    def __init__(self, served: Service, name: str) -> None:
        self.folder = DataFolder(Settings(data=served.data))
        upload = self.folder.begin_upload()
        self.handle = os.open(upload, os.O_RDONLY)
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        self.folder.accept(upload, Request((UploadedFile(name, 2_000_000),)))
        self.key, self.url = upload.name, f"{served.url}/reports/{upload.name}"

    def begin(self) -> None:
        self.attempt, _ = self.folder.begin_attempt(self.key)
        (self.attempt / PROGRESS).write_text(json.dumps([1_020_000, 1234]))

    def fail(self, detail: str) -> None:
        failure = {"status": 422, "detail": detail, "limit": "max_records"}
        self.folder.write_result(self.attempt, Result(None, 1.0, 2.0, failure=failure))
        self.folder.publish(self.attempt)
        os.close(self.handle)


def test_drop_report_repair_check_again(url: str, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(url)
    dropped = page.evaluate_handle(
        "bytes => { const files = new DataTransfer();"
        "files.items.add(new File([new Uint8Array(bytes)], 'anno.zip')); return files; }",
        list(broken_zip()),
    )
    for event in ("dragover", "drop"):
        page.dispatch_event(".drop", event, {"dataTransfer": dropped})
    assert "anno.zip" in page.get_by_role("list", name="Chosen files").inner_text()
    press_check(page, "For CVAT")
    assert verdict_on(page) == BROKEN and page.title() == "Invalid: anno.zip · tfod"
    assert "The record is removed." in page.locator(".repair").inner_text()
    repair(page)
    assert verdict_on(page) == REPAIRED
    assert page.locator("main h2").first.inner_text() == "Repaired: the copy is valid"
    done = page.locator(".repair").inner_text()
    assert "0 records changed, 1 dropped" in done and "TFR004" in done and "kept until" in done
    assert "TFRecord 1.0 and anno_repaired.zip" in page.locator(".next").inner_text()
    assert_accessible(page)
    name, path = download(page, "Download the repaired zip")
    assert name == "anno_repaired.zip"
    send(page, url, path.read_bytes())
    assert verdict_on(page) == REPAIRED
    assert page.get_by_role("button", name="Repair a copy").count() == 0


def test_errors_that_need_a_decision_remain(url: str, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(url)
    page.get_by_role("button", name="a broken zip").click()
    assert verdict_on(page) == "Not ready for CVAT: 2 errors in 2 of 12 images"
    assert page.locator(".card svg.image image").count() >= 4
    names = page.locator("svg.image").evaluate_all(
        "images => images.flatMap((image, number) => [...image.querySelectorAll('.tag-text')].map("
        "text => { const {x, y, width, height} = text.getBBox();"
        "return [number, x, y, x + width, y + height]; }))"
    )
    assert len(names) > 10
    for (number, *a), (image, *b) in itertools.combinations(names, 2):
        is_apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert is_apart or number != image
    repair(page)
    assert verdict_on(page) == "Not ready for CVAT: 1 error in 1 of 11 images"
    assert "remaining problems" in page.locator(".repair h2").first.inner_text()
    page.get_by_role("link", name="report of the upload").click()
    page.get_by_text("2 errors in 2 of 12 images").first.wait_for()


def test_boxes_outside_the_image_are_clipped(url: str, open_page: OpenPage) -> None:
    """The image of the box can be enlarged; the button clips the boxes and checks again."""
    page = open_page()
    boxes = [(0.25, 0.25, 0.5, 0.75), (0.5, 0.25, 1.3, 0.75)]
    broken = zipped(with_boxes(boxes, filename="a.jpg", source_id="a.jpg"), other())
    send(page, url, broken, for_="For training")
    assert "1 error in 1 of 2 images" in verdict_on(page)
    page.locator(".next").get_by_role("link", name="a.jpg").click()
    page.get_by_role("link", name="Enlarge").press("Enter")
    assert page.locator(".card:target svg.image").bounding_box()["width"] == 1280
    page.locator(".card:target").get_by_role("link", name="BOX003").click()  # closes the image
    assert page.locator(".card:target").count() == 0
    page.locator(".rule").get_by_role("link", name="a.jpg").click()
    page.get_by_role("link", name="Enlarge").click()
    page.keyboard.press("Escape")
    assert page.locator(".card:target").count() == 0
    steps = page.locator(".next").inner_text()
    assert "“Clip boxes to the image” or “Drop these boxes” above." in steps
    clip = page.locator(".repairs li", has=page.get_by_role("button", name="Clip boxes"))
    assert "BOX003" in clip.inner_text() and "none of these errors remains" in clip.inner_text()
    clip.get_by_role("button").click()
    page.get_by_role("link", name="Download the repaired zip").wait_for()
    assert verdict_on(page) == "Ready for the OD API's trainer: 2 images, 4 boxes"
    assert page.locator(".repairs").count() == 0


def test_a_zip_of_annotations_is_converted(url: str, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page()
    archive = shutil.make_archive(str(tmp_path / "voc"), "zip", EXAMPLES / "shapes_voc")
    send(page, url, Path(archive).read_bytes(), "voc.zip")
    assert "Pascal VOC" in verdict_on(page)
    press(page, "Convert this and check it")
    name, path = download(page, "Download the shards")
    assert verdict_on(page) == "Ready for CVAT: 12 images, 34 boxes"
    assert name == "voc_converted.zip"
    with zipfile.ZipFile(path) as shards:
        assert "label_map.pbtxt" in shards.namelist()


def test_the_progress_and_the_failure_of_a_check(served: Service, open_page: OpenPage) -> None:
    page, held = open_page(), HeldUpload(served, ATTACK * 5)
    page.goto(held.url)
    assert page.get_by_role("heading", name="Waiting").is_visible()
    assert_accessible(page)
    held.begin()
    page.get_by_text("1.0 MB of 2.0 MB, 1,234 records").wait_for()
    assert page.get_by_role("heading", name="Checking").is_visible()
    assert page.get_by_role("progressbar").evaluate("bar => bar.position") == 0.51
    assert page.get_by_role("status").inner_text() == "50 percent checked"
    assert_accessible(page)
    held.fail(f"Too many {ATTACK * 9}.")
    page.get_by_role("heading", name="The check failed").wait_for()
    shown = page.locator("main").inner_text()
    assert shown.count(ATTACK) == 14 and "max_records" in shown
    assert page.locator("progress").count() == 0
    assert_accessible(page)


def test_the_link_has_no_token_which_survives_a_reload(url: str, open_page: OpenPage) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    send(page, url, broken_zip())
    verdict_on(page)
    press(page, "Copy")
    page.get_by_role("button", name="Copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url == page.get_by_label("link to this report").input_value()
    assert "token" not in link
    stranger = open_page()
    stranger.goto(link)
    assert verdict_on(stranger) == BROKEN
    page.goto(f"{link}?token=made-up")
    page.reload()
    for visitor, is_owner in ((page, True), (stranger, False)):
        assert visitor.get_by_role("button", name="Repair a copy").is_visible() == is_owner
        assert visitor.get_by_text("Delete", exact=True).is_visible() == is_owner
    delete(page, url)
    assert stranger.goto(link).status == 404
    assert stranger.get_by_role("heading", name="Page not found").is_visible()


def test_without_scripts_and_without_https(url: str, open_page: OpenPage) -> None:
    """Browsers then send no Sec-Fetch-Site, only the origin; the address contains the token."""
    page, url = open_page(java_script_enabled=False), url.replace("127.0.0.1", "tfod.test")
    send(page, url, broken_zip())
    assert verdict_on(page) == BROKEN  # the page reloads itself
    link = page.get_by_label("link to this report").input_value()
    assert link.startswith(f"{url}/reports/") and "token" not in link
    assert not has_button(page, "Copy")
    repair(page)
    assert verdict_on(page) == REPAIRED
    delete(page, url)
    press(page, "Check")  # the browser requires a file
    assert page.url == url + "/"


def test_only_the_keyboard(url: str, open_page: OpenPage) -> None:
    page = open_page()
    choosers: list[Any] = []
    page.on("filechooser", lambda chooser: choosers.append(chooser))  # arrives later
    page.goto(url)

    def focused() -> str:
        element = "document.activeElement"
        return str(page.evaluate(f"{element}.value || {element}.innerText || {element}.id"))

    def press_keys(*keys: str) -> str:
        for key in keys:
            page.keyboard.press(key)
        return focused()

    def tab_to(name: str) -> None:
        visited: list[str] = []
        while not visited or not visited[-1].startswith(name):
            visited.append(press_keys("Tab"))
            assert len(visited) < 40, visited

    tab_to("Skip to content")
    press_keys("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    press_keys("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    press_keys("Space")
    wait_until(lambda: choosers or page.wait_for_timeout(20))
    choosers[0].set_files(named("anno.zip", broken_zip()))
    tab_to("any")
    assert press_keys("ArrowDown") == "cvat"  # the others are folded
    # Open the options, go back, and go to the last.
    assert press_keys("Tab", "Enter", "Shift+Tab", "ArrowUp") == "efficientdet"
    page.get_by_text("Options").press("Enter")
    page.get_by_role("radio", name="EfficientDet").wait_for()  # the chosen one is not folded
    assert press_keys("Shift+Tab", "ArrowDown") == "cvat"
    tab_to("Check")
    page.keyboard.press("Enter")
    page.wait_for_url("**/reports/*")
    assert verdict_on(page) == BROKEN
    tab_to("Repair a copy")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Download the repaired zip").wait_for()
    assert verdict_on(page) == REPAIRED
    names = ("Download the repaired zip", "http", "Copy", "Check other files", "HTML", "Delete")
    for name in names:
        tab_to(name)


def test_names_of_uploads_stay_text(url: str, open_page: OpenPage) -> None:
    page = open_page()
    boxes = [(0.75, 0.25, 0.25, 0.75), (0.1, 0.1, 0.5, 0.9)]
    hostile = zipped(with_boxes(boxes, [ATTACK, "dog"], [1, 2], source_id="a"), other())
    send(page, url, hostile, f"{ATTACK * 5}\u202egpj.zip", "Just check")
    assert verdict_on(page) == "2 errors in 1 of 2 images"
    shown = page.locator("main").inner_text()
    assert ATTACK in shown and r"\u202e" in shown and "\u202e" not in shown
    assert page.get_by_role("button", name="Repair a copy").count() == 0  # no repair is certain
    assert ATTACK in page.title() and page.locator("[onerror], [src=x]").count() == 0
    assert_accessible(page)


def test_a_token_and_a_limit(open_page: OpenPage, start_service: Start) -> None:
    url = start_service(TFOD_TOKEN="sesame", TFOD_MAX_BODY_BYTES="1000000").url
    assert open_page().goto(url).status == 401
    page = open_page(http_credentials={"username": "", "password": "sesame"})
    send(page, url, zipped(record(), other()), for_="For training")
    assert verdict_on(page) == "Ready for the OD API's trainer: 2 images, 4 boxes"
    assert 'tf_record_input_reader { input_path: "default' in page.locator(".next").inner_text()
    page.goto(url)
    page.locator("#file").set_input_files(named("large.zip", bytes(2_000_000)))
    alert = page.get_by_role("alert")
    assert alert.inner_text().startswith("Your files have 2.0 MB, but the limit is 1.0 MB")
    press(page, "Check")
    assert page.url == url + "/"


def test_other_pages_are_accessible(url: str, open_page: OpenPage) -> None:
    page = open_page()
    for path in ("/", "/rules", "/docs", "/nothing"):
        page.goto(url + path)
        if path == "/":
            page.locator("#file").set_input_files(named(ATTACK * 5, broken_zip()))
        # Of each family, two rules are enough: axe takes half a minute for all.
        assert_accessible(page, "article:nth-of-type(n+3)")
