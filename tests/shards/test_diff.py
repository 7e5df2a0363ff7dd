"""What differs between two datasets: edits that are known are reported, and no others."""

from __future__ import annotations

import contextlib
import gzip
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
from tfod.tfrecord.writer import write_records

from tests.conftest import examples
from tests.differences import counts, diff
from tests.formats.test_round_trips import FORMATS, masked
from tests.records import encode

_HEIGHT, _WIDTH = 200, 400
_CELL = 100  # pixels a side of what holds one box, so that none is taken for another
_NAMES = ("cat", "dog", "größe")
_LABEL_MAP = "".join(f"item {{ id: {n} name: '{name}' }}\n" for n, name in enumerate(_NAMES, 1))
Object = tuple[tuple[float, float, float, float], str]


def record(name: str | None, *found: Object, number: int = 0, **fields: Any) -> Detection:
    """An image; its boxes are given in pixels."""
    given: dict[str, Any] = {
        "filename": name,
        "height": _HEIGHT,
        "width": _WIDTH,
        "format": "png",
        "encoded": encode_gray_png(np.full((_HEIGHT, _WIDTH), number % 251, np.uint8)),
        "boxes": np.array([box for box, _ in found], "<f4").reshape(-1, 4)
        / np.array([_WIDTH, _HEIGHT] * 2, "<f4"),
        "class_text": [text for _, text in found],
        "class_label": [1 + _NAMES.index(text) if text in _NAMES else 9 for _, text in found],
    }
    return Detection(**{**given, **fields})


def write(folder: Path, label_map: str = _LABEL_MAP, /, **subsets: Sequence[Detection]) -> str:
    folder.mkdir(parents=True)
    (folder / "label_map.pbtxt").write_text(label_map)
    for subset, records in subsets.items():
        if records:
            write_records(folder, subset, map(encode_detection, records))
        else:  # a file of 0 bytes is no shard
            (folder / f"{subset}.tfrecord").write_bytes(gzip.compress(b""))
    return str(folder)


def mirrored(found: Mapping[str, int]) -> Mapping[str, int]:
    """The changes from B to A."""
    opposite = {"added": "removed", "removed": "added"}
    parts = {name: name.split("_") for name in found}
    return {f"{noun}_{opposite.get(how, how)}": found[name] for name, (noun, how) in parts.items()}


CAT: Object = ((10, 20, 60, 80), "cat")
DOG: Object = ((110, 20, 160, 80), "dog")


@pytest.fixture
def before(tmp_path: Path) -> str:
    return write(tmp_path / "a", train=[record("a.png", CAT, DOG)], val=[record("b.png", CAT)])


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], {"record_removed": 1}),
        ([record("a.png", CAT, DOG), record("c.png")], {"record_added": 1}),
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
        ([record("a.png", CAT, DOG, encoded=None)], {"image_removed": 1}),
        ([record("a.png", CAT, DOG, encoded=b"\x89PNG broken")], {"image_changed": 1}),
        ([record("a.png", CAT, DOG, height=100)], {"size_changed": 1}),
        ([record("a.png", CAT, DOG, captions=["c"])], {"value_changed": 1}),
        ([record("a.png", CAT, DOG, attributes={"difficult": [0, 1]})], {"value_changed": 1}),
        ([record("a.png", CAT, DOG, attributes={"difficult": [0, 0]})], {}),
        ([record("a.png", CAT, DOG, attributes={"color": ["red", None]})], {"value_changed": 1}),
        ([record("a.png", CAT, DOG, attributes={"area": [7.0, 8.0]})], {}),
    ],
    ids=lambda one: "-".join(one) or "equal" if isinstance(one, dict) else None,
)
def test_each_change(
    tmp_path: Path, before: str, records: Sequence[Detection], expected: Mapping[str, int]
) -> None:
    after = write(tmp_path / "b", train=records, val=[record("b.png", CAT)])
    found = diff(before, after)
    assert counts(found) == expected
    assert found.is_equal == (not expected)
    assert Counter(one.change for one in found.listed) == Counter(expected)
    assert all(one.subset == "train" for one in found.listed)
    assert counts(diff(after, before)) == mirrored(expected)


