"""Shards of any keys, read by a field mapping."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.detection.detection import ImageLabel
from tfod.detection.detections import Detections
from tfod.detection.encoder import LabelProfile, encode_labelled_image
from tfod.detection.features import field_mapping
from tfod.detection.features.field_mapping import (
    KERAS_COCO,
    FieldMapping,
    classification_field_mapping,
)
from tfod.detection.features.schema import PROFILES
from tfod.detection.labels.label_map import LabelMapItem
from tfod.detection.labels.labels_file import format_labels, read_classes, read_labels
from tfod.errors import LabelMapError, RecordError, TfodError
from tfod.example.example import Example
from tfod.sources.layouts import find_batch_layout
from tfod.tfrecord.shard_sets.shard_names import recipe_file_names, stated_name

from tests.image_kinds import HEIGHT, WIDTH, saved
from tests.records import encode, image, objects

PNG = saved("RGB", "PNG")


def example(features: Mapping[str, Any]) -> Example:
    return Example.from_bytes(encode(features), "s.tfrecord")


def kinds(features: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: example(features).kind(key) for key in features}


def decode(features: Mapping[str, Any], how: FieldMapping, *repeating: str) -> Detections:
    return Detections(example(features).batch, how, repeating)


def keras(**changes: Any) -> dict[str, Any]:
    return {
        "image": PNG,
        "path": "val/7.png",
        "area": 12.5,
        "bbox": [1.0, 2.0, 17.0, 10.5],
        "category_id": 44,
        "id": 9,
        "image_id": 7,
    } | changes


class TestFieldMapping:
    def test_other_keys(self) -> None:
        sides = {"left": [0.1], "top": [0.2], "right": [0.3], "bottom": [0.4]}
        size = {"filename": "file", "height": "h", "width": "w"}
        found = decode(
            {"file": "a.jpg", "h": 100, "w": 200, **sides, "name": ["cat"], "weather": "fog"},
            FieldMapping.only(**size, box=tuple(sides), class_text="name"),
        )
        detection = found[0]
        assert (detection.filename, detection.height, detection.width) == ("a.jpg", 100, 200)
        assert detection.boxes.tolist() == [np.array([0.1, 0.2, 0.3, 0.4], "<f4").tolist()]
        assert detection.class_text == ["cat"] and detection.class_label is None
        assert detection.unread_keys == ["weather"]
        assert found.image_ids[0] is None and not found.annotation_ids(0)

    def test_fields_without_a_key_are_not_read(self) -> None:
        record = image() | objects([(0, 0, 1, 1)], text=["cat"], label=[3])
        found = decode(record, FieldMapping(filename=None, class_text=None, class_label=None))[0]
        assert found.filename is None and found.class_text is None and found.class_label is None
        assert len(found.boxes) == 1 and found.height == 100
        no_objects = FieldMapping(class_text=None, class_label=None, box=())
        assert not len(decode(record, no_objects)[0].boxes)

    def test_the_usual_key_of_another_field(self) -> None:
        how = FieldMapping.only(filename="image/source_id", source_id="image/filename")
        found = decode({"image/filename": "7", "image/source_id": "a"}, how)[0]
        assert (found.filename, found.source_id) == ("a", "7")

    def test_keys_that_repeat_others_are_not_unread(self) -> None:
        how = FieldMapping.only(encoded="image_raw", image_class_label="label")
        found = decode({"image_raw": PNG, "label": 3, "depth": 3}, how, "depth")[0]
        assert not found.unread_keys and found.image_labels == [ImageLabel(None, 3)]
        assert bytes(found.encoded or b"") == PNG

    @pytest.mark.parametrize(
        ("ids", "error"),
        [([1, 2], "ids holds 2 values for 1"), ([1.5], "ids is float_list, expected int")],
    )
    def test_errors_name_the_key_of_the_record(self, ids: Any, error: str) -> None:
        record = {"a": [0.0], "b": [0.0], "c": [1.0], "d": [1.0], "ids": ids}
        with pytest.raises(RecordError, match=rf"^s.tfrecord, record 0, byte 0: {error}"):
            _ = decode(record, FieldMapping.only(class_label="ids", box=tuple("abcd")))[0]


class TestBoxesInPixels:
    def test_size_from_the_header(self) -> None:
        found = decode(keras(), KERAS_COCO)
        corners = np.array([[1 / WIDTH, 2 / HEIGHT, 18 / WIDTH, 12.5 / HEIGHT]], "<f4")
        assert found[0].boxes.tolist() == corners.tolist()
        assert found[0].attributes == {"area": [12.5]}
        assert found[0].class_label == [44] and found[0].filename == "val/7.png"
        assert (found.image_ids[0], found.annotation_ids(0)) == (7, [9])
        assert found[0].unread_keys == []

    def test_size_from_the_record_has_precedence(self) -> None:
        how = FieldMapping.only(height="h", width="w", encoded="image", box=("bbox",))
        found = decode({"image": PNG, "h": 50, "w": 100, "bbox": [10.0, 10.0, 40.0, 20.0]}, how)
        assert found[0].boxes.tolist() == np.array([[0.1, 0.2, 0.5, 0.6]], "<f4").tolist()

    def test_several_objects_and_no_object(self) -> None:
        lists = {"category_id": [1, 2], "id": [3, 4], "area": [1.0, 2.0]}
        found = decode(keras(bbox=[0.0] * 8, **lists), KERAS_COCO)
        assert len(found[0].boxes) == 2 and found.annotation_ids(0) == [3, 4]
        only_boxes = FieldMapping.only(encoded="image", box=("bbox",))
        assert decode({"image": b"?"}, only_boxes)[0].boxes.shape == (0, 4)

    @pytest.mark.parametrize(
        ("changes", "output"),
        [
            ({"bbox": [1.0, 2.0, 3.0]}, "bbox holds 3 numbers, expected four for each object"),
            ({"image": b"no image"}, "bbox is in pixels, but the image size is unknown"),
            ({"bbox": [1, 2, 3, 4]}, "bbox is int64_list, expected float_list"),
            ({"category_id": "cat"}, "category_id is bytes_list, expected int64_list"),
            ({"image_id": [1, 2]}, "image_id holds 2 values, expected one"),
            ({"id": [1, 2]}, "id holds 2 values for 1 boxes"),
            ({"path": ["a", "b"]}, "path holds 2 values, expected one"),
        ],
    )
    def test_values_that_do_not_fit(self, changes: dict[str, Any], output: str) -> None:
        with pytest.raises(RecordError, match=f"^s.tfrecord, record 0, byte 0: {output}"):
            _ = decode(keras(**changes), KERAS_COCO)[0]

    def test_the_id_of_an_image_may_be_text(self) -> None:
        assert decode(keras(image_id="n01"), KERAS_COCO).image_ids[0] == "n01"
        assert decode({**keras(), "image_id": []}, KERAS_COCO).image_ids[0] is None


class TestRecognition:
    @pytest.mark.parametrize(
        ("features", "encoded", "label", "text"),
        [
            ({"image_raw": "x", "label": 1, "height": 2, "depth": 3}, "image_raw", "label", None),
            ({"image": "x", "label": 1}, "image", "label", None),
            ({"image_bytes": "x", "label": "cat", "filename": "a"}, "image_bytes", None, "label"),
            ({"image": "x", "class": 1, "label": "daisy"}, "image", "class", "label"),
            ({"image": "x", "class": 1, "id": "a"}, "image", "class", None),
        ],
    )
    def test_classification(self, features: Any, encoded: str, label: Any, text: Any) -> None:
        found = classification_field_mapping(kinds(features))
        assert found is not None
        keys = found.encoded, found.image_class_label, found.image_class_text
        assert keys == (encoded, label, text)
        for name in ("filename", "height"):
            assert getattr(found, name) == (name if name in features else None)

    def test_other_records(self) -> None:
        others = [{"image": "x"}, {"label": 1}, {"image": 1, "label": 1}]
        for features in (*others, {"image": "x", "label": 1.5}, keras()):
            assert classification_field_mapping(kinds(features)) is None, features

    def test_keras(self) -> None:
        assert find_batch_layout(example(keras()).batch).name == "keras_coco"
        required = "image", "bbox", "category_id"
        others = [{k: v for k, v in keras().items() if k != absent} for absent in required]
        for features in (*others, keras(bbox=[1, 2, 3, 4])):
            assert find_batch_layout(example(features).batch).name != "keras_coco"

    def test_mappings_have_the_keys_of_their_profiles(self) -> None:
        for name in ("keras_coco", "image_classification", "image_label"):
            assert getattr(field_mapping, name.upper()).all_keys <= PROFILES[name].keys()


class TestWriting:
    def test_names_of_files(self) -> None:
        names = recipe_file_names("default", 2, 4108)
        assert names == ["file_00-4096.tfrec", "file_01-12.tfrec"]
        assert recipe_file_names("train", 1, 3) == ["train_00-3.tfrec"]
        for subset in ("default", "train", "a_01-2", "x12", "a/b", "été"):
            (name,) = recipe_file_names(subset, 1, 7)
            assert os.sep not in name and stated_name(f"x/{name}").records == 7
        assert recipe_file_names("t", 101, 100 * 4096 + 1)[100] == "t_100-1.tfrec"
        with pytest.raises(TfodError, match="rename the subset"):
            recipe_file_names("file", 1, 1)

    def test_an_image_that_cannot_be_decoded_has_three_channels(self) -> None:
        made = encode_labelled_image(LabelProfile.IMAGE_LABEL, b"?", "a", (1, 2), -1)
        wanted = {"width": 2, "height": 1, "channels": 3, "label": -1}
        assert made == encode({**wanted, "image": b"?", "filename": "a"})


class TestLabelsFile:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("0:daisy\n1:a: b\n", {0: "daisy", 1: "a: b"}),
            ("daisy\nroses\r\n\n", {0: "daisy", 1: "roses"}),
            ("\ufeff7:x\n\n3:y", {7: "x", 3: "y"}),
            ("12:30\nnoon\n", {0: "12:30", 1: "noon"}),
        ],
    )
    def test_both_spellings(self, tmp_path: Path, text: str, found: dict[int, str]) -> None:
        path = tmp_path / "labels.txt"
        path.write_bytes(text.encode())
        label_map, deviations = read_labels(path)
        assert {item.id: item.name for item in label_map.items} == found and not deviations

    def test_a_repeated_id_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "labels.txt").write_text("0:a\n0:b\n")
        label_map, (output,) = read_classes(tmp_path / "labels.txt")
        assert label_map.find_id(0).name == "a" and "id 0 is shared by 'a' and 'b'; " in output

    def test_other_files(self, tmp_path: Path) -> None:
        path = tmp_path / "labels.txt"
        with pytest.raises(LabelMapError, match="No such file"):
            read_labels(path)
        with pytest.raises(LabelMapError, match="not a regular file"):
            read_labels("/dev/zero")
        for data in (b"", b"\n\n", b"\xff\xfe0\0"):
            path.write_bytes(data)
            with pytest.raises(LabelMapError, match=r"labels\.txt has no class names"):
                read_labels(path)

    def test_round_trip(self, tmp_path: Path) -> None:
        items = (LabelMapItem(0, "étoile"), LabelMapItem(3, "a:b"), LabelMapItem(4, " x "))
        (tmp_path / "labels.txt").write_text(format_labels(items), "utf-8")
        assert read_labels(tmp_path / "labels.txt")[0].items == items
        with pytest.raises(LabelMapError, match="has a line break"):
            format_labels([LabelMapItem(1, "a\nb")])
