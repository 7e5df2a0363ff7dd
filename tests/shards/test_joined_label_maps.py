"""Several sources in one folder: one label map, ids that follow it, and nothing else changed."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod import read_detections
from tfod.detection.labels.label_map import (
    Keypoint,
    LabelMap,
    LabelMapItem,
    parse_label_map,
    read_label_map,
)
from tfod.errors import LabelMapError, RecordError, TfodError
from tfod.example.example import Example, int64_feature
from tfod.shards.reshard import ReshardResult, reshard
from tfod.shards.rewrite import rewrite_example
from tfod.tfrecord.writer import ShardLayout, write_records

from tests.commands import Run
from tests.conftest import examples
from tests.files import files_in, payloads, subsets_of, write_files
from tests.records import encode, image, objects

BOX = (0.1, 0.2, 0.3, 0.4)
LABEL = "image/object/class/label"


def source(
    folder: Path, names: Mapping[int, str] | str, *records: Mapping[str, Any], subset: str = "train"
) -> Path:
    """Write a shard, and its label map unless that has no names."""
    write_records(folder, subset, [encode(one) for one in records])
    if not isinstance(names, str):
        names = LabelMap(tuple(LabelMapItem(*item) for item in names.items())).to_text()
    if names:
        (folder / "label_map.pbtxt").write_text(names)
    return folder


def boxed(*classes: tuple[str | None, int | None], name: str = "a.jpg") -> dict[str, Any]:
    texts = [text for text, _ in classes if text is not None]
    labels = [label for _, label in classes if label is not None]
    return image(name) | objects([BOX] * len(classes), texts or None, labels or None)


def labels_in(folder: Path, subset: str = "train") -> list[list[int]]:
    return [Example.from_bytes(one).ints(LABEL) for one in payloads(folder / f"{subset}.tfrecord")]


def joined(tmp_path: Path, *sources: Path) -> tuple[ReshardResult, dict[int, str]]:
    done = reshard(sources, tmp_path / "out", ShardLayout(num_shards=1))
    label_map, _ = read_label_map(tmp_path / "out" / "label_map.pbtxt")
    return done, {item.id: item.name for item in label_map.items}


CAT = {1: "cat"}, boxed(("cat", 1))


def test_the_same_id_of_two_classes_is_changed(tmp_path: Path) -> None:
    a = source(tmp_path / "a", {1: "cat", 2: "dog"}, boxed(("cat", 1), ("dog", 2)))
    b = source(tmp_path / "b", {1: "dog", 2: "cow"}, boxed(("cow", 2), ("dog", 1), name="b.jpg"))
    done, names = joined(tmp_path, a, b)
    assert names == {1: "cat", 2: "dog", 3: "cow"}
    assert labels_in(tmp_path / "out") == [[1, 2], [3, 2]]
    assert (done.is_joined, done.records) == (True, {"train": 2})
    changed = "the id of 'dog' changed from 1 to 2, the id of 'cow' changed from 2 to 3"
    assert done.notes == [f"{b}/label_map.pbtxt: {changed}"]
    # The first record does not change, and only the ids of the second.
    first, second = payloads(tmp_path / "out" / "train.tfrecord")
    assert first == payloads(a / "train.tfrecord")[0]
    back = rewrite_example(Example.from_bytes(second), {LABEL: int64_feature([2, 1])})
    assert back == payloads(b / "train.tfrecord")[0]


LARGEST = 2**31 - 1
UNNAMED = [boxed(("dog", 7), name="b"), boxed(("cow", None), name="c")]


@pytest.mark.parametrize(
    ("a", "b", "names", "labels"),
    [
        # The largest id, after which a label map can hold no other.
        (({1: "cat", LARGEST: "dog"}, boxed(("dog", LARGEST))),
         ({LARGEST: "cow"}, boxed(("cow", LARGEST), name="b.jpg")),
         {1: "cat", 2: "cow", LARGEST: "dog"}, [[LARGEST], [2]]),
        # Objects without a class stay so.
        (CAT, ({1: "dog"}, boxed(("", 0), ("dog", 1), ("", -1), name="b")),
         {1: "cat", 2: "dog"}, [[1], [0, 2, -1]]),
        # Shards without a label map have the classes of their texts.
        (({1: "cat", 2: "dog"}, boxed(("cat", 1))), ({}, *UNNAMED),
         {1: "cat", 2: "dog", 3: "cow"}, [[1], [2], []]),
    ],
)  # fmt: skip
def test_ids_of_the_joined_label_map(
    tmp_path: Path, a: Any, b: Any, names: Mapping[int, str], labels: list[list[int]]
) -> None:
    done, found = joined(tmp_path, source(tmp_path / "a", *a), source(tmp_path / "b", *b))
    assert found == names and done.is_joined
    assert labels_in(tmp_path / "out") == labels


def test_ids_of_images_and_lists_change_too(tmp_path: Path) -> None:
    a = source(tmp_path / "a", *CAT)
    features = {
        "image/class/label": [2, 1],
        "image/neg_category_ids": [1],
        "image/not_exhaustive_category_ids": [2, 2],
    }
    b = source(tmp_path / "b", {1: "dog", 2: "cow"}, image("b.jpg") | features)
    _, names = joined(tmp_path, a, b)
    example = Example.from_bytes(payloads(tmp_path / "out" / "train.tfrecord")[1])
    assert names == {1: "cat", 2: "cow", 3: "dog"}
    assert [example.ints(key) for key in features] == [[2, 3], [3], [2, 2]]


def test_the_text_takes_precedence_over_the_id(tmp_path: Path) -> None:
    a = source(tmp_path / "a", {1: "cat", 2: "dog"}, boxed(("dog", 1)), boxed((None, 1)))
    b = source(tmp_path / "b", {1: "cat", 2: "dog", 3: "cow"}, boxed(), subset="val")
    done, _ = joined(tmp_path, a, b)
    assert labels_in(tmp_path / "out") == [[2], [1]]
    (note,) = done.notes
    assert "class 'dog' had the id 1 of another class in 1 object" in note
    first, second = read_detections(tmp_path / "out" / "train.tfrecord")
    assert (first.class_text, second.class_text) == (["dog"], None)


ID_CAT, NAMED_CAT = "id: 5 name: 'Cat'", "id: 1 name: '/m/1' display_name: 'Cat'"


@pytest.mark.parametrize(
    ("maps", "classes"),
    [
        ((ID_CAT, NAMED_CAT), {5: "/m/1"}),
        ((NAMED_CAT, ID_CAT), {1: "/m/1"}),
        (("id: 5 display_name: 'Cat'", NAMED_CAT), {5: "/m/1"}),
        ((ID_CAT, NAMED_CAT, "id: 7 name: '/m/1'"), {5: "/m/1"}),
        # Two classes have this display name.
        ((ID_CAT, NAMED_CAT, "id: 7 name: '/m/2' display_name: 'Cat'"), {5: "/m/1", 7: "/m/2"}),
        ((ID_CAT, f"{NAMED_CAT} }} item {{ id: 2 name: '/m/2' display_name: 'Cat'"),
         {1: "/m/1", 2: "/m/2", 5: "Cat"}),
        # A class with two texts cannot have a third.
        (("id: 5 name: 'Cat' display_name: 'cat'", NAMED_CAT), {1: "/m/1", 5: "Cat"}),
    ],
)  # fmt: skip
def test_display_names_join_in_any_order(
    run: Run, tmp_path: Path, maps: Sequence[str], classes: Mapping[int, str]
) -> None:
    sources = []
    for number, text in enumerate(maps):
        item = parse_label_map(f"item {{ {text} }}")[0].items[0]
        record = boxed((item.class_name, item.id), name=f"{number}.jpg")
        sources.append(source(tmp_path / str(number), f"item {{ {text} }}", record))
    run("reshard", *sources, tmp_path / "out", "--num-shards", "1").succeeded()
    made, _ = read_label_map(tmp_path / "out" / "label_map.pbtxt")
    assert {item.id: item.name for item in made.items} == classes
    for labels, detection in zip(
        labels_in(tmp_path / "out"), read_detections(tmp_path / "out"), strict=True
    ):
        (text,) = detection.class_text or ()
        item = made.find(text)
        assert item is not None and labels == [item.id]


def test_all_fields_of_label_maps_are_kept(tmp_path: Path) -> None:
    label_map = (
        "item { id: 7 name: 'person' display_name: 'Person' frequency: RARE instance_count: 3 "
        "keypoints { id: 1 label: 'nose' } ancestor_ids: 8 }"
        "item { id: 8 name: 'being' descendant_ids: 7 }"
        "item { id: 9 name: 'dog' display_name: 'Dog' }"
    )
    a = source(tmp_path / "a", {7: "dog"}, boxed(("dog", 7)))
    b = source(tmp_path / "b", label_map, boxed(("person", 7), name="b.jpg"))
    done, _ = joined(tmp_path, a, b)
    assert "person: ancestor_ids is omitted, since ids changed" in done.notes
    made, _ = read_label_map(tmp_path / "out" / "label_map.pbtxt")
    assert made.items == (
        LabelMapItem(7, "dog", "Dog"),
        LabelMapItem(8, "being"),
        LabelMapItem(9, "person", "Person", (Keypoint(1, "nose"),), 3, 3),
    )


TWO_CATS = (
    "item { id: 1 name: '/m/01' display_name: 'cat' }"
    "item { id: 2 name: '/m/02' display_name: 'cat' }"
)


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        *((CAT, (names, boxed((None, 4), name="b.jpg")),
           r"record 0.*class/label has the id 4 .*next to") for names in ({1: "dog"}, {})),
        (CAT, ({1: "dog"}, image("c") | {"image/neg_category_ids": [4]}),
         "neg_category_ids has the id 4 "),
        (CAT, (TWO_CATS, boxed(("cat", 1), name="b")), "'cat' has id 1 in the joined label map"),
        # Pixels with ids cannot be changed.
        (CAT, ({1: "dog"}, boxed(("dog", 1)) | {"image/panoptic/category_mask": b"PNG"}),
         "which would change; pass the shards of this file first"),
        (({1: "x"}, image() | objects([BOX] * 2, ["x", "x"], [1])), ({2: "x"}, boxed(("x", 2))),
         "class/label holds 1 values for 2 boxes"),
        (({}, {"image_raw": b"x", "label": [1]}), ({2: "x"}, boxed(("x", 2))),
         r"record 0.*has none of image/encoded"),
    ],
)  # fmt: skip
def test_sources_that_cannot_be_joined(tmp_path: Path, a: Any, b: Any, error: str) -> None:
    sources = [source(tmp_path / "a", *a), source(tmp_path / "b", *b)]
    with pytest.raises((RecordError, LabelMapError), match=error):
        reshard(sources, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    if "pass the shards of this file first" in error:
        assert joined(tmp_path, *sources[::-1])[1] == {1: "dog", 2: "cat"}


def test_subsets_of_one_name_join_in_order(tmp_path: Path) -> None:
    a = source(tmp_path / "a", {1: "x"}, *(boxed(("x", 1), name=f"a{n}") for n in range(3)))
    b = source(tmp_path / "b", {1: "x"}, *(boxed(("x", 1), name=f"b{n}") for n in range(3)))
    source(tmp_path / "b", {1: "x"}, boxed(("x", 1), name="v"), subset="val")
    done = reshard([b, a], tmp_path / "out", ShardLayout(shard_size=1))
    assert (done.records, done.is_joined) == ({"train": 6, "val": 1}, False)
    found = [one.filename for one in read_detections(tmp_path / "out" / "train-*")]
    assert found == ["b0", "b1", "b2", "a0", "a1", "a2"]


def test_joined_shards_can_be_shuffled_and_numbered(tmp_path: Path) -> None:
    a = source(tmp_path / "a", {1: "cat"}, *(boxed(("cat", 1), name=f"a{n}") for n in range(4)))
    b = source(tmp_path / "b", {1: "dog"}, *(boxed(("dog", 1), name=f"b{n}") for n in range(4)))
    reshard([a, b], tmp_path / "out", shuffle=1, receiver="tf-vision")
    read = list(read_detections(tmp_path / "out"))
    assert {(one.filename or "")[0]: one.class_label for one in read} == {"a": [1], "b": [2]}
    assert sorted(one.source_id or "" for one in read) == [str(n) for n in range(1, 9)]


def test_real_shards_keep_every_box_and_image(corpus: Path, tmp_path: Path) -> None:
    folders = [
        corpus / name
        for name in ("blood-cells", "hyphal-tips", "anki-overdrive-cars", "drawn-rectangles")
    ]
    before = Counter(_content(one) for folder in folders for one in read_detections(folder))
    done = reshard(folders, tmp_path)
    assert Counter(map(_content, read_detections(tmp_path))) == before
    assert sum(done.records.values()) == before.total()
    assert done.is_joined
    label_map, _ = read_label_map(tmp_path / "label_map.pbtxt")
    for one in read_detections(tmp_path):
        for text, label in zip(one.class_text or (), one.class_label or (), strict=True):
            item = label_map.find(text)
            assert item is not None and item.id == label
    # The first label map keeps its ids.
    ours, theirs = (sum(subsets_of(one).values(), Counter()) for one in (folders[0], tmp_path))
    assert (ours & theirs).total() >= 64


def _content(one: Any) -> tuple[Any, ...]:
    image = hashlib.sha256(bytes(one.encoded or b"")).hexdigest()
    return (image, one.filename, one.boxes.tobytes(), tuple(one.class_text or ()))


def test_a_merge_that_fails_changes_nothing(tmp_path: Path) -> None:
    a = source(tmp_path / "a", *CAT)
    out = source(tmp_path / "out", {3: "old"}, boxed(("old", 3)))
    before = files_in(out)
    with pytest.raises(TfodError, match="already exists"):
        reshard([a], out)
    b = write_files(tmp_path / "b", {"train.tfrecord": b"no shard at all"})
    with pytest.raises(TfodError, match="is not a TFRecord file"):
        reshard([a, b], out, overwrite=True)
    assert files_in(out) == before


NAMES = ("cat", "dog", "cow", "hen", "emu")
ids = st.lists(st.integers(1, 9), min_size=5, max_size=5, unique=True)
maps = st.builds(lambda names, ids: dict(zip(names, ids, strict=True)), st.permutations(NAMES), ids)
images = st.lists(st.lists(st.sampled_from(NAMES), max_size=4), min_size=1, max_size=5)
sets = st.tuples(maps, st.sampled_from(("text", "id", "both")), images)


@examples(40)
@given(st.lists(sets, min_size=1, max_size=3))
def test_every_object_keeps_its_class(
    datasets: list[tuple[dict[str, int], str, list[list[str]]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, sources, expected = Path(name), [], []
        for number, (ids, how, images) in enumerate(datasets):
            records = []
            for names in images:
                texts = (None if how == "id" else name for name in names)
                labels = (None if how == "text" else ids[name] for name in names)
                classes = zip(texts, labels, strict=True)
                records.append(boxed(*classes, name=f"{number}_{len(records)}"))
            by_id = {label: text for text, label in ids.items()}
            sources.append(source(folder / str(number), by_id, *records))
            expected += images
        reshard(sources, folder / "out", ShardLayout(num_shards=1))
        label_map, _ = read_label_map(folder / "out" / "label_map.pbtxt")
        assert sorted(item.name for item in label_map.items) == sorted(NAMES)
        assert len({item.id for item in label_map.items}) == len(NAMES)
        for one, names in zip(read_detections(folder / "out"), expected, strict=True):
            absent = [None] * len(names)
            found = zip(one.class_text or absent, one.class_label or absent, strict=True)
            for name, (text, label) in zip(names, found, strict=True):
                item = label_map.find_id(label) if label is not None else None
                assert {text, item and item.name} - {None} == {name}