def test_a_move_says_from_where_to_where_and_how_far(tmp_path: Path, before: str) -> None:
    moved = record("a.png", CAT, ((135, 20, 185, 80), "dog"))
    after = write(tmp_path / "b", train=[moved], val=[record("b.png", CAT)])
    (one,) = diff(before, after).listed
    assert one.before == {"number": 1, "name": "dog", "corners": [110, 20, 160, 80]}
    assert one.iou == pytest.approx(1 / 3, abs=1e-4)
    assert one.after == {"number": 1, "name": "dog", "corners": [135, 20, 185, 80]}


def test_a_side_without_images_is_compared_without_them(tmp_path: Path, before: str) -> None:
    bare = [record("a.png", CAT, DOG, encoded=None)]
    after = write(tmp_path / "b", train=bare, val=[record("b.png", CAT, encoded=None)])
    found = diff(before, after)
    assert found.is_equal
    assert found.notes == [f"{after} has no images, so images are not compared"]
    changed = [record("a.png", CAT, DOG, number=1)]
    other = write(tmp_path / "c", train=changed, val=[record("b.png", CAT)])
    assert diff(before, other, without=["images"]).is_equal


def test_another_subset_is_a_difference_where_that_is_asked_for(
    tmp_path: Path, before: str
) -> None:
    after = write(tmp_path / "b", train=[record("a.png", CAT, DOG), record("b.png", CAT)], val=[])
    found = diff(before, after)
    assert found.is_equal and counts(found) == {"record_moved": 1}
    assert (found.listed[0].change, found.listed[0].text) == ("record_moved", "val → train")
    assert not diff(before, after, same_subsets=True).is_equal


def test_the_only_subset_of_both_is_the_same(tmp_path: Path) -> None:
    write(tmp_path / "s", old=[record("a.png", CAT)], new=[record("a.png", CAT)])
    found = diff(str(tmp_path / "s/old.tfrecord"), str(tmp_path / "s/new.tfrecord"))
    assert found.is_equal and not found.counts


def test_records_of_one_name_are_matched_in_their_order(tmp_path: Path) -> None:
    a = write(tmp_path / "a", train=[record("a.png", CAT), record("a.png", DOG)])
    assert diff(a, a).is_equal
    b = write(tmp_path / "b", train=[record("a.png", CAT), record("a.png")])
    (one,) = diff(a, b).listed
    assert one.change == "box_removed" and one.records == (1, 1)


def test_records_without_a_name_are_matched_by_source_id(tmp_path: Path) -> None:
    names = [record(None, CAT, source_id="7"), record(None, DOG, source_id="8", number=1)]
    a = write(tmp_path / "a", train=names)
    b = write(tmp_path / "b", train=names[::-1])
    assert diff(a, b).is_equal
    c = write(tmp_path / "c", train=[replace(names[0], filename="x.png", encoded=b"")])
    assert counts(diff(a, c, without=["images"])) == {"record_removed": 1, "record_renamed": 1}


def test_records_without_anything_are_matched_in_their_order(tmp_path: Path) -> None:
    records = [record(None, one, encoded=None) for one in (CAT, DOG)]
    a = write(tmp_path / "a", train=records)
    assert diff(a, a).is_equal
    b = write(tmp_path / "b", train=[records[0], record(None, encoded=None)])
    assert counts(diff(a, b)) == {"box_removed": 1}


@pytest.mark.parametrize("family", ["BOX", "EXA", "TFR"])
def test_anything_is_equal_to_itself_or_refused(mutants: Path, family: str) -> None:
    shards = sorted((mutants / family).glob("*-fail-a.tfrecord"))
    assert len(shards) > 5
    for shard in shards:
        with contextlib.suppress(TfodError):
            assert not counts(diff(str(shard), str(shard))), shard


