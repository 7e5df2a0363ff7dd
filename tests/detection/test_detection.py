"""Detections: what goes in comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.detection import keys
from tfod.detection.attributes import is_attribute_value
from tfod.detection.detection import Detection, ImageLabel, Keypoints, PngMask
from tfod.detection.encoder import encode_detection
from tfod.errors import RecordError
from tfod.example.example import Example
from tfod.example.wire import Kind
from tfod.sources.reading import decode_detection

from tests.conftest import typed_numbers
from tests.image_kinds import plain_image
from tests.records import encode, image, objects

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
numbers = st.floats(width=32, allow_nan=False)
sides = st.floats(-2, 2, width=32)
int64s = st.integers(-(2**63) + 1, 2**63 - 1)


@st.composite
def detections(draw: st.DrawFn) -> Detection:
    """A Detection with any mix of fields."""
    count = draw(st.integers(0, 5))

    def each(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(values, min_size=count, max_size=count)

    boxes = np.array(draw(each(st.tuples(*[sides] * 4))), "<f4").reshape(count, 4)
    attributes: dict[str, list[Any]] = {}
    if count:
        for name in draw(st.sets(st.sampled_from(["difficult", "occluded", "track_id", "n"]))):
            attributes[name] = draw(each(st.integers(-5, 2**40)))
        for name in draw(st.sets(st.sampled_from(["area", "weight", "speed"]))):
            attributes[name] = draw(each(typed_numbers))
        for name in draw(st.sets(st.sampled_from(["view", "colour"]))):
            attributes[name] = draw(each(texts.filter(bool)))
    optional = st.one_of(st.none(), texts)
    return Detection(
        filename=draw(optional),
        source_id=draw(optional),
        format=draw(optional),
        sha256=draw(optional),
        height=draw(st.one_of(st.none(), int64s)),
        width=draw(st.one_of(st.none(), int64s)),
        encoded=draw(st.one_of(st.none(), st.binary(max_size=50))),
        boxes=boxes,
        class_text=draw(st.one_of(st.none(), each(texts))) or None,
        class_label=draw(st.one_of(st.none(), each(int64s))) or None,
        masks=draw(
            st.one_of(
                st.none(),
                each(st.one_of(st.none(), st.binary(min_size=1, max_size=9).map(PngMask))),
            )
        )
        or None,
        attributes=attributes,
        image_labels=draw(st.lists(st.builds(ImageLabel, texts, int64s, numbers), max_size=3)),
        image_attributes=draw(
            st.dictionaries(st.sampled_from(sorted(keys.IMAGE_ATTRIBUTES)), st.lists(int64s))
        ),
    )


def plain_detection(detection: Detection) -> dict[str, Any]:
    found = dict(vars(detection))
    found["boxes"] = detection.boxes.tobytes()
    found["encoded"] = None if detection.encoded is None else bytes(detection.encoded)
    found["masks"] = detection.masks and [mask and bytes(mask.data) for mask in detection.masks]
    found["image_labels"] = list(detection.image_labels)
    found["captions"] = list(detection.captions)
    found["attributes"] = dict(detection.attributes)
    for name in ("unread_keys", "oddities"):
        del found[name]
    return found


def test_every_name_of_an_attribute_is_of_one_key() -> None:
    names = [name for one in keys.OBJECT_ATTRIBUTES for name in (one.name, *one.other_names)]
    assert len(set(names)) == len(names)


@given(detections())
def test_round_trip(detection: Detection) -> None:
    example = Example.from_bytes(encode_detection(detection))
    assert plain_detection(decode_detection(example)) == plain_detection(detection)


def test_keypoints_and_numerical_masks() -> None:
    detection = Detection(
        height=2,
        width=3,
        boxes=np.zeros((2, 4), "<f4"),
        numerical_masks=np.arange(12, dtype=np.float32).reshape(2, 2, 3),
        keypoints=Keypoints(
            np.arange(8, dtype=np.float32).reshape(2, 2, 2),
            np.array([[0, 1], [2, 0]]),
            ("nose", "eye"),
        ),
    )
    found = decode_detection(Example.from_bytes(encode_detection(detection)))
    assert found.numerical_masks is not None and found.keypoints is not None
    assert np.array_equal(found.numerical_masks, detection.numerical_masks)
    assert found.keypoints.xy.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert found.keypoints.visibility.tolist() == [[0, 1], [2, 0]]
    assert found.keypoints.names == ("nose", "eye")


def test_nothing_is_an_empty_detection() -> None:
    assert plain_detection(decode_detection(Example.from_bytes(b""))) == plain_detection(
        Detection()
    )


def test_empty_lists_of_another_kind_are_nothing() -> None:
    detection = decode_detection(Example.from_bytes(encode(image() | objects([], [], []))))
    assert len(detection.boxes) == 0 and detection.class_text is None


@pytest.mark.parametrize(
    ("name", "values", "key", "kind"),
    [
        ("difficult", [True, None], "image/object/difficult", Kind.INT64),
        ("truncated", [0.5, 1], "image/object/truncated", Kind.FLOAT),
        ("truncated", [True, 1], "image/object/truncated", Kind.INT64),
        ("area", [4, 2], "image/object/area", Kind.FLOAT),
        ("view", ["a", None], "image/object/view", Kind.BYTES),
        ("occluded", ["yes", "no"], "image/object/attribute/occluded", Kind.BYTES),
        ("difficult", [0.5], "image/object/attribute/difficult", Kind.FLOAT),
        ("pose", ["x", None], "image/object/view", Kind.BYTES),
        ("score", [0.5, None], "image/object/attribute/score", Kind.FLOAT),
        ("parts", [3, None], "image/object/attribute/parts", Kind.INT64),
        ("speed", [12.34, 0.1, -1e-7], "image/object/attribute/speed", Kind.FLOAT),
        ("huge", [2**70], "tfod/attributes", Kind.BYTES),
    ],
)
def test_attribute_keys(name: str, values: list[Any], key: str, kind: Kind) -> None:
    detection = Detection(boxes=np.zeros((len(values), 4), "<f4"), attributes={name: values})
    example = Example.from_bytes(encode_detection(detection))
    assert example.kind(key) is kind
    assert decode_detection(example).attributes[name] == values


def test_what_the_keys_cannot_say_is_said_beside_them() -> None:
    """Absent values, truth values, lists, mixed types, empty texts: all come back as they were."""
    attributes: dict[str, list[Any]] = {
        "a": [1, None],
        "b": [None, 0.5],
        "c": ["", None],
        "d": [True, False],
        "e": [[1, {"x": None}], "text"],
        "track_id": [5, None],
        "difficult": [None, 1],
    }
    detection = Detection(
        boxes=np.zeros((2, 4), "<f4"), attributes=attributes, image_extra={"frame": 3}
    )
    found = decode_detection(Example.from_bytes(encode_detection(detection)))
    assert found.attributes == attributes
    assert [type(value) for value in found.attributes["d"]] == [bool, bool]
    assert found.image_extra == {"frame": 3}
    plain_one = Detection(boxes=np.zeros((1, 4), "<f4"), attributes={"a": [1], "difficult": [0]})
    assert keys.EXTRA_ATTRIBUTES not in Example.from_bytes(encode_detection(plain_one))


@pytest.mark.parametrize("value", [object(), b"x", {1, 2}])
def test_values_that_are_no_json(value: Any) -> None:
    assert not is_attribute_value(value)
    assert is_attribute_value([1, "x", None])


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"objects": {"7": {"a": 1}}}',
        '{"absent": {"0": [1]}}',
        '{"objects": {"-1": {"a": 1}}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_supplement_is_an_error(text: str) -> None:
    record = encode(objects([[0, 0, 1, 1]]) | {"tfod/attributes": text})
    with pytest.raises(RecordError, match="tfod/attributes cannot be understood"):
        decode_detection(Example.from_bytes(record))


def test_numerical_masks_of_a_record_without_size() -> None:
    record = objects([[0, 0, 1, 1]]) | {
        "image/object/mask": [0.5] * 6,
        "image/encoded": plain_image((3, 2), 0, "PNG", "L"),
    }
    masks = decode_detection(Example.from_bytes(encode(record))).numerical_masks
    assert masks is not None and masks.shape == (1, 2, 3)


def test_lists_that_are_not_one_value_an_object_are_told() -> None:
    record = image() | objects([[0, 0, 1, 1]]) | {"image/object/difficult": [0, 1]}
    found = decode_detection(Example.from_bytes(encode(record)))
    assert found.attributes == {}
    assert found.oddities == ["image/object/difficult is not one value an object, not read"]


def test_errors_name_the_place() -> None:
    record = image() | objects([[0, 0, 1, 1]], ["a"], [1]) | {"image/object/bbox/ymax": []}
    with pytest.raises(RecordError) as caught:
        decode_detection(Example.from_bytes(encode(record), "s.record"))
    assert str(caught.value) == (
        "s.record, record 0, byte 0: image/object/bbox lists of different lengths: 1 xmin, "
        "1 ymin, 1 xmax, 0 ymax; write the record again with one value for each object"
    )
