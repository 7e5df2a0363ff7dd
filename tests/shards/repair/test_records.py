"""Repairs of records beyond what the mutants show: objects with all their lists, classes, sizes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.profiles.profile import READY
from tfod.check.rules.repairs import REPAIRS
from tfod.detection import keys
from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.encoder import encode_detection
from tfod.detection.images.masks import encode_mask_png
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.detection.stream import decode_detection
from tfod.example.example import Example
from tfod.example.rewrite import rewrite_example
from tfod.shards.repair import Options, Outcome, repair
from tfod.shards.repair.class_fixes import BY_IDS, label_map_of
from tfod.shards.repair.record import EditedRecord
from tfod.shards.repair.shard import fix_record
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.writer import write_records

from tests.image_kinds import exif_block, with_segment
from tests.mutants.sound import (
    CAT_BOX,
    DOG_BOX,
    HEIGHT,
    LABEL_MAP,
    WIDTH,
    encoded,
    features,
    jpeg,
    png,
    record,
    with_boxes,
)
from tests.records import encode

TF = READY["tf_detection_api"]
MAP = LabelMap.from_names(["cat", "dog"])
BAD = (math.nan, 0.0, 0.5, 0.5)
FLAT = (0.5, 0.5, 0.5, 0.75)


def fixed(payload: bytes, label_map: LabelMap | None = MAP) -> tuple[bytes, list[str]]:
    """A record after its repair, and the codes of what was done."""
    edited = EditedRecord(Example.from_bytes(payload), TF, label_map)
    changes = fix_record(edited, frozenset(REPAIRS))
    return edited.payload(), [one.code for one in changes]


def detected(payload: bytes) -> Detection:
    """What a record says now."""
    return decode_detection(Example.from_bytes(payload))


def full(boxes: list[tuple[float, ...]]) -> Detection:
    """A record in which every list of objects has values."""
    count = len(boxes)
    rows = np.arange(HEIGHT)[:, None] + np.zeros((1, WIDTH), int)
    return Detection(
        filename="a.jpg",
        source_id="1",
        format="jpeg",
        height=HEIGHT,
        width=WIDTH,
        encoded=jpeg(),
        boxes=np.array(boxes, "<f4"),
        class_text=["cat", "dog", "cat"][:count],
        class_label=[1, 2, 1][:count],
        masks=[PngMask(encode_mask_png(rows == number)) for number in range(count)],
        keypoints=Keypoints(
            xy=np.arange(count * 4, dtype="<f4").reshape(count, 2, 2) / 16,
            visibility=np.array([[2, 1], [1, 0], [0, 2]][:count]),
            names=("nose", "tail"),
        ),
        attributes={
            "difficult": [0, 1, 0][:count],
            "area": [1.5, 2.5, 3.5][:count],
            "view": ["Left", "", "Rear"][:count],
            "colour": ["red", "blue", "green"][:count],
            "tags": [["a"], None, [1, 2]][:count],
            "speed": [None, 1.25, 3.0][:count],
        },
        image_extra={"weather": "rain"},
    )


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_an_object_goes_with_all_its_lists(gone: int) -> None:
    boxes = [CAT_BOX, DOG_BOX, (0.125, 0.125, 0.25, 0.25)]
    whole = full(boxes)
    boxes[gone] = BAD if gone == 1 else FLAT
    payload, done = fixed(encode_detection(replace(whole, boxes=np.array(boxes, "<f4"))))
    assert done == ["BOX002" if gone == 1 else "BOX007"]
    kept = [number for number in range(3) if number != gone]
    found = detected(payload)
    assert np.array_equal(found.boxes, whole.boxes[kept])
    assert found.class_text == [whole.class_text[number] for number in kept]
    assert found.class_label == [whole.class_label[number] for number in kept]
    assert [bytes(one.data) for one in found.masks] == [whole.masks[one].data for one in kept]
    assert np.array_equal(found.keypoints.xy, whole.keypoints.xy[kept])
    assert np.array_equal(found.keypoints.visibility, whole.keypoints.visibility[kept])
    assert found.keypoints.names == ("nose", "tail")
    for name, values in whole.attributes.items():
        assert list(found.attributes[name]) == [values[number] for number in kept], name
    assert found.image_extra == {"weather": "rain"}
    assert bytes(found.encoded) == whole.encoded


def test_masks_of_numbers_and_names_of_points_said_once() -> None:
    masks = np.zeros((2, HEIGHT, WIDTH), "<f4")
    masks[1, :5] = 1
    more: dict[str, Any] = {
        keys.MASK: masks.reshape(-1).tolist(),
        keys.KEYPOINT_X: [0.1, 0.2, 0.3, 0.4],
        keys.KEYPOINT_Y: [0.1, 0.2, 0.3, 0.4],
        keys.KEYPOINT_TEXT: ["nose", "tail"],
    }
    payload, done = fixed(with_boxes([BAD, CAT_BOX], **more))
    assert done == ["BOX002"]
    found = Example.from_bytes(payload)
    assert np.array_equal(found.floats(keys.MASK), masks[1].reshape(-1))
    assert found.floats(keys.KEYPOINT_X).tolist() == np.array([0.3, 0.4], "f4").tolist()
    assert found.byte_strings(keys.KEYPOINT_TEXT) == [b"nose", b"tail"]


def test_the_last_object_leaves_empty_lists() -> None:
    payload, _ = fixed(with_boxes([BAD]))
    found = detected(payload)
    assert not len(found.boxes) and not found.class_text and not found.class_label


@pytest.mark.parametrize(
    "more",
    [
        {"image/object/colour": ["red", "blue"]},
        {"image/object/densepose/num": [1, 2]},
        {keys.ATTRIBUTE_PREFIX + "x": [1, 2, 3]},
        {keys.EXTRA_ATTRIBUTES: "no json"},
        {keys.EXTRA_ATTRIBUTES: '{"objects": 5}'},
    ],
    ids=["unknown-list", "points", "attribute-of-three", "no-json", "odd-json"],
)
def test_an_object_stays_where_a_list_cannot_be_shared_out(more: dict[str, Any]) -> None:
    before = with_boxes([CAT_BOX, BAD], **more)
    assert fixed(before) == (before, [])


def test_a_repeated_object_goes_only_if_it_is_the_same_in_all() -> None:
    flags = {"image/object/difficult": [0, 0, 1]}
    payload, done = fixed(with_boxes([CAT_BOX, CAT_BOX, CAT_BOX], **flags))
    assert done == ["BOX009"]
    assert detected(payload).attributes == {"difficult": [0, 1]}


def test_clipped_boxes_and_those_of_which_nothing_is_left() -> None:
    boxes = [(-0.05, 0.5, 0.5, 1.5), (1.05, 0.5, 1.08, 0.75), (0.25, -1.5, 0.5, -1.25)]
    payload, done = fixed(with_boxes(boxes))
    assert sorted(done) == ["BOX003", "BOX003", "BOX004"]
    assert detected(payload).boxes.tolist() == [[0.0, 0.5, 0.5, 1.0]]
    # What float32 makes of 1 is nobody's defect.
    near = with_boxes([(0.0, 0.0, float(np.nextafter(np.float32(1), np.float32(2))), 1.0)])
    assert fixed(near) == (near, [])


def test_boxes_stay_where_the_size_is_in_doubt() -> None:
    """They may have been divided by the other one, which stays for the next who looks at them."""
    doubtful = with_boxes([(0.25, 0.25, 0.5, 1.5)], width=WIDTH + 1)
    assert fixed(doubtful) == (doubtful, [])
    assert fixed(with_boxes([CAT_BOX], width=WIDTH + 1))[1] == ["IMG006"]


def with_features(boxes: list[tuple[float, ...]], more: dict[str, Any], **changes: Any) -> bytes:
    """A record with objects, and features under any keys."""
    return rewrite_example(
        Example.from_bytes(with_boxes(boxes, **changes)),
        {key: encoded(value) for key, value in more.items()},
    )


def test_objects_whose_own_attributes_differ_are_two() -> None:
    def tracks(first: int, second: int) -> bytes:
        own = {"objects": {"0": {"track_id": first}, "1": {"track_id": second}}}
        return with_features([CAT_BOX, CAT_BOX], {keys.EXTRA_ATTRIBUTES: json.dumps(own)})

    assert fixed(tracks(1, 2)) == (tracks(1, 2), [])
    payload, done = fixed(tracks(1, 1))
    assert done == ["BOX009"] and len(detected(payload).boxes) == 1
    absent = {"absent": {"1": ["difficult"]}}
    apart = with_features([CAT_BOX, CAT_BOX], {keys.EXTRA_ATTRIBUTES: json.dumps(absent)})
    assert fixed(apart) == (apart, [])
    for broken in ("{", "[]", '{"objects": 1}'):
        odd = with_features([CAT_BOX, CAT_BOX], {keys.EXTRA_ATTRIBUTES: broken})
        assert fixed(odd) == (odd, [])


@pytest.mark.parametrize(
    ("more", "is_left"),
    [
        ({"objects/track": [7, 8]}, True),
        ({"objects/corners": [1, 2, 3, 4]}, True),
        ({"image/tracks": [7, 8]}, True),
        ({"weather": ["fog"]}, False),
        ({"image/colorspace": ["RGB"]}, False),
        ({"embedding": [0.5, 0.25, 0.5]}, False),
        ({keys.IMAGE_CLASS_TEXT: ["cat", "dog"]}, False),
    ],
)
def test_lists_that_may_be_over_the_objects_keep_them(more: dict[str, Any], is_left: bool) -> None:
    before = with_features([CAT_BOX, BAD], more)
    payload, done = fixed(before)
    assert done == ([] if is_left else ["BOX002"])
    assert payload == before if is_left else len(detected(payload).boxes) == 1


def test_the_area_of_another_profile_goes_with_its_object() -> None:
    field_mapping = replace(TF.field_mapping, area="pixels", annotation_id="number")
    before = with_features([BAD, CAT_BOX], {"pixels": [1.0, 2.0], "number": [7, 8]})
    edited = EditedRecord(Example.from_bytes(before), replace(TF, field_mapping=field_mapping), MAP)
    assert [one.code for one in fix_record(edited, frozenset(REPAIRS))] == ["BOX002"]
    after = Example.from_bytes(edited.payload())
    assert after.floats("pixels").tolist() == [2.0] and after.ints("number") == [8]


def test_what_a_repair_uncovers_is_repaired_at_once() -> None:
    """Two objects are the same only when their ids are right; an image is one only once."""
    payload, done = fixed(with_boxes([CAT_BOX, CAT_BOX], ["cat", "cat"], [1, 2]))
    assert done == ["LAB008", "BOX009"] and fixed(payload) == (payload, [])
    payload, done = fixed(with_features([CAT_BOX], {keys.ENCODED: [jpeg(), jpeg()]}, sha256="x"))
    assert done == ["EXA005", "IMG008"] and fixed(payload) == (payload, [])
    several = with_features([CAT_BOX], {keys.ENCODED: [jpeg(), png()]}, sha256="x")
    assert fixed(several) == (several, [])


def test_an_unknown_id_does_not_keep_a_text_from_its_class() -> None:
    payload, done = fixed(with_boxes([CAT_BOX], ["Cat "], [9]))
    assert done == ["LAB011", "LAB008"]
    assert detected(payload).class_text == ["cat"] and detected(payload).class_label == [1]
    other_class = with_boxes([CAT_BOX], ["Cat "], [2])
    assert fixed(other_class) == (other_class, [])


def test_a_image_that_is_to_be_turned_keeps_the_size_of_the_turned_one() -> None:
    turned = with_segment(jpeg(), 0xE1, b"Exif\0\0" + exif_block(6))
    before = record(encoded=turned, height=WIDTH, width=HEIGHT)
    assert fixed(before) == (before, [])
    upright = record(height=WIDTH, width=HEIGHT)
    payload, done = fixed(upright)
    assert done == ["IMG006", "IMG006"] and detected(payload).height == HEIGHT


def test_masks_of_numbers_keep_the_size_that_shapes_them() -> None:
    area = (HEIGHT + 1) * WIDTH
    before = with_boxes([CAT_BOX], height=HEIGHT + 1, **{keys.MASK: [0.0] * area})
    assert fixed(before) == (before, [])


@pytest.mark.parametrize(
    ("text", "label", "new_text", "new_label", "codes"),
    [
        (["Cat", "dog "], [1, 2], ["cat", "dog"], [1, 2], ["LAB011"]),
        (["Cat", "dog"], [2, 2], ["Cat", "dog"], [2, 2], []),
        (["Cat", "dog"], [0, 2], ["cat", "dog"], [1, 2], ["LAB011", "LAB008"]),
        (["", "dog"], [1, 1], ["cat", "dog"], [1, 2], ["LAB010", "LAB008"]),
        (["", "dog"], [0, 2], ["", "dog"], [0, 2], []),
        (["", "dog"], [7, 2], ["", "dog"], [7, 2], []),
        (["bird", "dog"], [1, 2], ["bird", "dog"], [1, 2], []),
        (["bird", "dog"], None, ["bird", "dog"], None, []),
        (["cat", "dog"], [1, 9], ["cat", "dog"], [1, 2], ["LAB008"]),
        (["cat", "dog"], None, ["cat", "dog"], [1, 2], ["LAB020"]),
        (None, [2, 1], ["dog", "cat"], [2, 1], ["LAB014"]),
        (None, [2, 9], None, [2, 9], []),
        (["cat", "dog"], [2, -1], ["cat", "dog"], [1, 2], ["LAB008"]),
    ],
)
def test_classes_by_the_label_map(
    text: Any, label: Any, new_text: Any, new_label: Any, codes: list[str]
) -> None:
    payload, done = fixed(record(text=text, label=label))
    assert sorted(done) == sorted(codes)
    found = detected(payload)
    assert (found.class_text, found.class_label) == (new_text, new_label)


def test_of_two_classes_as_near_none_is_taken() -> None:
    near = LabelMap((LabelMapItem(1, "Cat"), LabelMapItem(2, "CAT"), LabelMapItem(3, "dog")))
    before = record(text=["cat", "dog"], label=[1, 3])
    assert fixed(before, near) == (before, [])


def test_a_display_name_is_a_name() -> None:
    shown = LabelMap((LabelMapItem(1, "/m/01", "cat"), LabelMapItem(2, "/m/02", "dog")))
    before = record(text=["cat", "dog"], label=[1, 2])
    assert fixed(before, shown) == (before, [])
    payload, _ = fixed(record(text=["cat", "/m/02"], label=[1, 1]), shown)
    assert detected(payload).class_label == [1, 2]


@pytest.mark.parametrize(
    ("key", "value", "codes"),
    [
        ("image/object/class/label", [1.0, 2.0], ["EXA004"]),
        ("image/object/class/label", [1.5, 2.0], []),
        ("image/object/class/label", [math.nan, 2.0], []),
        ("image/object/area", [1 << 20, 3], ["EXA004"]),
        ("image/object/area", [(1 << 24) + 1, 3], []),
    ],
)
def test_numbers_of_another_kind(key: str, value: list[float], codes: list[str]) -> None:
    payload, done = fixed(encode({**features(), key: value}))
    assert done == codes
    if codes:
        found = Example.from_bytes(payload)
        read = found.ints(key) if "label" in key else found.floats(key).tolist()
        assert read == value


def test_what_cannot_be_known_of_a_record_without_a_image() -> None:
    before = record(encoded=None, height=0, width=None, sha256="x", format="raw")
    assert fixed(before) == (before, [])


side = st.floats(-3, 3, width=32) | st.sampled_from([math.nan, math.inf, 0.0, 1.0, -0.0])


@given(st.lists(st.tuples(side, side, side, side), max_size=5), st.booleans())
def test_mending_twice_is_mending_once(boxes: list[tuple[float, ...]], flagged: bool) -> None:
    flags = {"image/object/difficult": [number % 2 for number in range(len(boxes))]}
    before = with_boxes(boxes, **(flags if flagged and boxes else {}))
    once, done = fixed(before)
    assert fixed(once) == (once, [])
    assert (once == before) == (not done)
    found = detected(once).boxes.astype(np.float64)
    assert np.isfinite(found).all()
    near = found[(np.abs(found) <= 2).all(axis=1)]
    if "BOX011" not in done and len(near) == len(found):
        assert (near[:, 2:] > near[:, :2]).all()


# Shards


@pytest.fixture
def repaired(tmp_path: Path) -> Callable[..., tuple[Outcome, list[bytes]]]:
    """Repair a shard of these payloads: the outcome, and the payloads of the result."""

    def run(*payloads: bytes, **options: Any) -> tuple[Outcome, list[bytes]]:
        write_records(tmp_path / "in", "train", payloads)
        (tmp_path / "in" / "label_map.pbtxt").write_bytes(LABEL_MAP)
        outcome = repair(str(tmp_path / "in"), str(tmp_path / "out"), Options(TF, **options))
        written = read_records(tmp_path / "out" / "train.tfrecord")
        return outcome, [bytes(one.payload) for one in written]

    return run


def test_a_record_that_comes_twice_is_kept_once(repaired: Any) -> None:
    other_boxes = record(text=["dog", "dog"], label=[2, 2])
    outcome, left = repaired(record(), other_boxes, record(), record("b.jpg", encoded=jpeg()))
    assert left == [record(), other_boxes, record("b.jpg", encoded=jpeg())]
    assert dict(outcome.changes.by_code) == {"IMG010": 1}
    assert not outcome.remaining.valid  # the image itself still comes three times


def test_records_that_become_the_same_are_kept_once(repaired: Any) -> None:
    outcome, left = repaired(record(sha256="x"), record())
    assert left == [record()]
    assert dict(outcome.changes.by_code) == {"IMG008": 1, "IMG010": 1}
    assert outcome.changes.records_changed == 1 and outcome.changes.records_dropped == 1


def test_only_and_skip(repaired: Any) -> None:
    odd = record(sha256="x", format="png", text=["cat", "dog"], label=[1, 1])
    assert set(repaired(odd)[0].changes.by_code) == {"IMG008", "IMG004", "LAB008"}
    overwrite = {"overwrite": True}
    outcome, left = repaired(odd, only=frozenset({"IMG", "LAB008"}), skip=frozenset({"IMG004"}),
                             **overwrite)  # fmt: skip
    assert set(outcome.changes.by_code) == {"IMG008", "LAB008"}
    assert outcome.remaining.counts.by_code == {"IMG004": 1}
    assert left == [record(format="png")]


def test_masks_of_numbers_that_fit_the_image_alone_do_not_hold_its_size() -> None:
    masks = {keys.MASK: [0.0] * (HEIGHT * WIDTH)}
    payload, done = fixed(with_boxes([CAT_BOX], height=HEIGHT + 1, **masks))
    assert done == ["IMG006"] and detected(payload).height == HEIGHT


def test_a_required_feature_is_never_removed() -> None:
    empty = rewrite_example(Example.from_bytes(record()), {keys.FILENAME: b"\x0a\x00"})
    edited = EditedRecord(Example.from_bytes(empty), READY["cvat"], MAP)
    assert fix_record(edited, frozenset(REPAIRS)) == [] and edited.payload() == empty


@pytest.mark.parametrize(
    ("pairs", "items"),
    [
        ([("cat", 1), ("dog", 2), ("cat", 1)], {1: "cat", 2: "dog"}),
        ([("кот", 7)], {7: "кот"}),
        ([("cat", 1), ("dog", 1)], None),
        ([("cat", 1), ("cat", 2)], None),
        ([("cat", 1), (None, 2)], None),
        ([("cat", 1), ("dog", None)], None),
        ([("cat", 1), (" ", 2)], None),
        ([("cat", 0)], None),
        ([("cat", 1 << 31)], None),
        ([], None),
    ],
)
def test_the_label_map_that_records_define(
    pairs: list[tuple[str | None, int | None]], items: dict[int, str] | None
) -> None:
    # Of two shards, so that what one says can contradict the other.
    found = label_map_of(pairs)
    assert (found and {item.id: item.name for item in found.items}) == items


NEGATIVE, MASK_OF_CLASSES = (
    keys.IMAGE_ATTRIBUTES["neg_category_ids"],
    "image/panoptic/category_mask",
)


@pytest.mark.parametrize(
    ("records", "first"),
    [
        ([([0, 1], None), ([2], None)], 1),  # 0 is among them
        ([([1], ["dog"]), ([2], None)], 1),  # a text tells
        ([([1, 2], None), ([3], None)], 0),  # 3 is beyond a map from 0
        ([([0, 1], None), ([3], None)], 0),
        ([([1, 2], None)], 0),  # nothing tells
        ([([2], ["dog"]), ([1], None)], 0),  # the text tells of ids from 1
        ([([1], ["dog"]), ([2], ["dog"])], 1),  # each tells of itself
    ],
)
def test_a_label_map_from_0_stays_unless_its_records_count_so(
    records: list[tuple[list[int], list[str] | None]], first: int, tmp_path: Path
) -> None:
    names = ["cat", "dog", "cow"]
    items = "".join(f"item {{ id: {n} name: '{one}' }}\n" for n, one in enumerate(names))
    (tmp_path / "label_map.pbtxt").write_text(items)
    boxes = [CAT_BOX, DOG_BOX]
    write_records(tmp_path, "train", [
        with_boxes(boxes[: len(label)], label=label, text=text) for label, text in records
    ])  # fmt: skip
    options = Options(only=frozenset(("LAB005",)))
    outcome = repair(str(tmp_path), str(tmp_path / "out"), options)
    after = [
        Example.from_bytes(one.payload).ints(keys.CLASS_LABEL)
        for one in read_records(tmp_path / "out" / "train.tfrecord")
    ]
    left = outcome.remaining.counts.by_code
    if not first:  # nor is any text or id made of a map that may be wrong
        assert not repair(str(tmp_path), None).changes.by_code.keys() & BY_IDS
    assert (tmp_path / "out" / "label_map.pbtxt").read_text().count(f"id: {first}") == 1
    assert ("LAB005" in left) == (not first)
    shifted = [
        [one + (first and not (text and names.index(text[0]) != one)) for one in label]
        for label, text in records
    ]
    assert after == shifted


def test_all_that_holds_ids_is_counted_from_1(tmp_path: Path) -> None:
    (tmp_path / "label_map.pbtxt").write_text(
        "item { id: 0 name: 'cat' } item { id: 1 name: 'dog' ancestor_ids: 0 descendant_ids: 1 }"
    )
    lists = {**features(), keys.CLASS_LABEL: [0, 1], NEGATIVE: [1]}
    write_records(tmp_path, "train", [encode(lists)])
    options = Options(only=frozenset(("LAB005",)))
    repair(str(tmp_path), str(tmp_path / "out"), options)
    (one,) = read_records(tmp_path / "out" / "train.tfrecord")
    assert Example.from_bytes(one.payload).ints(NEGATIVE) == [2]
    text = (tmp_path / "out" / "label_map.pbtxt").read_text()
    assert "ancestor_ids: 1" in text and "descendant_ids: 2" in text
    write_records(tmp_path, "val", [encode({**lists, MASK_OF_CLASSES: [png()]})])
    left = repair(str(tmp_path), None, options).remaining.counts.by_code
    assert "LAB005" in left  # the pixels are ids, too