def test_source_ids(tmp_path: Path, before: str) -> None:
    a = write(tmp_path / "x", train=[record("a.png", source_id="1")])
    b = write(tmp_path / "b", train=[record("a.png", source_id="2")])
    assert dict(diff(a, b).values) == {"source id": 1}
    c = write(tmp_path / "c", train=[record("a.png", source_id="a.png")])
    assert diff(a, c).is_equal


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("cat dog größe", []),
        ("kitty dog größe", ["class_renamed 'cat' → 'kitty', id 1"]),
        (
            "dog cat größe",
            ["class_renumbered 'cat' has id 1 → 2", "class_renumbered 'dog' has id 2 → 1"],
        ),
        ("cat dog größe cow", ["class_added 'cow'"]),
        ("cat dog", ["class_removed 'größe'"]),
    ],
)
def test_label_maps(tmp_path: Path, names: str, expected: Sequence[str]) -> None:
    """A class that is called otherwise is no other class for each of its boxes."""
    first, *_ = words = names.split()
    label_map = "".join(f"item {{ id: {n} name: '{name}' }}\n" for n, name in enumerate(words, 1))
    name = "kitty" if first == "kitty" else "cat"
    a = write(tmp_path / "a", train=[record("a.png", CAT)])
    b = write(tmp_path / "b", label_map, train=[record("a.png", (CAT[0], name), class_label=None)])
    assert [f"{one.change} {one.text}" for one in diff(a, b).listed] == expected


def test_values_of_objects_go_with_their_boxes(tmp_path: Path) -> None:
    """Another order of the objects is no difference, another value of one of them is."""
    ours = masked()
    turned = replace(
        ours,
        boxes=ours.boxes[::-1].copy(),
        masks=list(ours.masks or ())[::-1],
        keypoints=Keypoints(ours.keypoints.xy[::-1], ours.keypoints.visibility[::-1], ("a", "b"))
        if ours.keypoints
        else None,
        attributes={name: list(values)[::-1] for name, values in ours.attributes.items()},
    )
    a, b = (write(tmp_path / name, "", train=[one]) for name, one in (("a", ours), ("b", turned)))
    assert diff(a, b).is_equal
    assert ours.masks is not None and ours.keypoints is not None
    other = replace(
        ours,
        masks=[ours.masks[0], PngMask(encode_mask_png(np.ones((60, 90), bool)))],
        keypoints=replace(ours.keypoints, xy=ours.keypoints.xy + np.float32(0.1)),
        attributes={**ours.attributes, "color": ["red", "blue"], "difficult": [0, 0]},
        captions=["Another."],
    )
    c = write(tmp_path / "c", "", train=[other])
    expected = {"masks": 1, "keypoints": 2, "color": 1, "difficult": 1, "captions": 1}
    assert dict(diff(a, c).values) == expected
    without = ("masks", "keypoints", "color", "captions")
    assert dict(diff(a, c, without=without).values) == {"difficult": 1}


def test_keys_that_mean_nothing_are_compared(tmp_path: Path) -> None:
    folders = []
    for name, value in (("a", 1), ("b", 2)):
        plain = {"image/filename": "a.png", "image/height": 9, "image/width": 9, "ours": value}
        folders.append(tmp_path / name)
        write_records(folders[-1], "train", [encode({**plain, "text": "x"})])
    a, b = map(str, folders)
    assert diff(a, a).is_equal
    assert dict(diff(a, b).values) == {"ours": 1}


def test_numbers_that_are_none(tmp_path: Path) -> None:
    nan, inverted = float("nan"), ((60.0, 20.0, 10.0, 80.0), "cat")
    odd = record("a.png", ((nan, 1, float("inf"), 2), "cat"), inverted)
    a = write(tmp_path / "a", train=[odd])
    assert diff(a, a).is_equal
    b = write(tmp_path / "b", train=[record("a.png", CAT)])
    assert counts(diff(a, b)) == {"box_removed": 2, "box_added": 1}


