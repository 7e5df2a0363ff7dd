"""The page of ``tfod show --serve`` in Chromium: moves, filters, links, findings as they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import OpenPage, assert_accessible
from tests.files import write_files
from tests.mutants.sound import LABEL_MAP, shard, with_boxes
from tests.viewer.test_server import served

BOX, OUTSIDE = (0.25, 0.25, 0.5, 0.75), (0.5, 0.25, 1.6, 0.75)
ATTACK = "<img src=x onerror=alert(1)>\"'&"
DOGS, WRONG = (3, 55, 58), (2, 57)
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A viewer of 64 records in two shards; the names of the last ones are attacks."""

    def make(number: int) -> bytes:
        name = "dog" if number in DOGS else "cat"
        boxes = [BOX, OUTSIDE] if number in WRONG else [BOX]
        names, ids = [name] * len(boxes), [1 + (name == "dog")] * len(boxes)
        return with_boxes(boxes, names, ids, filename=f"{number}.jpg")

    evil = with_boxes([BOX], [ATTACK], [7], filename=ATTACK)
    train, val = shard(*map(make, range(60))), shard(*map(make, range(3)), evil)
    files = {"train.tfrecord": train, "val.tfrecord": val, "label_map.pbtxt": LABEL_MAP}
    with served(write_files(tmp_path_factory.mktemp("viewed"), files)) as url:
        yield url


def image(page: Any) -> str:
    """Wait until the page shows a record, and return its name."""
    page.locator(".shown[aria-busy=false] figure").wait_for()
    return str(page.locator(".shown .name").inner_text())


def wait_for(page: Any, name: str) -> None:
    page.locator(".shown .name", has_text=name).wait_for()


def wait_for_place(page: Any, place: str) -> None:
    page.locator(".place", has_text=place).wait_for()


def choose(page: Any, name: str, value: str) -> None:
    """Choose a filter when the check has found it."""
    select = page.locator(f".index [name={name}]")
    select.locator(f"option[value='{value}']").wait_for(state="attached")
    select.select_option(value)


def open_viewer(open_page: OpenPage, url: str, **options: Any) -> Any:
    page = open_page(**options)
    page.goto(url)
    page.get_by_text("All records are checked").wait_for()
    assert image(page)
    return page


def test_moves_by_button_and_keyboard(url: str, open_page: OpenPage) -> None:
    page = open_viewer(open_page, url)
    assert image(page) == "0.jpg"
    wait_for_place(page, "1 of 64")
    page.get_by_role("button", name="Next").click()
    wait_for(page, "1.jpg")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    wait_for(page, "4.jpg")
    page.keyboard.press("ArrowLeft")
    wait_for(page, "3.jpg")
    wait_for_place(page, "4 of 64")
    assert "record=3" in page.url and "shard=train" in page.url
    page.get_by_role("status").filter(has_text="3.jpg, warning").wait_for()
    current = page.locator(".index [aria-current]")
    assert current.inner_text().split() == ["3.jpg", "warning"]
    page.locator("[name=record]").fill("57")
    page.keyboard.press("ArrowLeft")  # moves the cursor, and does not change the record
    page.keyboard.press("Enter")
    wait_for(page, "57.jpg")
    wait_for_place(page, "58 of 64")
    assert current.inner_text().split() == ["57.jpg", "error"]
    assert page.locator(".part").inner_text().split() == [
        "Earlier",
        "51",
        "to",
        "64",
        "of",
        "64",
        "Later",
    ]
    page.get_by_role("button", name="Earlier").click()
    page.locator(".index").get_by_role("link", name="49.jpg").click()
    wait_for_place(page, "50 of 64")
    page.keyboard.press("ArrowRight")  # the next part of the list
    wait_for(page, "50.jpg")
    page.locator("[name=record]").fill("99")
    page.get_by_role("button", name="Show").click()
    assert "the last record is 59" in page.get_by_role("alert").inner_text()
    page.locator("[name=shard]").select_option("val.tfrecord")
    page.locator("[name=record]").fill("3")
    page.get_by_role("button", name="Show").click()
    wait_for(page, ATTACK)  # an open page that runs it fails
    page.keyboard.press("ArrowRight")
    page.get_by_role("status").filter(has_text="the last record").wait_for()


