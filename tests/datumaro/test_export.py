"""Records that an export writes, and the items that an import reads from them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datumaro.components.annotation import Bbox, Caption, Label, Mask, Points, Polygon, PolyLine
from tfod.datumaro import compat
from tfod.datumaro.compat import DatasetItem
from tfod.datumaro.formats.tf_detection_api import TfDetectionApiExporter
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.images.image import image_size
from tfod.detection.images.mask_images import decode_mask_png
from tfod.detection.labels.label_map import read_label_map
from tfod.sources.reading import read_examples

from tests.datumaro.conftest import (
    Progress,
    TolerantExport,
    content,
    dataset_of,
    export,
    export_one,
    ids_of,
    import_dataset,
    item,
    jpeg,
    refusal,
)
from tests.image_kinds import plain_image
from tests.records import encode, image, objects, write_shard


def in_pixels(found: Detection, digits: int = 3) -> list[list[float]]:
    """The boxes of an item."""
    return (found.boxes * (200, 100, 200, 100)).round(digits).tolist()


def filled(height: int, width: int, box: tuple[int, int, int, int]) -> np.ndarray:
    """A mask of a rectangle."""
    left, top, right, bottom = box
    mask = np.zeros((height, width), bool)
    mask[top:bottom, left:right] = True
    return mask


def test_layout_and_features(tmp_path) -> None:
    found = export_one(tmp_path, Bbox(50, 10, 50, 30, label=2), data=jpeg(), save_media=True)
    assert sorted(os.listdir(tmp_path)) == ["default.tfrecord", "label_map.pbtxt"]
    assert (tmp_path / "label_map.pbtxt").read_text("utf-8") == "".join(
        f"item {{\n\tid: {number}\n\tname: '{name}'\n}}\n\n"
        for number, name in enumerate(("cat", "dog", "кошка"), 1)
    )
    assert found.boxes.tolist() == [np.array([0.25, 0.1, 0.5, 0.4], "<f4").tolist()]
    assert (found.class_text, found.class_label) == (["кошка"], [3])
    assert (found.filename, found.source_id, found.format) == ("a.jpg", "1", "jpeg")
    assert (found.height, found.width) == (100, 200)
    assert bytes(found.encoded) == jpeg()
    assert found.sha256 == hashlib.sha256(jpeg()).hexdigest()
    found = export_one(tmp_path, Bbox(0, 0, 1, 1, label=0))
    assert (bytes(found.encoded), found.format, found.sha256) == (b"", "", "")
    (example,) = read_examples(tmp_path)
    assert len(example) == 13


@pytest.mark.parametrize("options", [{}, {"layout": "roboflow"}, {"save_media": True}])
def test_an_image_without_objects_has_a_record(tmp_path, options: dict[str, Any]) -> None:
    """A detector learns from negatives, too (mediapipe#4423); readers expect the keys of each."""
    nothing, box = item("nothing", data=jpeg()), Bbox(50, 10, 50, 30, label=2)
    found = export(dataset_of(item("a", box, data=jpeg()), nothing), tmp_path, **options)
    assert sorted(len(one.boxes) for one in found) == [0, 1]
    for example in read_examples(tmp_path):
        assert {*keys.BOX, keys.CLASS_TEXT, keys.CLASS_LABEL} <= set(example)
    assert sorted(len(one.annotations) for one in import_dataset(tmp_path)) == [0, 1]


def test_progress_is_reported(tmp_path) -> None:
    progress = Progress()
    export(dataset_of(item("a"), item("b")), tmp_path, progress_reporter=progress)
    assert progress.reported == [(2, "Writing TFRecords")]


def test_options_of_datumaro(tmp_path) -> None:
    options = TfDetectionApiExporter.parse_cmdline(["--", "--save-images", "--shard-size", "1MB"])
    assert options["save_images"] and options["shard_size"] == 1 << 20
    found = export_one(tmp_path, data=jpeg(), save_images=True, save_dataset_meta=True)
    assert bytes(found.encoded) == jpeg()
    assert "кошка" in str(json.loads((tmp_path / "dataset_meta.json").read_text("utf-8")))


class TestImages:
    """A JPEG or PNG keeps its bytes unless another extension is an option."""

    @pytest.mark.parametrize("extension", [".jpg", ".jpeg", "JPG", None])
    def test_bytes_are_kept(self, tmp_path, extension: str | None) -> None:
        data, name = (jpeg(), "jpeg") if extension else (plain_image((3, 2), kind="PNG"), "png")
        found = export_one(tmp_path, data=data, save_media=True, image_ext=extension)
        assert (found.filename, found.format) == (f"a.{(extension or 'jpg').lstrip('.')}", name)
        assert bytes(found.encoded) == data

    def test_images_are_encoded(self, tmp_path) -> None:
        found = export_one(tmp_path, data=jpeg(), save_media=True, image_ext=".png")
        assert (found.filename, found.format) == ("a.png", "png")
        assert image_size(bytes(found.encoded)) == (100, 200)
        media = compat.image_from_pixels(np.full((4, 6, 3), 7, np.uint8), ".png", None)
        (found,) = export(dataset_of(DatasetItem(id="p", media=media)), tmp_path, save_media=True)
        assert (found.filename, found.format, found.height, found.width) == ("p.png", "png", 4, 6)
        (loaded,) = import_dataset(tmp_path)
        assert np.asarray(loaded.media.data)[0, 0, 0] == 7

    def test_items_without_a_size(self, tmp_path) -> None:
        nothing = DatasetItem(id="nothing", annotations=[Bbox(0, 0, 1, 1, label=0)])
        assert "'nothing' has no image size" in str(refusal(export, dataset_of(nothing), tmp_path))
        (found,) = export(dataset_of(DatasetItem(id="x", annotations=[Label(1)])), tmp_path)
        assert (found.height, found.image_labels[0].text) == (None, "dog")
        assert content(import_dataset(tmp_path))["x", "default"]["size"] is None


class TestMasks:
    def test_a_mask_joins_only_the_box_of_its_object(self, tmp_path) -> None:
        image = filled(100, 200, (50, 10, 100, 40))
        shapes = [
            Bbox(50, 10, 50, 30, label=0, group=1),
            Mask(image, label=0, group=1),
            Bbox(150, 50, 10, 10, label=0, group=1),
            Bbox(50, 10, 50, 30, label=1, group=1),
        ]
        found = export_one(tmp_path / "m", *shapes, save_masks=True)
        assert found.class_text == ["cat", "cat", "dog"] and len(found.masks) == 3
        assert len(export_one(tmp_path / "b", *shapes).boxes) == 3
        (loaded,) = import_dataset(tmp_path / "m")
        assert [one.type.name for one in loaded.annotations] == ["mask", "bbox", "bbox"]
        assert np.array_equal(loaded.annotations[0].image, image)

    def test_box_and_mask_of_an_annotation_may_overlap_a_little(self, tmp_path) -> None:
        """COCO has a box and a mask with the same id and group; the mask may be small."""
        image = filled(100, 200, (50, 10, 54, 14))
        box = Bbox(50, 10, 50, 30, label=0, id=7, group=7)
        for number, boxes in ((7, [[50, 10, 100, 40]]), (8, [[50, 10, 100, 40], [50, 10, 54, 14]])):
            mask = Mask(image, label=0, id=number, group=7)
            found = export_one(tmp_path / str(number), box, mask, save_masks=True)
            assert in_pixels(found) == boxes and len(found.masks) == len(boxes)

    def test_masks_of_polygons_and_boxes(self, tmp_path) -> None:
        """The box is imported as a box."""
        shapes = [Polygon([50, 10, 100, 10, 100, 40, 50, 40], label=0), Bbox(0, 0, 20, 10, label=1)]
        found = export_one(tmp_path, *shapes, save_masks=True)
        first, second = (decode_mask_png(one.data) for one in found.masks)
        assert np.array_equal(first, filled(100, 200, (50, 10, 100, 40)))
        assert np.array_equal(second, filled(100, 200, (0, 0, 20, 10)))
        for folder in (tmp_path, tmp_path / "again"):
            (loaded,) = import_dataset(folder)
            mask, box = loaded.annotations
            assert (mask.type.name, box.type.name) == ("mask", "bbox")
            assert box.points == [0, 0, 20, 10]
            assert np.array_equal(mask.image, first)
            export(import_dataset(folder), tmp_path / "again", save_masks=True)

    def test_masks_whose_size_differs_from_the_image(self, tmp_path, warnings) -> None:
        """For example, images were resized without their masks, as in Datumaro's own tests."""
        small = filled(50, 100, (25, 5, 50, 20))
        (mask,) = export_one(tmp_path, Mask(small, label=0), save_masks=True).masks
        assert np.array_equal(decode_mask_png(mask.data), small)
        (output,) = warnings()
        assert "masks whose size differs from the image" in output and "1" in output
        outline = Polygon([50, 10, 100, 10, 100, 40, 50, 40], label=0, id=1, group=1)
        shapes = [outline, Mask(small, label=0, id=1, group=1)]
        refused = refusal(export_one, tmp_path, *shapes, save_masks=True)
        assert "item 'a': a mask is 100x50, its image 200x100" in str(refused)
        tolerant = {"save_masks": True, "error_policy": TolerantExport()}
        found = export_one(tmp_path, *shapes, **tolerant)
        assert [decode_mask_png(one.data).shape for one in found.masks] == [(100, 200)]

    def test_polygons_are_drawn_as_by_datumaro(self, tmp_path) -> None:
        outline = [1.3, 1.2, 9.7, 2.1, 8.2, 7.9, 4.4, 9.3, 1.1, 6.3]
        source = dataset_of(item("a", Polygon(outline, label=0)))
        (ours,) = export(source, tmp_path / "a", save_masks=True)
        (theirs,) = export(source.transform("polygons_to_masks"), tmp_path / "b", save_masks=True)
        assert bytes(ours.masks[0].data) == bytes(theirs.masks[0].data)

    def test_parts_of_an_instance_are_one_object(self, tmp_path) -> None:
        """COCO: several polygons with the id and group of one annotation."""
        triangles = [0, 0, 10, 0, 10, 10], [50, 50, 60, 50, 60, 60]
        parts = [Polygon(points, label=0, id=5, group=5) for points in triangles]
        assert in_pixels(export_one(tmp_path, *parts)) == [[0, 0, 60, 60]]

    @pytest.mark.parametrize("name", ["tf_detection_api", "tf_keras_coco"])
    def test_outlines_in_a_group_with_their_box_are_counted(self, tmp_path, caplog, name) -> None:
        box = Bbox(50, 10, 50, 30, label=0, group=1)
        parts = [Polygon([50, 10, 100, 10, x, 40], label=0, group=1, id=7) for x in (50, 100)]
        source = dataset_of(item("a", box, *parts, data=jpeg()))
        source.export(str(tmp_path / "boxes"), name, save_media=True)
        assert "outlines of boxes not written: 2 polygon" in caplog.text
        caplog.clear()
        export(source, tmp_path / "masks", save_media=True, save_masks=True)
        assert caplog.text == ""


class TestRotation:
    @pytest.mark.parametrize(
        ("kind", "values", "attributes", "corners", "pixels"),
        [
            ("Bbox", (40, 40, 20, 10), {"rotation": 90.0}, [45, 35, 55, 55], 200),
            # Datumaro 1.13 gives a rotated box's corners as pairs.
            ("RotatedBbox", (50, 50, 20, 10, 90), {}, [45, 40, 55, 60], 200),
            ("Ellipse", (80, 40, 120, 60), {"rotation": 90.0}, [90, 30, 110, 70], 628),
        ],
    )
    def test_enclosing_boxes(
        self, tmp_path, caplog, kind, values, attributes, corners, pixels
    ) -> None:
        make = getattr(compat.annotation, kind, None)
        if make is None:
            pytest.skip(f"this Datumaro has no {kind}")
        shape = make(*values, label=0, attributes=attributes)
        export_one(tmp_path / "boxes", shape)
        assert "replaced by their enclosing box: 1" in caplog.text
        found = export_one(tmp_path / "masks", shape, save_masks=True)
        assert in_pixels(found, 1) == [corners]
        mask = decode_mask_png(found.masks[0].data)
        assert int(mask.sum()) == pytest.approx(pixels, abs=40)

    @pytest.mark.parametrize("rotation", ["left", "", None, [30], True, 360, "0"])
    def test_attributes_that_are_not_an_angle(self, tmp_path, rotation) -> None:
        shape = Bbox(40, 40, 20, 10, label=0, attributes={"rotation": rotation, "n": 1})
        assert in_pixels(export_one(tmp_path, shape)) == [[40, 40, 60, 50]]

    def test_the_mask_is_rotated_clockwise(self, tmp_path) -> None:
        """CVAT and Datumaro 0.3 give degrees about the centre."""
        shape = Bbox(80, 40, 40, 20, label=0, attributes={"rotation": 45.0})
        found = export_one(tmp_path, shape, save_masks=True)
        ((left, _, right, _),) = in_pixels(found)
        assert right - left == pytest.approx(60 * 2**-0.5, abs=0.01)
        mask = decode_mask_png(found.masks[0].data)
        assert mask[50 + 10, 100 + 10] and not mask[50 - 10, 100 + 10]


class TestRoundTrip:
    @pytest.mark.parametrize("save_masks", [False, True])
    def test_shapes(self, tmp_path, save_masks: bool) -> None:
        """Rotated boxes, layers, groups of several objects, and attributes of labels."""
        from datumaro.components import annotation

        rotated = Bbox(80, 40, 40, 20, label=0, attributes={"rotation": 30.0, "n": 1}, z_order=2)
        imported = rotated
        if hasattr(annotation, "RotatedBbox"):
            fields = {"label": 0, "attributes": {"n": 1}, "z_order": 2}
            imported = annotation.RotatedBbox(100, 50, 40, 20, 30, **fields)
        others = [
            annotation.Label(0, attributes={"rain": True, "of": "May"}),
            Bbox(1, 2, 30, 40, label=0, group=5, z_order=-1),
            Bbox(1, 2, 20, 30, label=0, group=5),
        ]
        group = Bbox(5, 5, 5, 5, label=0, group=6)
        export_one(tmp_path, *others, rotated, group, save_masks=save_masks)
        (loaded,) = import_dataset(tmp_path)
        found = sorted(loaded.annotations, key=repr)
        assert found == sorted([*others, imported, group.wrap(group=0)], key=repr)

    @pytest.mark.parametrize(
        ("attributes", "features"),
        [
            # Numbers that no list can hold, and half a surrogate pair.
            ([{"area": 1e300, "n": 10**400}, {"area": 1.5, "n": 0.5}], {}),
            ([{"note": "\ud800"}], {}),
            # The decoder reads group_of; Datumaro's importer of Open Images has another name.
            (
                [
                    {"is_group_of": True, "is_depiction": False, "pose": "Left"},
                    {"is_group_of": False},
                ],
                {"image/object/group_of": [1, 0], "image/object/view": [b"Left", b""]},
            ),
            # An attribute with the name of a key has precedence.
            ([{"is_group_of": True, "group_of": False}], {"image/object/group_of": [0]}),
        ],
    )
    def test_attributes(self, tmp_path, attributes, features) -> None:
        shapes = [Bbox(0, 0, 9, 9, label=0, attributes=one) for one in attributes]
        of_image = {"frame": 7, "tags": ["a"], "source_id": "x", "note": "\ud800"}
        export(dataset_of(item("a", *shapes, attributes=of_image)), tmp_path)
        example = next(iter(read_examples(tmp_path)))
        for key, values in features.items():
            read = example.byte_strings if isinstance(values[0], bytes) else example.ints
            assert read(key) == values
        (loaded,) = import_dataset(tmp_path)
        assert loaded.attributes == of_image
        assert [one.attributes for one in loaded.annotations] == attributes

    def test_types_of_attributes_and_losses(self, tmp_path, caplog) -> None:
        own = {"occluded": True, "track_id": 7, "pose": "Left", "area": 81.0}
        others = {"score": 0.5, "count": np.int64(3), "parked": True, "empty": ""}
        first = Bbox(0, 0, 9, 9, label=0, attributes=own | others | {"odd": object()})
        second = Bbox(20, 0, 9, 9, label=0, attributes={"occluded": False, "pose": "Right"})
        export_one(tmp_path, first, second)
        (loaded,) = import_dataset(tmp_path)
        found = [one.attributes for one in loaded.annotations]
        assert found == [own | others, second.attributes]
        assert found[0]["parked"] is True and found[0]["occluded"] is True
        assert "attributes not written: 1 odd" in caplog.text

    def test_labels_captions_and_boxes_without_a_class(self, tmp_path, caplog) -> None:
        labels = [Label(0, attributes={"score": 0.25}), Label(1)]
        captions = [Caption("a cat"), Caption("кот", attributes={"by": "me"})]
        boxes = [Bbox(0, 0, 9, 9), Bbox(0, 0, 5, 5, label=2)]
        export_one(tmp_path, *labels, *captions, *boxes)
        assert "attributes not written: 1 by (of a caption)" in caplog.text
        assert "without a class, written as id 0 with an empty text: 1" in caplog.text
        (loaded,) = import_dataset(tmp_path)
        texts = [one.caption for one in loaded.annotations if one.type.name == "caption"]
        assert texts == ["a cat", "кот"]
        others = [one for one in loaded.annotations if one.type.name != "caption"]
        found = [(one.type.name, one.label, one.attributes) for one in others]
        scores = [("label", 0, {"score": 0.25}), ("label", 1, {"score": 1.0})]
        assert sorted(found, key=str) == [("bbox", 2, {}), ("bbox", None, {}), *scores]


class TestErrorsAndLosses:
    def test_invalid_boxes_and_the_error_policy(self, tmp_path) -> None:
        shapes = [Bbox(float("nan"), 0, 1, 1, label=0), Bbox(5, 5, -3, 1), Bbox(0, 0, 9, 9)]
        refused = refusal(export_one, tmp_path, *shapes)
        assert "item 'a': a box is inverted or not finite" in str(refused)
        policy = TolerantExport()
        assert len(export_one(tmp_path, *shapes, error_policy=policy).boxes) == 1
        assert len(policy.errors) == 2
        refused = refusal(export_one, tmp_path, Bbox(0, 0, 9, 9, label=7))
        assert "label 7 does not exist, there are 3 classes" in str(refused)

    def test_losses_are_counted_in_one_message(self, tmp_path, warnings) -> None:
        export_one(tmp_path, Bbox(0, 0, 9, 9, label=0))
        assert warnings() == []
        shapes = [
            PolyLine([0, 0, 1, 1], label=0),
            PolyLine([0, 0, 1, 2], label=0),
            Points([1, 1], label=0),
            Bbox(-10, 0, 20, 10, label=0),
        ]
        found = export_one(tmp_path, *shapes)
        (output,) = warnings()
        assert output.startswith("tf_detection_api: not written")
        assert ": 2 polyline, 1 points without a schema; " in output
        assert output.endswith("boxes that extend beyond the image, written unchanged: 1")
        assert found.boxes[0, 0] == np.float32(-0.05)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_shards": 2, "shard_size": 5}, "exclude each other"),
            ({"num_shards": 0}, "num_shards: 0 is not a whole number above 0"),
            ({"compression": "rar"}, "compression: 'rar' is not one of"),
            ({"label_key": "name"}, "label_key: 'name' is not one of"),
            ({"label_map": "nope"}, "nope: no such label map"),
            ({"image_ext": ".xyz"}, "image_ext: '.xyz' is not one of"),
            ({"layout": "round"}, "is not one of flat, roboflow"),
            ({"layout": "flat", "name": "x"}, "only the roboflow layout"),
            ({"layout": "roboflow", "save_masks": True}, "no masks"),
            ({"layout": "roboflow", "label_key": "text"}, "always text and id"),
        ],
    )
    def test_invalid_options(self, tmp_path, options, message: str) -> None:
        assert message in str(refusal(export_one, tmp_path, **options))


