"""``tfod stats``: figures by subset and hints, as text, JSON and HTML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tfod.check.check import Options, check_sources
from tfod.check.records.figures.details import AREAS, RATIOS
from tfod.cli.main import main

from tests.records import encode, image, objects, write_shard

CAT, DOG = (0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 0.55)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cats in both subsets, dogs in training alone, and an image without objects."""
    folder = tmp_path_factory.mktemp("dataset")
    _write(folder, "train", [["cat", "dog"], ["cat"], []])
    _write(folder, "val", [["cat"]])
    return folder


def _write(folder: Path, subset: str, images: Sequence[Sequence[str]]) -> None:
    boxes = {"cat": CAT, "dog": DOG}
    records = []
    for number, names in enumerate(images):
        lists = objects([boxes[name] for name in names], names) if names else {}
        records.append(encode({**image(f"{subset}{number}.jpg", 100, 200), **lists}))
    write_shard(folder, subset, *records)


def test_text(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(dataset)]) == 0
    lines = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert {
        "Images all train val",
        "images 4 3 1",
        "without objects 1 (25 %) 1 (33 %) 0 (0 %)",
        "cat 3 (75 %) 2 (67 %) 1 (100 %)",
        "dog 1 (25 %) 1 (33 %) 0 (0 %)",
        "small, below 32 x 32 pixels 1 (25 %) 1 (33 %) 0 (0 %)",
        "width : height from 2 : 1 on 4 (100 %) 3 (100 %) 1 (100 %)",
        "200 x 100 4 (100 %) 3 (100 %) 1 (100 %)",
        "val has no box of 1 class that train has: 'dog' (1 there)",
    } <= lines


def test_json_has_the_same_figures_from_two_processes(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["stats", str(dataset), "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)["datasets"]
    train = found["subsets"]["train"]
    assert train["classes"] == {"cat": 2, "dog": 1}
    details = train["details"]
    assert details["class_images"] == {"cat": 2, "dog": 1}
    # A quarter of the image, twice as wide as high; and 1/40, twenty times as wide.
    assert details["areas"][AREAS - 5] == 2 and sum(details["areas"]) == 3
    assert details["ratios"][RATIOS // 2 + 4] == 2 and details["ratios"][-1] == 1
    assert details["pixel_sizes"] == {"small": 1, "medium": 2, "large": 0}
    both = [
        check_sources([str(dataset)], Options(hints=True, jobs=jobs, part_bytes=1)).to_json()
        for jobs in (1, 2)
    ]
    assert both[0] | {"duration": 0} == both[1] | {"duration": 0}


def test_html_has_a_line_for_each_subset(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    page = tmp_path / "page.html"
    assert main(["stats", str(dataset), "--format", f"html={page}"]) == 0
    text = page.read_text()
    sections = ["What the data are like", "Hints, and what else was found", "What to do next"]
    places = [text.index(f">{one}</h2>") for one in sections]
    assert places == sorted(places) and ">4 images, 4 boxes</h1>" in text
    assert "Valid" not in text
    # Of what a subset lacks the 0 stands out in the table of classes alone.
    assert text.count('<td class="n missing">0 (0 %)</td>') == 1
    assert text.count('class="curve c0"') == text.count('class="curve c1"') == 3
    assert '<text class="end" x="-8" y="6">100 %</text>' in text


def test_bad_data_are_counted_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.tfrecord").write_bytes(b"not a TFRecord file, but some text")
    assert main(["stats", str(tmp_path)]) == 0
    assert "tfod check reports" in capsys.readouterr().out
    assert main(["stats", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_hints_nothing_of_it_is_counted(dataset: Path) -> None:
    report = check_sources([str(dataset)])
    assert report.statistics.details is None
    assert not [code for code in report.counts.by_code if code.startswith("DAT")]