def test_filters(url: str, open_page: OpenPage) -> None:
    page = open_viewer(open_page, url)
    choose(page, "class", "dog")
    wait_for(page, "3.jpg")
    wait_for_place(page, "1 of 3")
    page.get_by_role("status").filter(has_text="3 records match").wait_for()
    page.get_by_role("button", name="Next").click()
    wait_for(page, "55.jpg")
    choose(page, "rule", "BOX003")
    page.get_by_text("No record matches").wait_for()
    assert image(page) == "55.jpg"
    choose(page, "class", "")
    wait_for(page, "57.jpg")  # the next one that matches
    assert page.locator(".box.bad").count() == 1
    choose(page, "subset", "val")
    wait_for_place(page, "1 of 1")
    assert image(page) == "2.jpg" and "shard=val" in page.url and "rule=BOX003" in page.url
    choose(page, "rule", "any")
    page.locator(".index li").nth(1).wait_for()


def test_links(url: str, open_page: OpenPage) -> None:
    """A link opens its record and filters; the browser's Back, too."""
    page = open_viewer(open_page, f"{url}#record=57&shard=train.tfrecord&rule=BOX003")
    assert image(page) == "57.jpg"
    wait_for_place(page, "2 of 3")
    assert page.locator("[name=rule]").input_value() == "BOX003"
    page.evaluate("location.hash = '#record=1&shard=val.tfrecord&class=cat'")
    wait_for(page, "1.jpg")
    wait_for_place(page, "59 of 60")
    assert page.locator("[name=class]").input_value() == "cat"
    page.go_back()
    wait_for(page, "57.jpg")
    page.evaluate("location.hash = '#viewer-index'")  # not a record
    assert image(page) == "57.jpg"
    page.evaluate("location.hash = '#record=1&shard=other.tfrecord'")
    page.locator(".problem", has_text="no such record").wait_for()
    page = open_viewer(open_page, f"{url}#class=dog")
    wait_for(page, "3.jpg")
    page = open_page()
    page.goto(f"{url}#record=77")
    assert "record 77" in page.get_by_role("alert").inner_text()
    page = open_page()
    page.goto(f"{url}#record=1e99")
    assert image(page) == "0.jpg"
    page.locator("[name=record]").fill("1e99")
    page.keyboard.press("Enter")  # refused by the browser
    assert image(page) == "0.jpg"


def test_findings_are_marked_as_they_arrive(url: str, open_page: OpenPage) -> None:
    """The first answers are those before the check."""
    page = open_page()

    def hold(route: Any, **changes: Any) -> None:
        answer = route.fetch().json()
        if "html" in answer:
            changes["html"] = answer["html"].replace('class="box bad"', 'class="box"')
        route.fulfill(json={**answer, **changes})

    page.route("**/record?*", lambda route: hold(route, findings=0))
    begun = {"complete": False, "findings": 0, "version": 0, "rules": [], "read": 0}
    page.route("**/overview?*", lambda route: hold(route, **begun))
    page.goto(f"{url}#record=2")
    assert image(page) == "2.jpg" and page.locator(".box.bad").count() == 0
    page.get_by_text("Checked so far: 0 percent").wait_for()
    page.unroute_all(behavior="wait")
    page.locator(".box.bad").wait_for()
    page.locator("[name=rule]").locator("option[value=BOX003]").wait_for(state="attached")


def test_no_request_leaves_the_machine(url: str, open_page: OpenPage) -> None:
    page, requests = open_page(), []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(url)
    assert image(page) == "0.jpg"
    assert requests and all(each.startswith((url, "data:")) for each in requests)


def test_accessible_at_both_widths(url: str, open_page: OpenPage) -> None:
    for link in ("#record=2", "#record=3&shard=val.tfrecord"):
        page = open_viewer(open_page, url + link)
        assert_accessible(page)


def test_damaged_shards_and_the_end_of_the_command(chromium: Any) -> None:
    """After the end, the browser prints an error to its console."""
    page = chromium.new_page()
    with served(EXAMPLES / "shapes_broken.zip") as url:
        page.goto(f"{url}#rule=TFR004")
        page.locator(".shown .tag.error").first.wait_for()
        assert "cannot be read" in page.locator(".shown").inner_text()
    page.locator("[name=record]").fill("3")
    page.keyboard.press("Enter")
    page.get_by_text("tfod show has ended").wait_for()
    page.locator("[name=record]").fill("")
    page.evaluate("document.querySelector('.viewer .problem').textContent = ''")
    page.locator(".index [name=rule]").select_option("any")
    page.get_by_text("tfod show has ended").wait_for()
    page.close()
