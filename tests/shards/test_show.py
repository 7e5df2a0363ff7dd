"""``tfod show``: drawings of records, selected records, and errors."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageColor
from tfod.checker.reporters.drawing import choose_class_colour
from tfod.checker.reporters.html import Card, render_cards
from tfod.detection import keys
from tfod.detection.images.mask_images import encode_mask_png
from tfod.shards.show import draw_records
from tfod.sources.resolver import resolve
from tfod.tfrecord.writer import write_records

from tests.commands import Run
from tests.files import write_files
from tests.image_kinds import plain_image
from tests.mutants.sound import (
    LABEL_MAP,
    features,
    flip,
    frame,
    jpeg,
    other,
    record,
    shard,
    with_boxes,
)
from tests.records import encode
from tests.zip_forge import real_zip

PLACEHOLDER = 'fill="#6e737b"'
CAT, DOG = choose_class_colour("cat"), choose_class_colour("dog")
PNG = {"encoded": plain_image((320, 240), kind="PNG"), "height": 240, "width": 320}
BOX = (0.5, 0.5, 0.75, 0.75)


def cards_of(payloads: Sequence[bytes], folder: Path, **choice: Any) -> Sequence[Card]:
    """The cards of a shard, with a label map of cat and dog."""
    write_records(folder, "a", payloads)
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    with resolve([str(folder / "a.tfrecord")]) as sources:
        return draw_records(sources, **choice).cards


def card_of(payload: bytes, folder: Path) -> Card:
    (card,) = cards_of([payload], folder)
    return card


# Drawings


def test_boxes_have_the_colours_of_their_classes(tmp_path: Path) -> None:
    boxes = [(0.25, 0.5, 0.5, 0.75), (0.625, 0.5, 0.875, 0.75)]
    page = card_of(with_boxes(boxes, ["cat", "dog"], [1, 2], **PNG), tmp_path).svg
    assert f'd="M250.0 375.0H500.0V562.5H250.0Z" stroke="{CAT}"' in page
    assert f'd="M625.0 375.0H875.0V562.5H625.0Z" stroke="{DOG}"' in page
    assert ">cat</text>" in page and ">dog</text>" in page
    # Boxes above the limit are counted.
    boxes = [(n / 500, 0.2, n / 500 + 0.1, 0.8) for n in range(202)]
    card = card_of(with_boxes([*boxes, (math.nan, 0.25, 0.5, 0.75)]), tmp_path)
    assert list(card.notes) == ["3 boxes not drawn"]


@pytest.mark.parametrize("numbers", [False, True])
def test_masks_are_translucent(numbers: bool, tmp_path: Path) -> None:
    mask = np.zeros((240, 320), bool)
    mask[:, 160:] = True
    value = mask.astype("f4").reshape(-1).tolist() if numbers else [encode_mask_png(mask)]
    page = card_of(with_boxes([BOX], **PNG, **{keys.MASK: value}), tmp_path).svg
    (uri,) = re.findall('data:image/png;base64,([^"]*)', page)
    layer = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri))))
    height, width = layer.shape[:2]
    assert width * 3 == height * 4
    assert not layer[:, : width // 2, 3].any()
    assert (layer[:, width // 2 :] == (*ImageColor.getrgb(CAT), 110)).all()


def test_visible_keypoints_are_filled_dots(tmp_path: Path) -> None:
    points = {
        keys.KEYPOINT_X: [0.125, 0.25, 0.375],
        keys.KEYPOINT_Y: [0.25, 0.25, 0.25],
        keys.KEYPOINT_VISIBILITY: [2, 1, 0],
    }
    page = card_of(with_boxes([BOX], **PNG, **points), tmp_path).svg
    circles = re.findall(r'<circle class="point" cx="([^"]*)" cy="187.5"[^>]* fill="([^"]*)"', page)
    assert circles == [("125.0", CAT), ("250.0", "#fff")]


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A file of some kilobytes with 100 million pixels, which Pillow opens with a warning."""
    return plain_image((10_000, 10_000), 1, "PNG", "1")


def test_a_decompression_bomb_is_not_decoded(bomb: bytes, tmp_path: Path) -> None:
    assert PLACEHOLDER in card_of(record("b.png", encoded=bomb), tmp_path).svg
    boxes = [(0.125, 0.5, 0.25, 0.75), BOX]
    for masks in ([bomb, b""], [b"no PNG", b""]):
        page = card_of(with_boxes(boxes, **{keys.MASK: masks}), tmp_path).svg
        assert CAT in page and "data:image/png" not in page


def test_classes_by_id_and_labels_of_the_whole_image(tmp_path: Path) -> None:
    labels = {"image/class/label": [2, 9], "image/class/confidence": [1.0, 0.0]}
    card = card_of(record(text=None, **labels), tmp_path)
    assert card.classes == [("dog", "", 1), ("not #9", "", 1), ("cat", CAT, 1), ("dog", DOG, 1)]


