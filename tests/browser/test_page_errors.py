"""The page that checks in the browser: each error is a sentence, and the page can be used again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, drop
from tests.chromium import OpenPage, assert_accessible, launch
from tests.commands import TIMEOUT
from tests.mutants.sound import LABEL_MAP, record, shard

EXAMPLES = Path(__file__).parents[2] / "examples"
READY = "Ready. Your files stay"


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def wait_for_problem(page: Any) -> str:
    """Wait for a sentence, and return it."""
    problem = page.locator("p.problem:not(:empty):visible")
    problem.wait_for()
    return str(problem.inner_text())


def check_example(page: Any) -> None:
    """Assert that the page checks files."""
    drop(page, EXAMPLES / "shapes_good.zip")
    press(page, "Check")
    page.get_by_role("heading", name="Valid: 12 images").wait_for()


def test_a_page_from_a_file(browser_folder: Path, chromium: Any) -> None:
    page = chromium.new_page()
    page.goto((browser_folder / "index.html").as_uri())
    assert "python -m http.server" in wait_for_problem(page)
    assert page.locator("#status").inner_text() == ""  # nothing is being loaded
    page.close()


def test_no_scripts(host: str, open_page: OpenPage) -> None:
    page = open_page(java_script_enabled=False)
    page.goto(host)
    assert "needs JavaScript" in wait_for_problem(page)


def test_no_webassembly(host: str, open_page: OpenPage) -> None:
    page = open_page()
    page.add_init_script("delete window.WebAssembly")
    page.goto(host)
    assert "no WebAssembly" in wait_for_problem(page)
    assert page.get_by_role("button", name="Check", exact=True).is_disabled()
    assert_accessible(page)


@pytest.mark.parametrize("name", ["packages.json", "worker.js", "pyodide.asm.wasm"])
def test_a_missing_file(name: str, host: str, chromium: Any) -> None:
    page = chromium.new_page()
    page.route(f"**/{name}", lambda route: route.fulfill(status=404))
    page.goto(host)
    assert name in wait_for_problem(page)
    page.close()


def test_files_without_shards(open_ready: Open, tmp_path: Path) -> None:
    page, folder = open_ready(), tmp_path / "notes"
    press(page, "Check")
    assert "Choose" in wait_for_problem(page)
    folder.mkdir()
    (folder / "a.txt").touch()
    drop(page, folder)
    press(page, "Check")
    assert "notes: no shard in this folder" in wait_for_problem(page)
    press(page, "Remove notes")
    drop(page, EXAMPLES / "shapes_voc")
    press(page, "Check")
    problem = wait_for_problem(page)
    assert "Pascal VOC" in problem and "zip" in problem and "tfod convert" not in problem
    press(page, "Remove shapes_voc")
    check_example(page)


def test_a_file_next_to_the_shards_that_is_not_one(open_ready: Open, tmp_path: Path) -> None:
    """The viewer shows why; the title of the page counts the files like the report."""
    page = open_ready()
    (tmp_path / "a.txt").write_text("This is a text, and not a TFRecord file.")
    (tmp_path / "b.tfrecord").write_bytes(shard(record()))
    (tmp_path / "label_map.pbtxt").write_bytes(LABEL_MAP)
    drop(page, *(tmp_path / name for name in ("a.txt", "b.tfrecord", "label_map.pbtxt")))
    press(page, "Check")
    page.locator("#viewer figure", has_text="TFR001").wait_for()
    assert "a.txt and 1 more file" in page.title()
    assert "a.txt and 1 more file" in page.locator(".head").inner_text()
    assert "pload" not in page.locator("#result").inner_text()


def test_a_file_that_changes(open_ready: Open, tmp_path: Path) -> None:
    page, target = open_ready(), tmp_path / "a.zip"
    shutil.copy(EXAMPLES / "shapes_good.zip", target)
    drop(page, target)
    target.write_bytes(b"")
    press(page, "Check")
    page.get_by_role("heading", name="Cannot be read").wait_for()
    assert page.get_by_role("link", name="Look at every record").count() == 0
    check_example(page)


def test_too_little_memory(host: str, chromium: Any, tmp_path: Path) -> None:
    """The page starts Python again, since its memory may be full."""
    browser = launch(chromium.browser_type, "--js-flags=--wasm-max-mem-pages=3000")
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT * 1000)
    page.goto(host)
    large = record(encoded=bytes(100 << 20), sha256=None)
    (tmp_path / "large.tfrecord").write_bytes(shard(large))
    page.get_by_text(READY).wait_for()
    drop(page, tmp_path / "large.tfrecord")
    press(page, "Check")
    problem = wait_for_problem(page)
    assert "memory" in problem and '"tfod check large.tfrecord"' in problem
    press(page, "Remove large.tfrecord")
    check_example(page)
    browser.close()


def test_stop_and_files_during_a_check(open_ready: Open, tmp_path: Path) -> None:
    page, target = open_ready(), tmp_path / "many.tfrecord"
    target.write_bytes(shard(*[record(filename=f"{number}.jpg") for number in range(50)]) * 1000)
    drop(page, target)
    press(page, "Check")
    page.locator("#viewer figure").wait_for()  # before the check ends
    page.dispatch_event(
        "#main",
        "drop",
        {
            "dataTransfer": page.evaluate_handle(
                "() => { const files = new DataTransfer();"
                "files.items.add(new File(['a'], 'a.tfrecord')); return files; }"
            )
        },
    )
    assert "A check is running" in wait_for_problem(page)
    assert_accessible(page)
    press(page, "Stop")
    assert page.locator("#chosen li").count() == 1
    assert page.locator("#viewer figure").count() == 0
    assert page.evaluate("document.activeElement.id") == "send"
    press(page, "Remove many.tfrecord")
    check_example(page)


def test_the_next_check_after_a_stop_has_a_viewer(open_ready: Open, tmp_path: Path) -> None:
    """Late messages of the stopped check do not open it. The address is not that of old files."""
    page, target = open_ready(), tmp_path / "many.tfrecord"
    target.write_bytes(shard(*[record(filename=f"{number}.jpg") for number in range(50)]) * 400)
    drop(page, target)
    press(page, "Check")
    for _ in range(4):
        page.locator("#viewer .viewer").wait_for()
        page.evaluate("document.getElementById('stop').click()")
        page.evaluate("document.getElementById('send').click()")
    page.locator("#viewer figure").wait_for()
    page.locator("#viewer").get_by_role("button", name="Next").click()
    page.wait_for_url("**/#record=1")
    press(page, "Stop")
    press(page, "Remove many.tfrecord")
    assert "#" not in page.url
    check_example(page)
    page.locator("#viewer").get_by_role("heading", name="Record 0").wait_for()


def test_a_viewer_whose_worker_fails(host: str, chromium: Any) -> None:
    page = chromium.new_page()
    page.goto(host)
    page.get_by_text(READY).wait_for()
    check_example(page)
    page.locator("#viewer figure").wait_for()
    page.workers[0].evaluate("() => { checker = null; }")
    page.locator("#viewer [name=record]").fill("7")
    page.keyboard.press("Enter")
    assert "Internal error: " in wait_for_problem(page)
    page.close()


def test_labels_that_cannot_be_read(open_ready: Open, tmp_path: Path) -> None:
    page, labels = open_ready(), tmp_path / "labels.json"
    labels.write_text("{")
    drop(page, EXAMPLES / "shapes_good.zip")
    page.locator("#cvat_labels").set_input_files(labels)
    press(page, "Check")
    assert wait_for_problem(page).startswith("The check could not run: labels.json is not")
    assert page.evaluate("document.activeElement.id") == "send"


def test_files_with_the_same_name(open_ready: Open, tmp_path: Path) -> None:
    """Only the last one is checked, so only this one is listed."""
    page, files = open_ready(), [tmp_path / "a" / "x.tfrecord", tmp_path / "b" / "x.tfrecord"]
    for count, file in enumerate(files, 1):
        file.parent.mkdir()
        file.write_bytes(shard(*[record(filename=f"{number}.jpg") for number in range(count)]))
    page.locator("#file").set_input_files(files)
    assert page.locator("#chosen li").count() == 1
    press(page, "Check")
    assert "2 images" in page.locator(".verdict").inner_text()


def test_a_worker_that_does_not_stop(host: str, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(host)
    page.get_by_text(READY).wait_for()
    drop(page, EXAMPLES / "shapes_good.zip")
    (worker,) = page.workers
    worker.evaluate("() => { setTimeout(() => { for (;;); }); }")
    press(page, "Check")
    press(page, "Stop")
    page.get_by_text(READY).wait_for()
    check_example(page)
    assert page.workers != [worker]
