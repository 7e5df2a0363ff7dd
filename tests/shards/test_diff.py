"""Edits of a dataset are reported by ``diff``, and nothing else is."""

from __future__ import annotations

import contextlib
import gzip
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.encoder import encode_detection
from tfod.detection.images.mask_images import encode_gray_png, encode_mask_png
from tfod.errors import TfodError
from tfod.formats.options import Options
from tfod.formats.table import convert
from tfod.shards.diff import Diff
from tfod.tfrecord.writer import write_records

from tests.conftest import CORPUS, examples
from tests.differences import counts, diff
from tests.formats.test_round_trips import FORMATS, masked
from tests.records import encode

_HEIGHT, _WIDTH = 200, 400
_CELL = 100  # pixels per side of a square with one box, so that boxes are not mistaken
_NAMES = ("cat", "dog", "größe")
_LABEL_MAP = "".join(f"item {{ id: {n} name: '{name}' }}\n" for n, name in enumerate(_NAMES, 1))
Object = tuple[tuple[float, float, float, float], str]


def record(name: str | None, *objects: Object, number: int = 0, **fields: Any) -> Detection:
    """An image; its boxes are given in pixels."""
    values: dict[str, Any] = {
        "filename": name,
        "height": _HEIGHT,
        "width": _WIDTH,
        "format": "png",
        "encoded": encode_gray_png(np.full((_HEIGHT, _WIDTH), number % 251, np.uint8)),
        "boxes": np.array([box for box, _ in objects], "<f4").reshape(-1, 4)
        / np.array([_WIDTH, _HEIGHT] * 2, "<f4"),
        "class_text": [text for _, text in objects],
        "class_label": [1 + _NAMES.index(text) if text in _NAMES else 9 for _, text in objects],
    }
    return Detection(**{**values, **fields})


def write(folder: Path, label_map: str = _LABEL_MAP, /, **subsets: Sequence[Detection]) -> str:
    folder.mkdir(parents=True)
    (folder / "label_map.pbtxt").write_text(label_map)
    for subset, records in subsets.items():
        if records:
            write_records(folder, subset, map(encode_detection, records))
        else:  # a file of 0 bytes is not a shard
            (folder / f"{subset}.tfrecord").write_bytes(gzip.compress(b""))
    return str(folder)


def changes_of(found: Diff) -> Mapping[str, int]:
    """The counts of changes, and of changed values by name."""
    return {**counts(found), **found.values}


def mirrored(changes: Mapping[str, int]) -> Mapping[str, int]:
    """The changes from B to A."""
    opposite = {"added": "removed", "removed": "added"}
    return {
        re.sub("added|removed", lambda word: opposite[word[0]], name): count
        for name, count in changes.items()
    }


