"""Detections that are written and read back; real shards have the numbers of TensorFlow."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.detection import keys
from tfod.detection.detection import Detection, ImageLabel, Keypoints, PngMask, ShapeDetails
from tfod.detection.encoder import encode_detection
from tfod.errors import RecordError, TfodError
from tfod.example.example import Example
from tfod.example.wire import Kind
from tfod.sources.reading import decode_detection, read_detections
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.record_index import RecordIndex
from tfod.tfrecord.writer import RecordWriter

from tests.conftest import CORPUS, typed_numbers
from tests.image_kinds import plain_image
from tests.records import encode, image, objects

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
numbers = st.floats(width=32, allow_nan=False)
int64s = st.integers(-(2**63) + 1, 2**63 - 1)
sides = st.none() | st.integers(0, 2**63 - 1)


@st.composite
def detections(draw: st.DrawFn, loose: bool = False) -> Detection:
    """A Detection with any mix of fields; loose: of tuples and arrays, too, of any length."""
    count = draw(st.integers(0, 5))

    def each(values: st.SearchStrategy[Any]) -> Any:
        size = draw(st.sampled_from([count] * 20 + [count + loose]))
        items = draw(st.lists(values, min_size=size, max_size=size))
        array = np.empty(size, object)
        array[:] = items
        return draw(st.sampled_from([items, tuple(items), array])) if loose else items

    attributes = {
        name: each(values)
        for names, values in (
            (["difficult", "occluded", "track_id", "n"], st.integers(-5, 2**40)),
            (["area", "weight", "speed"], typed_numbers | st.integers(-(2**40), 2**40)),
            (["view", "colour"], texts.filter(bool)),
            (["flag"], st.none() | st.booleans()),
        )
        for name in draw(st.sets(st.sampled_from(names)))
    }
    corners = st.tuples(*[st.floats(-2, 2, width=32) | st.just(float("nan"))] * 4)
    boxes = draw(st.lists(corners, min_size=count, max_size=count))
    masks = st.none() | st.binary(min_size=1, max_size=9).map(PngMask)
    one_label = draw(st.sampled_from([(texts, int64s), (texts, st.none()), (st.none(), int64s)]))
    shapes = st.builds(ShapeDetails, z_order=st.integers(-9, 9), group=st.integers(0, 9))
    return Detection(
        filename=draw(st.none() | texts),
        source_id=draw(st.none() | texts),
        format=draw(st.none() | texts),
        sha256=draw(st.none() | texts),
        height=draw(sides),
        width=draw(sides),
        encoded=draw(st.none() | st.binary(max_size=50)),
        boxes=boxes if loose else np.array(boxes, "<f4").reshape(-1, 4),
        class_text=each(texts) if draw(st.booleans()) else None,
        class_label=each(int64s) if draw(st.booleans()) else None,
        masks=each(masks) if draw(st.booleans()) else None,
        attributes=attributes,
        shape_details=draw(st.dictionaries(st.integers(0, count), shapes, max_size=int(loose))),
        image_labels=draw(st.lists(st.builds(ImageLabel, *one_label, numbers), max_size=3)),
        captions=draw(st.lists(texts, max_size=2)),
        image_attributes=draw(
            st.dictionaries(st.sampled_from(sorted(keys.IMAGE_ATTRIBUTES)), st.lists(int64s))
        ),
        image_extra=draw(st.dictionaries(texts, st.none() | texts | st.lists(numbers), max_size=2)),
    )


@given(detections(loose=True))
def test_what_is_written_is_read_back(detection: Detection) -> None:
    """And what has no problem for the reader: the checker reports the same problems."""
    lists = (detection.class_text, detection.class_label, detection.masks)
    sizes = {len(one) for one in (*lists, *detection.attributes.values()) if one is not None}
    count = len(detection.boxes)
    if not sizes <= {count} or count in detection.shape_details:
        with pytest.raises(TfodError, match=r"has \d+ values for|has object"):
            encode_detection(detection)
        return
    example = Example.from_bytes(encode_detection(detection))
    again = decode_detection(example)
    assert again == detection and hash(again) == hash(detection)
    assert (keys.CLASS_LABEL in example) == (detection.class_label is not None)
    assert again != replace(detection, boxes=np.ones((count + 1, 4)))


PIXELS, INSIDE = np.zeros((4, 5, 3), np.uint8), [[0.1, 0.2, 0.3, 0.4]]
MASK = PngMask(b"x")
REFUSED: dict[str, list[Any]] = {
    "boxes": [
        *(None, 1, [0, 0, 1, 1], [[0, 0, 1]], [[0, 0, 1, 1], [0]], [["0", "0", "1", "1"]]),
        *(np.zeros((1, 2, 2)), np.zeros((0, 3))),
        *([[0, 0, 320, 240]], [[2, 3, 5, 6]], [*INSIDE, [10.5, 20.5, 100.5, 200.5]]),
    ],
    "class_text": [
        *("c", b"c", 1, [], ["a", "b"], [None], [1], [b"c"], ["\ud800"], np.array([["a"]]))
    ],
    "class_label": [[], [1, 2], [1.0], [np.nan], ["1"], [2**63], np.array([np.nan]), [None], 1],
    "height": [-1, 1.5, "240", np.nan, 2**63],
    "filename": [1, b"a.jpg", "\udcff.jpg"],
    "source_id": [7],
    "encoded": ["text", 5, PIXELS],
    "masks": [[], [MASK, MASK], [b"x"], [PIXELS], MASK, [PngMask(5)]],  # type: ignore[arg-type]
    "numerical_masks": [np.zeros((1, 2, 3)), np.zeros((2, 4, 5)), [["a"]]],
    "keypoints": [
        *(Keypoints(np.zeros((n, 2, 2)), np.zeros((n, m), int)) for n, m in ((1, 3), (2, 2))),
        Keypoints(np.zeros((1, 2, 2)), np.zeros((1, 2), int), ("nose",)),
        Keypoints(np.full((1, 2, 2), 30), np.zeros((1, 2), int)),
        *(Keypoints(np.zeros((1, 2, 2)), np.zeros((1, 2))), PIXELS),
    ],
    "attributes": [{"a": one} for one in ([], [1, 2], "a", 1, {"b": 1}, [object()], [b"x"])],
    "shape_details": [
        *(
            {np.int64(1): ShapeDetails(z_order=1)},
            {0: ShapeDetails(rotation=5)},
            {0: ShapeDetails(z_order=2**40)},
            [1],
        )
    ],
    "image_labels": [
        *(["cat"], [ImageLabel(None, None)], [ImageLabel("cat", 1), ImageLabel("dog", None)]),
        [ImageLabel("cat", 1.5)],  # type: ignore[arg-type]
        [ImageLabel("cat", 1, attributes={"a": object()})],  # type: ignore[dict-item]
    ],
    "captions": ["text", [1], 1],
    "image_masks": [{"other": MASK}, {"semantic": b"x"}],
    "image_attributes": [{"other": [1]}, {"neg_category_ids": [1.5]}, {"neg_category_ids": "12"}],
    "image_extra": [{"a": object()}, "text"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_that_its_reader_would_refuse_is_not_written(name: str) -> None:
    fields: dict[str, Any] = {"filename": "a.jpg", "height": 4, "width": 5, "boxes": INSIDE}
    assert encode_detection(Detection(**fields))
    for value in REFUSED[name]:
        with pytest.raises(TfodError, match=rf"^(image .*: )?{name} "):
            encode_detection(Detection(**{**fields, name: value}))
            pytest.fail(f"{value!r} was written")


def test_every_name_of_an_attribute_is_of_one_key() -> None:
    names = [name for one in keys.OBJECT_ATTRIBUTES for name in (one.name, *one.other_names)]
    assert len(set(names)) == len(names)


def test_keypoints_and_numerical_masks() -> None:
    detection = Detection(
        height=2,
        width=3,
        boxes=np.zeros((2, 4), "<f4"),
        numerical_masks=np.arange(12, dtype=np.float32).reshape(2, 2, 3),
        keypoints=Keypoints(
            np.arange(8, dtype=np.float32).reshape(2, 2, 2) / 8,
            np.array([[0, 1], [2, 0]]),
            ("nose", "eye"),
        ),
    )
    found = decode_detection(Example.from_bytes(encode_detection(detection)))
    assert found == detection and found.keypoints is not None
    assert (found.keypoints.xy.ravel() * 8).tolist() == list(range(8))


def test_records_without_objects() -> None:
    assert decode_detection(Example.from_bytes(b"")) == Detection()
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


def test_attributes_that_no_key_can_hold() -> None:
    """Absent values, truth values, lists, mixed types and empty texts are read back unchanged."""
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
    assert found == detection and found.attributes == attributes
    assert [type(value) for value in found.attributes["d"]] == [bool, bool]
    plain_one = Detection(boxes=np.zeros((1, 4), "<f4"), attributes={"a": [1], "difficult": [0]})
    assert keys.EXTRA_ATTRIBUTES not in Example.from_bytes(encode_detection(plain_one))


def test_damaged_extra_attributes() -> None:
    texts = ["[]", "{", "[" * 100_000, '{"absent": {"0": [1]}}']
    texts += [f'{{"objects": {{"{number}": {{"a": 1}}}}}}' for number in (7, -1)]
    for text in texts:
        record = encode(objects([[0, 0, 1, 1]]) | {keys.EXTRA_ATTRIBUTES: text})
        with pytest.raises(RecordError, match="tfod/attributes cannot be parsed"):
            decode_detection(Example.from_bytes(record))


def test_numerical_masks_of_a_record_without_size() -> None:
    png = plain_image((3, 2), 0, "PNG", "L")
    record = objects([[0, 0, 1, 1]]) | {"image/object/mask": [0.5] * 6, "image/encoded": png}
    found = decode_detection(Example.from_bytes(encode(record)))
    assert found.numerical_masks is not None and found.numerical_masks.shape == (1, 2, 3)
    assert decode_detection(Example.from_bytes(encode_detection(found))) == found


def test_lists_of_another_length() -> None:
    record = image() | objects([[0, 0, 1, 1]], ["a"], [1])
    found = decode_detection(
        Example.from_bytes(encode(record | {"image/object/difficult": [0, 1]}))
    )
    assert found.attributes == {} and len(found.warnings) == 1
    assert "image/object/difficult" in found.warnings[0]
    example = Example.from_bytes(encode(record | {"image/object/bbox/ymax": []}), "s.record")
    place = "s.record, record 0, byte 0: image/object/bbox lists"
    with pytest.raises(RecordError, match=f"^{place}.* 1 xmin, 1 ymin, 1 xmax, 0 ymax"):
        decode_detection(example)


# Real shards

SHARDS = sorted(
    str(path.relative_to(CORPUS))
    for pattern in ("**/*.record", "**/*.tfrecord")
    for path in CORPUS.glob(pattern)
)
# Tables and labels that are not detections; tests/datumaro/test_round_trips.py imports them.
OTHER = ("titanic-table/test.tfrecord", "viewer-sample/sample_record.record")
DETECTION = [name for name in SHARDS if name not in OTHER]
SIDES = ("xmin", "ymin", "xmax", "ymax")


def test_every_shard_of_the_corpus_has_figures(figures: dict[str, Any]) -> None:
    assert set(SHARDS) == set(figures)


@pytest.mark.parametrize("name", DETECTION)
def test_numbers_of_shards(corpus: Path, figures: dict[str, Any], name: str) -> None:
    encoded = 0
    texts: Counter[str] = Counter()
    for record in read_records(corpus / name):
        detection = decode_detection(Example.of(record, name))
        assert not detection.unread_keys and not detection.warnings
        encoded += len(detection.encoded or b"")
        texts.update(detection.class_text or ())
        if detection.sha256:
            assert hashlib.sha256(detection.encoded or b"").hexdigest() == detection.sha256
        # Writing what was read gives the same features.
        assert decode_detection(Example.from_bytes(encode_detection(detection))) == detection
    assert encoded == figures[name]["encoded_bytes"]
    assert texts == figures[name]["class_text"]


@pytest.mark.parametrize("subset", ["train", "test"])
def test_hyphal_tips_are_what_their_csv_says(corpus: Path, subset: str) -> None:
    folder = corpus / "hyphal-tips"
    with (folder / f"{subset}_labels.csv").open() as file:
        lines = [
            (one["filename"], one["class"], *(int(one[side]) for side in SIDES))
            for one in csv.DictReader(file)
        ]
    found = []
    for one in read_detections(folder / f"{subset}.record"):
        pixels = one.boxes * np.array([one.width, one.height] * 2)
        for text, box in zip(one.class_text or (), pixels.round().astype(int), strict=True):
            found.append((one.filename, text, *box.tolist()))
    assert Counter(found) == Counter(lines)


@pytest.mark.parametrize("name", SHARDS)
def test_framing_is_written_as_it_was_read(corpus: Path, tmp_path: Path, name: str) -> None:
    payloads = [bytes(record.payload) for record in read_records(corpus / name)]
    with (tmp_path / "copy").open("wb") as stream:
        writer = RecordWriter(stream)
        for one in payloads:
            writer.write(one)
    assert (tmp_path / "copy").read_bytes() == (corpus / name).read_bytes()
    assert list(RecordIndex(corpus / name)) == payloads
