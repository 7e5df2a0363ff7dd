"""The page that checks in the browser, in Chromium: what it shows is what the command reports."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, drop
from tests.chromium import assert_accessible
from tests.commands import Run
from tests.mutants.sound import LABEL_MAP, other, record, shard, with_boxes
from tests.zip_forge import real_zip

ROOT = Path(__file__).parents[2]
EXAMPLES, CORPUS = ROOT / "examples", ROOT / "tests" / "corpus"
ATTACK = "<img src=x onerror=alert(1)>\"'&"


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def check(page: Any, for_: str = "Just check") -> str:
    """Press the button, and return the verdict."""
    page.get_by_role("radio", name=for_).check()
    press(page, "Check")
    return verdict_on(page)


def verdict_on(page: Any) -> str:
    return str(page.locator(".verdict").inner_text())


def download(page: Any, link: str) -> tuple[str, bytes]:
    """Return the name and the content of what a link downloads."""
    with page.expect_download() as event:
        page.get_by_role("link", name=link, exact=True).click()
    return event.value.suggested_filename, event.value.path().read_bytes()


def without_time(report: str | bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(report)
    assert document.pop("duration") >= 0
    return document


def copy_inputs(folder: Path) -> dict[str, list[str]]:
    """Write zips, shards and a folder, and return the names of each input."""
    for name in ("shapes_good.zip", "shapes_broken.zip"):
        shutil.copy(EXAMPLES / name, folder)
    half = (EXAMPLES / "shapes_broken.zip").read_bytes()[:40_000]
    (folder / "truncated.zip").write_bytes(half)
    shutil.make_archive(str(folder / "voc"), "zip", EXAMPLES / "shapes_voc")
    shutil.copytree(CORPUS / "blood-cells", folder / "cells")
    shutil.copytree(CORPUS / "drawn-rectangles", folder, dirs_exist_ok=True)
    zips = ("shapes_good.zip", "shapes_broken.zip", "truncated.zip", "voc.zip")
    shards = ["train.tfrecord", "val.tfrecord", "label_map.pbtxt"]
    return {**{name: [name] for name in zips}, "shards": shards, "folder": ["cells"]}


@pytest.mark.parametrize("receiver", [("any", "Just check"), ("cvat", "For CVAT")])
def test_the_report_is_that_of_the_command(
    receiver: tuple[str, str],
    open_ready: Open,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    page, requests = open_ready(), []
    page.on("request", lambda request: requests.append(request.url))
    for names in copy_inputs(tmp_path).values():
        drop(page, *(tmp_path / name for name in names))
        check(page, receiver[1])
        name, report = download(page, "JSON")
        expected = run("check", *names, "--for", receiver[0], "--format", "json").out
        assert without_time(report) == without_time(expected), names
        assert name == "tfod-report.json"
        press(page, "Check other files")
        assert page.locator("#chosen li").count() == 0
    assert [url for url in requests if not url.startswith("blob:")] == []


def test_a_folder_and_options_are_chosen(
    open_ready: Open, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CORPUS / "drawn-rectangles", "set/nested")
    Path("labels.json").write_text('[{"name": "rectangle", "attributes": []}]')
    page = open_ready()
    page.locator("#folder").set_input_files("set")
    assert "folder with 4 files" in page.get_by_role("list", name="Chosen files").inner_text()
    page.get_by_text("Options").click()
    page.get_by_label("Layout of the records").select_option("tf_detection_api")
    page.get_by_label("Labels of the CVAT task").set_input_files("labels.json")
    page.get_by_label("Decode all images").check()
    check(page, "For CVAT")
    options = (
        "--for",
        "cvat",
        "--profile",
        "tf_detection_api",
        "--decode",
        "all",
        "--format",
        "json",
    )
    expected = run("check", "set", *options, "--cvat-labels", "labels.json").out
    assert without_time(download(page, "JSON")[1]) == without_time(expected)
    assert json.loads(expected)["counts"]["by_code"]


def test_repair_download_and_check_again(open_ready: Open, tmp_path: Path) -> None:
    page, files = open_ready(), zipfile.ZipFile(EXAMPLES / "shapes_good.zip")
    contents = {name: files.read(name) for name in files.namelist()}
    *_, last = contents["default.tfrecord"]
    contents["default.tfrecord"] = contents["default.tfrecord"][:-1] + bytes([last ^ 1])
    (tmp_path / "anno.zip").write_bytes(real_zip(contents.items()))
    drop(page, tmp_path / "anno.zip")
    assert check(page, "For CVAT") == "Not ready for CVAT: 1 error in 1 of 12 images"
    press(page, "Repair a copy")
    page.get_by_role("heading", name="Repaired: the copy is valid").wait_for()
    assert "TFR004" in page.locator(".repair").inner_text()
    name, content = download(page, "Download the repaired zip")
    assert name == "anno_repaired.zip"
    (tmp_path / name).write_bytes(content)
    drop(page, tmp_path / name)  # replaces the files of the report
    assert page.locator("#chosen li").count() == 1
    assert check(page, "For CVAT") == "Ready for CVAT: 11 images, 29 boxes"
    assert page.get_by_role("button", name="Repair a copy").count() == 0
    name, text = download(page, "HTML")
    assert name == "tfod-report.html" and b"Ready for CVAT" in text


def test_boxes_are_clipped_in_the_repaired_copy(open_ready: Open, tmp_path: Path) -> None:
    page, target = open_ready(), tmp_path / "train.record"
    target.write_bytes(shard(with_boxes([(0.2, 0.2, 0.5, 0.7), (0.5, 0.2, 1.3, 0.7)]), other()))
    (tmp_path / "label_map.pbtxt").write_bytes(LABEL_MAP)
    drop(page, target, tmp_path / "label_map.pbtxt")
    assert "1 error in 1 of 2 images" in check(page, "For training")
    press(page, "Clip boxes to the image")
    page.get_by_role("link", name="Download the repaired zip").wait_for()
    assert verdict_on(page) == "Ready for the OD API's trainer: 2 images, 4 boxes"
    assert download(page, "Download the repaired zip")[0] == "train_repaired.zip"


def test_annotations_are_converted(open_ready: Open, tmp_path: Path) -> None:
    page, coco = (
        open_ready(),
        shutil.make_archive(str(tmp_path / "a"), "zip", EXAMPLES / "shapes_coco"),
    )
    drop(page, Path(coco))
    assert "COCO" in check(page)
    press(page, "Convert this and check it")
    page.get_by_role("heading", name="Converted from COCO").wait_for()
    assert verdict_on(page) == "Valid: 12 images, 35 boxes"
    name, content = download(page, "Download the shards as a zip")
    (tmp_path / name).write_bytes(content)
    assert name == "a_converted.zip"
    assert "label_map.pbtxt" in zipfile.ZipFile(tmp_path / name).namelist()


def test_a_conversion_that_needs_a_decision(open_ready: Open, tmp_path: Path) -> None:
    """The refusal is shown above the report, whose form then has the decision."""
    page, folder = open_ready(), tmp_path / "coco"
    shutil.copytree(EXAMPLES / "shapes_coco", folder)
    annotations = folder / "annotations" / "instances_train.json"
    document = json.loads(annotations.read_text())
    document["annotations"][0]["bbox"] = [-50, 10, 100, 20]
    annotations.write_text(json.dumps(document))
    drop(page, Path(shutil.make_archive(str(tmp_path / "a"), "zip", folder)))
    check(page)
    press(page, "Convert this and check it")
    problem = page.get_by_role("alert").filter(has_text="The files cannot be converted")
    problem.wait_for()
    page.get_by_label("Boxes that are inverted").select_option("clip")
    press(page, "Convert this and check it")
    page.get_by_role("heading", name="Converted from COCO").wait_for()
    assert verdict_on(page) == "Valid: 12 images, 35 boxes"
    assert not problem.is_visible()


def test_the_example(open_ready: Open) -> None:
    page = open_ready()
    press(page, "a broken zip")
    assert verdict_on(page) == "6 errors in 6 of 12 images"
    assert page.title() == "Invalid: shapes_broken.zip · tfod"


def test_all_records_can_be_viewed(open_ready: Open) -> None:
    """A link opens a record when the files were chosen; findings filter the records."""
    page = open_ready("#record=4&rule=BOX006")
    assert "this link" in page.locator("#status").inner_text()
    drop(page, EXAMPLES / "shapes_broken.zip")
    assert check(page) == "6 errors in 6 of 12 images"
    viewer = page.locator("#viewer")
    viewer.get_by_role("heading", name="Record 4").wait_for()
    assert viewer.evaluate("viewer => viewer.getBoundingClientRect().top < innerHeight")
    viewer.get_by_text("1 of 1", exact=True).wait_for()
    assert "BOX006" in viewer.locator("figure").inner_text()
    assert viewer.locator("svg.image image").count() == 1
    viewer.get_by_label("Finding").select_option("")
    viewer.get_by_text("5 of 12", exact=True).wait_for()
    page.locator("#main").focus()
    for key, number in (("ArrowRight", 5), ("ArrowRight", 6), ("ArrowLeft", 5)):
        page.keyboard.press(key)
        viewer.get_by_role("heading", name=f"Record {number}").wait_for()
    assert "record=5" in page.url
    page.get_by_role("link", name="Look at every record").click()
    viewer.locator("[name=class]").select_option("triangle")
    viewer.get_by_text("of 3", exact=False).first.wait_for()
    press(page, "Check other files")
    assert viewer.locator("figure").count() == 0 and "#" not in page.url


def test_only_the_keyboard(open_ready: Open) -> None:
    page = open_ready()

    def tab_to(name: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            active = "document.activeElement"
            if page.evaluate(f"{active}.id || {active}.value || {active}.innerText") == name:
                return
        raise AssertionError(f"{name} cannot be reached")

    tab_to("folder")
    page.locator("#file").set_input_files(EXAMPLES / "shapes_broken.zip")
    assert page.evaluate("document.activeElement.id") == "send"
    page.keyboard.press("Enter")
    verdict_on(page)
    assert page.evaluate("document.activeElement.id") == "main"
    tab_to("Repair a copy")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Download the repaired zip").wait_for()
    tab_to("again")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "file"


def test_pages_are_accessible_and_names_stay_text(open_ready: Open, tmp_path: Path) -> None:
    page, hostile = open_ready(), tmp_path / f"{ATTACK[5:] * 3}.zip".replace("/", "")
    content = [("a.tfrecord", shard(with_boxes([(0.7, 0.2, 0.2, 0.7)], [ATTACK], [1]), record()))]
    hostile.write_bytes(real_zip(content))
    assert_accessible(page)
    drop(page, hostile)
    assert_accessible(page)
    assert "error" in check(page)
    page.locator("#viewer figure").wait_for()
    assert_accessible(page)
    shown = page.locator("main").inner_text()
    assert ATTACK in shown and hostile.name in shown and hostile.name in page.title()
    assert page.locator("[onerror], [src=x]").count() == 0