CAT: Object = ((10, 20, 60, 80), "cat")
DOG: Object = ((110, 20, 160, 80), "dog")
NAN, INF = float("nan"), float("inf")
BASE = record("a.png", CAT, DOG)
MANY = [((n % 300, n // 300, n % 300 + 50, n // 300 + 50), "cat") for n in range(1100)]
UNNAMED = [record(None, CAT, source_id="7"), record(None, DOG, source_id="8", number=1)]
RENUMBERED = ["class_renumbered 'cat' has id 1 → 2", "class_renumbered 'dog' has id 2 → 1"]
BARE = [record(None, one, encoded=None) for one in (CAT, DOG)]
EDITS = [
    ([], {"record_removed": 1}),
    ([BASE, record("c.png")], {"record_added": 1}),
    ([record("a.png", DOG, CAT)], {}),
    ([record("a.png", CAT, (DOG[0], "cat"))], {"box_relabelled": 1}),
    ([record("a.png", CAT)], {"box_removed": 1}),
    ([record("a.png", CAT, DOG, DOG)], {"box_added": 1}),
    ([record("a.png", CAT, ((115, 20, 165, 80), "dog"))], {"box_moved": 1}),
    ([record("a.png", CAT, ((115, 20, 165, 80), "cat"))], {"box_relabelled": 1}),
    ([record("a.png", CAT, ((210, 20, 260, 80), "dog"))], {"box_added": 1, "box_removed": 1}),
    ([record("a.png", CAT, ((111, 20, 160, 80), "dog"))], {}),
    ([record("x/../a.png", CAT, DOG)], {"record_renamed": 1}),
    ([record(None, CAT, DOG)], {"record_renamed": 1}),
    ([record("a.png", CAT, DOG, number=1)], {"image_changed": 1}),
    ([replace(BASE, encoded=None)], {"image_removed": 1}),
    ([replace(BASE, encoded=b"\x89PNG broken")], {"image_changed": 1}),
    ([replace(BASE, height=100)], {"size_changed": 1}),
    ([replace(BASE, captions=["c"])], {"value_changed": 1, "captions": 1}),
    ([replace(BASE, attributes={"difficult": [0, 1]})], {"value_changed": 1, "difficult": 1}),
    ([replace(BASE, attributes={"difficult": [0, 0]})], {}),
    ([replace(BASE, attributes={"color": ["red", None]})], {"value_changed": 1, "color": 1}),
    ([replace(BASE, attributes={"area": [7.0, 8.0]}, source_id="a.png")], {}),
]
PAIRS = [
    ([replace(BASE, source_id="1")], [replace(BASE, source_id="2")],
     {"value_changed": 1, "source id": 1}),
    # Records are matched by name, by source id, or else in their order.
    ([record("a.png", CAT), record("a.png", DOG)], [record("a.png", CAT), record("a.png")],
     {"box_removed": 1}),
    (UNNAMED, UNNAMED[::-1], {}),
    (BARE, [BARE[0], record(None, encoded=None)], {"box_removed": 1}),
    ([record("a.png", ((NAN, 1, INF, 2), "cat"), ((60, 20, 10, 80), "cat"))],
     [record("a.png", CAT)], {"box_removed": 2, "box_added": 1}),
    # Thousands of boxes are compared in their order.
    ([record("a.png", *MANY)], [record("a.png", *MANY[:500], DOG, *MANY[501:])],
     {"box_removed": 1, "box_added": 1}),
]  # fmt: skip


@pytest.fixture
def before(tmp_path: Path) -> str:
    return write(tmp_path / "a", train=[BASE], val=[record("b.png", CAT)])


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"), [*(([BASE], *edit) for edit in EDITS), *PAIRS]
)
def test_each_change(
    tmp_path: Path,
    ours: Sequence[Detection],
    theirs: Sequence[Detection],
    expected: Mapping[str, int],
) -> None:
    a = write(tmp_path / "a", train=ours, val=[record("b.png", CAT)])
    b = write(tmp_path / "b", train=theirs, val=[record("b.png", CAT)])
    found = diff(a, b)
    assert changes_of(found) == expected
    assert found.is_equal == (not expected)
    assert Counter(one.change for one in found.listed) == counts(found)
    assert all(one.subset == "train" for one in found.listed)
    assert changes_of(diff(b, a)) == mirrored(expected)
    assert diff(a, a).is_equal


def test_details_of_a_move(tmp_path: Path) -> None:
    records = [record("a.png", CAT), record("a.png", CAT, ((135, 20, 185, 80), "dog"))]
    a = write(tmp_path / "b", train=[records[0], BASE])
    (move,) = diff(a, write(tmp_path / "c", train=records)).listed
    assert move.records == (1, 1)
    assert move.before == {"number": 1, "name": "dog", "corners": [110, 20, 160, 80]}
    assert move.iou == pytest.approx(1 / 3, abs=1e-4)
    assert move.after == {"number": 1, "name": "dog", "corners": [135, 20, 185, 80]}


def test_a_side_without_images_is_compared_without_them(tmp_path: Path, before: str) -> None:
    bare = [replace(BASE, encoded=None)]
    after = write(tmp_path / "b", train=bare, val=[record("b.png", CAT, encoded=None)])
    found = diff(before, after)
    assert found.is_equal
    assert found.notes == [f"{after} has no images, so images are not compared"]
    changed = [record("a.png", CAT, DOG, number=1)]
    other = write(tmp_path / "c", train=changed, val=[record("b.png", CAT)])
    assert diff(before, other, without=["images"]).is_equal
    a = write(tmp_path / "d", train=UNNAMED)
    b = write(tmp_path / "e", train=[replace(UNNAMED[0], filename="x.png", encoded=b"")])
    assert counts(diff(a, b, without=["images"])) == {"record_removed": 1, "record_renamed": 1}


def test_subsets_are_compared_with_same_subsets(tmp_path: Path, before: str) -> None:
    after = write(tmp_path / "b", train=[BASE, record("b.png", CAT)], val=[])
    found = diff(before, after)
    assert found.is_equal and counts(found) == {"record_moved": 1}
    assert (found.listed[0].change, found.listed[0].text) == ("record_moved", "val → train")
    assert not diff(before, after, same_subsets=True).is_equal
    # The only subset of each side has the same name.
    write(tmp_path / "s", old=[record("a.png", CAT)], new=[record("a.png", CAT)])
    found = diff(str(tmp_path / "s/old.tfrecord"), str(tmp_path / "s/new.tfrecord"))
    assert found.is_equal and not found.counts


@pytest.mark.parametrize("family", ["BOX", "EXA", "TFR"])
def test_anything_is_equal_to_itself_or_refused(mutants: Path, family: str) -> None:
    shards = sorted((mutants / family).glob("*-fail-a.tfrecord"))
    assert len(shards) > 5
    for shard in shards:
        with contextlib.suppress(TfodError):
            assert not counts(diff(str(shard), str(shard))), shard


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("cat dog größe", []),
        ("kitty dog größe", ["class_renamed 'cat' → 'kitty', id 1"]),
        ("dog cat größe", RENUMBERED),
        ("cat dog größe cow", ["class_added 'cow'"]),
        ("cat dog", ["class_removed 'größe'"]),
    ],
)
def test_label_maps(tmp_path: Path, names: str, expected: Sequence[str]) -> None:
    """A renamed class is reported once, and not for each of its boxes."""
    words = names.split()
    label_map = "".join(f"item {{ id: {n} name: '{name}' }}\n" for n, name in enumerate(words, 1))
    name = "kitty" if "kitty" in words else "cat"
    a = write(tmp_path / "a", train=[record("a.png", CAT)])
    b = write(tmp_path / "b", label_map, train=[record("a.png", (CAT[0], name), class_label=None)])
    assert [f"{one.change} {one.text}" for one in diff(a, b).listed] == expected