class TestClasses:
    """Ids and names of classes."""

    def test_another_class_if_the_largest_id_is_used(self, tmp_path) -> None:
        last = 2**31 - 1
        label_map = tmp_path / "own.pbtxt"
        label_map.write_text(f"item {{ id: {last} name: 'dog' }}")
        boxes = [Bbox(0, 0, 9, 9, label=label) for label in (0, 1)]
        found = export_one(tmp_path / "out", *boxes, label_map=str(label_map))
        assert (found.class_text, found.class_label) == (["cat", "dog"], [1, last])

    @pytest.mark.parametrize(("key", "text", "ids"), [("text", ["cat"], None), ("id", None, [1])])
    def test_label_key(self, tmp_path, key, text, ids) -> None:
        found = export_one(tmp_path, Bbox(0, 0, 9, 9, label=0), label_key=key)
        assert (found.class_text, found.class_label) == (text, ids)
        assert content(import_dataset(tmp_path))["a", "default"]["annotations"][0]["label"] == "cat"

    @pytest.mark.parametrize("key", ["both", "id"])
    def test_unlabelled_boxes_if_zero_is_a_class(self, make_shard, tmp_path, key) -> None:
        make_shard("s", image() | objects([[0, 0, 1, 1]], ["zero"], [0]), folder=tmp_path / "in")
        source = import_dataset(tmp_path / "in")
        source.put(item("b", Bbox(0, 0, 9, 9), subset="s"))
        export(source, tmp_path / "out", label_key=key)
        loaded = import_dataset(tmp_path / "out")
        assert ids_of(loaded) == {"zero": 0}
        assert [[one.label for one in it.annotations] for it in loaded] == [[0], [None]]

    def test_classes_of_the_image_follow_their_ids(self, make_shard, tmp_path) -> None:
        record = image() | objects([[0, 0, 1, 1]], ["dog"], [1])
        make_shard("s", record | {"image/neg_category_ids": [1]}, folder=tmp_path / "in")
        (found,) = export(import_dataset(tmp_path / "in"), tmp_path / "out", label_map="coco")
        assert found.image_attributes == {"neg_category_ids": [18]}

    def test_classes_with_only_an_id(self, tmp_path: Path) -> None:
        """The label map has the text of the records, and a text that is a number its own class."""
        box = [0.25, 0.5, 0.5, 1]
        found = objects([box, box], label=[5, 2]), objects([box], ["5"], [3])
        records = [encode(image(f"{n}.jpg") | one) for n, one in enumerate(found)]
        write_shard(tmp_path / "in", "default", *records, label_map=None)
        exported = export(import_dataset(tmp_path / "in"), tmp_path / "out")
        texts = [(one.class_text, one.class_label) for one in exported]
        assert texts == [(["5 (5)", "2"], [5, 2]), (["5"], [3])]
        label_map, _ = read_label_map(tmp_path / "out" / "label_map.pbtxt")
        assert [(x.id, x.name) for x in label_map.items] == [(2, "2"), (3, "5"), (5, "5 (5)")]