def test_texts_of_records_are_not_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    page = render_cards([card_of(with_boxes([BOX], [evil], [1], filename=evil), tmp_path)], evil)
    assert evil not in page and page.count("&lt;script&gt;") >= 4
    assert re.findall(r'(?:href|src)="(?!data:)[^"#]', page) == []  # the page is one file
    assert "script" not in re.sub(r"&lt;/?script", "", page).replace("runs no script", "")


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        ({}, range(24)),
        ({"first": 3}, range(3)),
        ({"records": frozenset({3, 7, 59})}, (3, 7, 59)),
        ({"class_name": "dog", "first": 2}, (3, 13)),
        ({"records": frozenset(range(9)), "class_name": "dog"}, (3,)),
    ],
)
def test_selected_records(tmp_path: Path, choice: Any, numbers: Sequence[int]) -> None:
    names = ("dog" if n % 10 == 3 else "cat" for n in range(60))
    cards = cards_of([with_boxes([BOX], [name], [1]) for name in names], tmp_path, **choice)
    assert [int(card.where.split()[1]) for card in cards] == list(numbers)


# The command


@pytest.fixture
def show(run: Run) -> Run:
    """Run ``tfod show …``."""
    return partial(run, "show")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A shard of three records, of which the second is damaged."""
    broken = flip(shard(record(), other(), record("c.jpg")), len(frame(record())) + 100)
    files = {"a.tfrecord": broken, "label_map.pbtxt": LABEL_MAP}
    return write_files(tmp_path / "in", files) / "a.tfrecord"


@pytest.mark.parametrize("ending", ["html", "HTML"])
def test_output(ending: str, show: Run, source: Path, tmp_path: Path) -> None:
    sheet = tmp_path / f"sheet.{ending}"
    printed = show(source, "-o", sheet)
    assert printed.succeeded() == "tfod: 1 damaged record skipped; run tfod check to list them\n"
    assert printed.out.startswith(f"{sheet}: 2 records, 4 boxes; label map: ")
    data = sheet.read_bytes()
    assert data.startswith(b"<!DOCTYPE html>")
    assert show(source, "-o", sheet).code == 0
    assert sheet.read_bytes() == data


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["-o", "x.png"], "the output is an HTML page; use the extension .html"),
        (["-o", "x.html", "--class", "cow"], "class 'cow'; existing classes: 'cat', 'd"),
        (["-o", "x.html", "--records", "9"], "--records 9: the last record is 2"),
        (["-o", "x.html", "--label-map", "nope"], "nope: no such label map"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], output: str, show: Run, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parents[1])
    assert output in show(source, *arguments).refused()
    assert os.listdir() == ["in"]


def test_records_of_several_shards_have_no_numbers(show: Run, source: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "x.html")
    assert show(source, *out, "--records", "0,2").code == 0
    (source.parent / "b.tfrecord").write_bytes(shard(other()))
    shards = [("a.tfrecord", shard(record())), ("b.tfrecord", shard(other(), record()))]
    (tmp_path / "two.zip").write_bytes(real_zip(shards))
    for several in (source.parent, tmp_path / "two.zip"):
        assert "only one shard" in show(several, *out, "--records", "0").refused()
    assert "x.html: 3 records, 6 boxes" in show(tmp_path / "two.zip", *out).out


def test_a_profile_names_the_keys(show: Run, tmp_path: Path) -> None:
    own = {key.replace("image/", "my/"): value for key, value in features().items()}
    write_records(tmp_path, "a", [encode(own)])
    box = [key.replace("image/", "my/") for key in keys.BOX]
    texts = {"encoded": "encoded", "filename": "filename", "class_text": "object/class/text"}
    texts = {role: f"my/{key}" for role, key in texts.items()}
    text, number = ({"kind": "VarLenFeature", "dtype": one} for one in ("string", "float32"))
    profile = {
        "features": dict.fromkeys(texts.values(), text) | dict.fromkeys(box, number),
        "field_mapping": {**texts, "box": box},
    }
    (tmp_path / "my.json").write_text(json.dumps(profile))
    assert show(tmp_path / "a.tfrecord", "-o", tmp_path / "x.html").code == 2
    how = ("--profile", tmp_path / "my.json")
    assert show(tmp_path / "a.tfrecord", "-o", tmp_path / "x.html", *how).code == 0
    page = (tmp_path / "x.html").read_text()
    assert choose_class_colour("cat") in page and PLACEHOLDER not in page


def test_real_shards(show: Run, corpus: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "x.html")
    for name in ("blood-cells", "datumaro-roboflow", "datumaro-tf-detection-api", "hyphal-tips"):
        assert show(corpus / name, *out, "--first", "4").code == 0
    refused = show(corpus / "titanic-table", *out).refused()
    assert "there are no images or boxes to show (features: gender, tick" in refused


def test_other_kinds_of_shards(tmp_path: Path) -> None:
    keras = {"image": jpeg(), "path": "a.jpg", "id": 1, "category_id": 1, "image_id": 1}
    keras |= {"area": 10.0, "bbox": [10.0, 5.0, 20.0, 10.0]}
    card = card_of(encode(keras), tmp_path)
    assert 'd="M250.0 125.0H750.0V375.0H250.0Z"' in card.svg
    assert card.classes == [("cat", CAT, 1)] and card.name == "a.jpg"
    label = {"height": 20, "width": 40, "depth": 3, "label": 2, "image_raw": jpeg()}
    card = card_of(encode(label), tmp_path)
    assert card.classes == [("dog", "", 1)]
    assert PLACEHOLDER not in card.svg