def test_values_of_objects_go_with_their_boxes(tmp_path: Path) -> None:
    """The order of the objects does not matter, but each of their values does."""
    ours = masked()
    assert ours.masks is not None and ours.keypoints is not None
    points = ours.keypoints
    turned = replace(
        ours,
        boxes=ours.boxes[::-1].copy(),
        masks=list(ours.masks)[::-1],
        keypoints=Keypoints(points.xy[::-1], points.visibility[::-1], ("a", "b")),
        attributes={name: list(values)[::-1] for name, values in ours.attributes.items()},
    )
    other = replace(
        ours,
        masks=[ours.masks[0], PngMask(encode_mask_png(np.ones((60, 90), bool)))],
        keypoints=replace(points, xy=points.xy + np.float32(0.1)),
        attributes={**ours.attributes, "color": ["red", "blue"], "difficult": [0, 0]},
        captions=["Another."],
    )
    sides = zip("abc", (ours, turned, other), strict=True)
    a, b, c = (write(tmp_path / name, "", train=[one]) for name, one in sides)
    assert diff(a, b).is_equal
    expected = {"masks": 1, "keypoints": 2, "color": 1, "difficult": 1, "captions": 1}
    assert dict(diff(a, c).values) == expected
    without = ("masks", "keypoints", "color", "captions")
    assert dict(diff(a, c, without=without).values) == {"difficult": 1}