def test_boxes_by_the_thousand_are_compared_in_their_order(tmp_path: Path) -> None:
    boxes: list[Object] = [
        ((n % 300, n // 300, n % 300 + 50, n // 300 + 50), "cat") for n in range(1100)
    ]
    a = write(tmp_path / "a", train=[record("a.png", *boxes)])
    b = write(tmp_path / "b", train=[record("a.png", *boxes[:500], DOG, *boxes[501:])])
    assert diff(a, a).is_equal
    assert counts(diff(a, b)) == {"box_removed": 1, "box_added": 1}


def test_empty_sides(tmp_path: Path, before: str) -> None:
    empty = write(tmp_path / "b", train=[], val=[])
    assert diff(empty, empty).is_equal
    assert counts(diff(before, empty))["record_removed"] == 2
    assert counts(diff(empty, before))["record_added"] == 2


def test_so_many_of_each_change_are_listed(tmp_path: Path, before: str) -> None:
    records = [record(f"{n}.png", number=1 + n) for n in range(5)]
    after = write(tmp_path / "b", train=records, val=[record("b.png")])
    found = diff(before, after, max_differences=2)
    assert counts(found) == {"record_added": 5, "record_removed": 1, "box_removed": 1}
    listed = Counter(one.change for one in found.listed)
    assert listed == {"record_added": 2, "record_removed": 1, "box_removed": 1}


# Shards against what they were made from, and what they were made into

_LOST: Mapping[str, set[str]] = {
    "coco": {"captions"},
    "voc": {"masks", "keypoints", "captions", "is_crowd", "color"},
    "yolo": {"keypoints", "captions", "is_crowd", "color", "difficult"},
    "csv": {"masks", "keypoints", "captions", "is_crowd", "color", "difficult"},
    "cvat_xml": {"keypoints", "captions"},
}


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_lacks_what_convert_has_counted(tmp_path: Path, name: str) -> None:
    a = write(tmp_path / "a", "", train=[masked()])
    convert(a, str(tmp_path / "b"), Options(masks=name == "yolo"), target_format=name)
    for one, other in ((a, str(tmp_path / "b")), (str(tmp_path / "b"), a)):
        found = diff(one, other)
        assert set(found.values) == _LOST[name]
        assert counts(found).keys() <= {"value_changed"}


_ODD: Sequence[Object] = (
    ((210, 20, 210, 80), "cat"),
    ((220, 30, 220, 30), "dog"),
    ((-40, -10, 60, 80), "cat"),
    ((350, 150, 480, 230), "dog"),
    ((500, 20, 560, 80), "cat"),
)
"""Flat ones, some that pass the edges, and one that is wholly outside."""


@pytest.mark.parametrize("name", FORMATS)
def test_odd_boxes_are_compared_as_they_are(tmp_path: Path, name: str) -> None:
    corpus = str(Path(__file__).parents[1] / "corpus" / "blood-cells")  # one box is flat
    drawn = np.zeros((_HEIGHT, _WIDTH), bool)
    drawn[20:80, 10:60], drawn[30:40, 20:30] = True, False
    masks = [PngMask(encode_mask_png(drawn)), *[None] * len(_ODD)]
    records = [record("a.png", CAT, *_ODD), record("b.png", CAT, *_ODD, masks=masks, number=1)]
    for source in (corpus, write(tmp_path / "a", train=records)):
        other = str(tmp_path / f"from_{Path(source).name}")
        convert(source, other, Options(), target_format=name)
        for sides in ((source, other), (other, source)):
            found = diff(*sides, without=["masks"])
            assert found.is_equal and "left out" not in str(found.notes), found.listed
    b = write(tmp_path / "b", train=[record(one, CAT, *_ODD[1:]) for one in ("a.png", "b.png")])
    assert counts(diff(b, other, without=["masks", "images"]))["box_added"] == 2


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        ("voc", "Annotations/a.xml", "<xmax>60<", "<xmax>1<"),
        ("voc", "Annotations/a.xml", "<xmax>60<", "<xmax>nan<"),
        ("yolo", "labels/train/a.txt", " 0.125", " -0.125"),
        ("yolo", "labels/train/a.txt", " 0.125", " inf"),
        ("coco", "annotations/instances_train.json", "[10,20,50", "[10,20,-50"),
        ("coco", "annotations/instances_train.json", "[10,20,50", "[1e300,20,50"),
    ],
)
def test_boxes_that_are_none_are_not_compared(
    tmp_path: Path, name: str, file: str, old: str, new: str
) -> None:
    """Inverted or not finite, which no export of shards is."""
    a = write(tmp_path / "a", train=[record("a.png", CAT)])
    other = tmp_path / name
    convert(a, str(other), Options(), target_format=name)
    text = (other / file).read_text()
    assert text.count(old) == 1
    (other / file).write_text(text.replace(old, new))
    with pytest.raises(TfodError, match=r"^not compared: boxes w.*: 1 \(.*correct them$"):
        diff(a, str(other))