def test_unknown_keys_are_compared(tmp_path: Path) -> None:
    plain = {"image/filename": "a.png", "image/height": 9, "image/width": 9, "text": "x"}
    for name, value in (("a", 1), ("b", 2)):
        write_records(tmp_path / name, "train", [encode({**plain, "ours": value})])
    assert diff(tmp_path / "a", tmp_path / "a").is_equal
    assert dict(diff(tmp_path / "a", tmp_path / "b").values) == {"ours": 1}


def test_counts_and_listed_changes(tmp_path: Path, before: str) -> None:
    records = [record(f"{n}.png", number=1 + n) for n in range(5)]
    after = write(tmp_path / "b", train=records, val=[record("b.png")])
    empty = write(tmp_path / "c", train=[], val=[])
    assert diff(empty, empty).is_equal
    assert counts(diff(before, empty))["record_removed"] == 2
    found = diff(before, after, max_differences=2)
    assert counts(found) == {"record_added": 5, "record_removed": 1, "box_removed": 1}
    listed = Counter(one.change for one in found.listed)
    assert listed == {"record_added": 2, "record_removed": 1, "box_removed": 1}


# Shards and other formats

_LOST: Mapping[str, set[str]] = {
    "coco": {"captions"},
    "voc": {"masks", "keypoints", "captions", "is_crowd", "color"},
    "yolo": {"keypoints", "captions", "is_crowd", "color", "difficult"},
    "csv": {"masks", "keypoints", "captions", "is_crowd", "color", "difficult"},
    "cvat_xml": {"keypoints", "captions"},
}


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_lacks_what_convert_has_counted(tmp_path: Path, name: str) -> None:
    a, b = write(tmp_path / "a", "", train=[masked()]), str(tmp_path / "b")
    convert(a, b, Options(masks=name == "yolo"), target_format=name)
    for found in (diff(a, b), diff(b, a)):
        assert set(found.values) == _LOST[name]
        assert counts(found).keys() <= {"value_changed"}


_ODD: Sequence[Object] = (
    ((210, 20, 210, 80), "cat"),
    ((220, 30, 220, 30), "dog"),
    ((-40, -10, 60, 80), "cat"),
    ((350, 150, 480, 230), "dog"),
    ((500, 20, 560, 80), "cat"),
)
"""Boxes without an area, across the edges, and outside the image."""


@pytest.mark.parametrize("name", FORMATS)
def test_odd_boxes_are_compared_as_they_are(tmp_path: Path, name: str) -> None:
    drawn = np.zeros((_HEIGHT, _WIDTH), bool)
    drawn[20:80, 10:60], drawn[30:40, 20:30] = True, False
    masks = [PngMask(encode_mask_png(drawn)), *[None] * len(_ODD)]
    records = [record("a.png", CAT, *_ODD), record("b.png", CAT, *_ODD, masks=masks, number=1)]
    # One box of the corpus has no area.
    for source in (str(CORPUS / "blood-cells"), write(tmp_path / "a", train=records)):
        other = str(tmp_path / f"from_{Path(source).name}")
        convert(source, other, Options(), target_format=name)
        for sides in ((source, other), (other, source)):
            found = diff(*sides, without=["masks"])
            assert found.is_equal and "left out" not in str(found.notes), found.listed
    b = write(tmp_path / "b", train=[record(one, CAT, *_ODD[1:]) for one in ("a.png", "b.png")])
    assert counts(diff(b, other, without=["masks", "images"]))["box_added"] == 2


COCO = "annotations/instances_train.json"


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        *(("voc", "Annotations/a.xml", "<xmax>60<", f"<xmax>{x}<") for x in ("1", "nan")),
        *(("yolo", "labels/train/a.txt", " 0.125", f" {width}") for width in ("-0.125", "inf")),
        *(("coco", COCO, "[10,20,50", f"[{box}") for box in ("10,20,-50", "1e300,20,50")),
    ],
)
def test_inverted_and_infinite_boxes_are_not_compared(
    tmp_path: Path, name: str, file: str, old: str, new: str
) -> None:
    a = write(tmp_path / "a", train=[record("a.png", CAT)])
    path = tmp_path / name / file
    convert(a, str(tmp_path / name), Options(), target_format=name)
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(TfodError, match=r"^not compared: boxes w.*: 1 \(.*correct them$"):
        diff(a, str(tmp_path / name))


def test_whole_pixels_are_equal(tmp_path: Path) -> None:
    """Pascal VOC has whole pixels, which programs round in different ways."""
    box = (10.4, 20.5, 60.6, 80.9)
    a = write(tmp_path / "a", train=[record("a.png", (box, "cat"))])
    for number, how in enumerate((np.round, np.floor, np.ceil)):
        whole = tuple(how(np.array(box)).tolist())
        b = write(tmp_path / f"b{number}", train=[record("a.png", (whole, "cat"))])
        assert diff(a, b).is_equal
        assert counts(diff(a, b, tolerance=0)) == {"box_moved": 1}
    assert diff(a, a, tolerance=0).is_equal


# Any edits


CELLS = st.lists(st.integers(0, 7), max_size=6, unique=True)
START, LENGTH = st.integers(0, 40), st.integers(20, 50)


@st.composite
def datasets(draw: st.DrawFn) -> list[list[Object]]:
    """Images with at most one box in each cell."""
    images = []
    for _ in range(draw(st.integers(1, 5))):
        objects: list[Object] = []
        for cell in draw(CELLS):
            left = float(_CELL * (cell % 4) + draw(START))
            top = float(_CELL * (cell // 4) + draw(START))
            box = (left, top, left + draw(LENGTH), top + draw(LENGTH))
            objects.append((box, draw(st.sampled_from(_NAMES))))
        images.append(objects)
    return images


_EDITS = st.sampled_from(("keep", "keep", "box_removed", "box_moved", "box_relabelled"))
_RECORD_EDITS = st.sampled_from(("keep", "keep", "record_removed", "record_added"))


@examples(30)
@given(datasets(), st.data())
def test_any_edits(images: list[list[Object]], data: st.DataObject) -> None:
    expected = Counter[str]()
    ours, theirs = [], []
    for number, objects in enumerate(images):
        edit = data.draw(_RECORD_EDITS)
        expected[edit] += 1
        if edit != "record_added":
            ours.append(record(f"{number}.png", *objects, number=number))
        if edit == "record_removed":
            continue
        changed = [] if edit == "keep" else objects
        for (left, top, right, bottom), name in objects if edit == "keep" else ():
            how = data.draw(_EDITS)
            expected[how] += 1
            if how == "box_moved":
                left, right = left + 5, right + 5
            if how == "box_relabelled":
                name = _NAMES[_NAMES.index(name) - 1]
            if how != "box_removed":
                changed.append(((left, top, right, bottom), name))
        changed = data.draw(st.permutations(changed))
        theirs.append(record(f"{number}.png", *changed, number=number))
    del expected["keep"]
    with tempfile.TemporaryDirectory() as folder:
        a = write(Path(folder, "a"), train=ours)
        b = write(Path(folder, "b"), train=data.draw(st.permutations(theirs)))
        assert counts(diff(a, b)) == expected
        assert counts(diff(b, a)) == mirrored(expected)
        assert not diff(a, a).counts and not diff(b, b).counts