def test_whole_pixels_are_no_difference(tmp_path: Path) -> None:
    """As in Pascal VOC, whatever was rounded how."""
    exact = record("a.png", ((10.4, 20.5, 60.6, 80.9), "cat"))
    a = write(tmp_path / "a", train=[exact])
    for number, how in enumerate((np.round, np.floor, np.ceil)):
        whole = tuple(how(np.array([10.4, 20.5, 60.6, 80.9])).tolist())
        b = write(tmp_path / f"b{number}", train=[record("a.png", (whole, "cat"))])
        assert diff(a, b).is_equal
        assert counts(diff(a, b, tolerance=0)) == {"box_moved": 1}
    assert diff(a, a, tolerance=0).is_equal


# Any edits


@st.composite
def datasets(draw: st.DrawFn) -> list[list[Object]]:
    """Images with at most one box in each cell."""
    box = st.tuples(
        st.integers(0, 40), st.integers(0, 40), st.integers(20, 50), st.integers(20, 50)
    )
    images = []
    for _ in range(draw(st.integers(1, 5))):
        cells = draw(st.lists(st.integers(0, 7), max_size=6, unique=True))
        found = []
        for cell in cells:
            x, y, width, height = draw(box)
            left, top = float(_CELL * (cell % 4) + x), float(_CELL * (cell // 4) + y)
            name = draw(st.sampled_from(_NAMES))
            found.append(((left, top, left + width, top + height), name))
        images.append(found)
    return images


_EDITS = ("keep", "keep", "box_removed", "box_moved", "box_relabelled")


@examples(30)
@given(datasets(), st.data())
def test_any_edits(images: list[list[Object]], data: st.DataObject) -> None:
    expected = Counter[str]()
    ours, theirs = [], []
    for number, found in enumerate(images):
        one = record(f"{number}.png", *found, number=number)
        edit = data.draw(st.sampled_from(("keep", "keep", "record_removed", "record_added")))
        expected[edit] += 1
        if edit != "record_added":
            ours.append(one)
        if edit == "record_removed":
            continue
        changed = []
        for (left, top, right, bottom), name in found if edit == "keep" else ():
            how = data.draw(st.sampled_from(_EDITS))
            expected[how] += 1
            if how == "box_moved":
                left, right = left + 5, right + 5
            if how == "box_relabelled":
                name = _NAMES[_NAMES.index(name) - 1]
            if how != "box_removed":
                changed.append(((left, top, right, bottom), name))
        changed = data.draw(st.permutations(changed)) if edit == "keep" else found
        theirs.append(record(f"{number}.png", *changed, number=number))
    del expected["keep"]
    with tempfile.TemporaryDirectory() as folder:
        a = write(Path(folder, "a"), train=ours)
        b = write(Path(folder, "b"), train=data.draw(st.permutations(theirs)))
        assert counts(diff(a, b)) == expected
        assert counts(diff(b, a)) == mirrored(expected)
        assert not diff(a, a).counts and not diff(b, b).counts
