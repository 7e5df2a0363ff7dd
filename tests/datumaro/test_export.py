"""Writing: what a dataset has goes into the shard, and comes back."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datumaro.components.annotation import Bbox, Caption, Label, Mask, Points, Polygon, PolyLine
from datumaro.components.dataset import Dataset
from datumaro.components.errors import DatasetExportError
from PIL import Image as PillowImage
from tfod.datumaro import compat
from tfod.datumaro.compat import DatasetItem
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.images.mask_images import decode_mask_png
from tfod.detection.labels.label_map import read_label_map
from tfod.sources.reading import read_detections, read_examples
from tfod.tfrecord.writer import write_records

from tests.datumaro.conftest import (
    TolerantExport,
    content,
    dataset_of,
    ids_of,
    import_dataset,
    jpeg,
    refusal,
)
from tests.files import files_in
from tests.image_kinds import plain_image
from tests.records import encode, image, objects, write_shard


def item(name: str = "a", *annotations: Any, data: bytes | None = None, **options: Any) -> Any:
    """An item of 100 x 200 pixels."""
    if data is None:
        media = compat.image_without_data(".jpg", (100, 200))
    else:
        media = compat.image_from_bytes(lambda *_: data, f"{name}.jpg", None)
    return DatasetItem(id=name, media=media, annotations=list(annotations), **options)


def export(source: Dataset, folder: Path, **options: Any) -> list[Any]:
    source.export(str(folder), "tf_detection_api", **options)
    return list(read_detections(folder))


def export_one(
    folder: Path, *annotations: Any, data: bytes | None = None, **options: Any
) -> Detection:
    """What becomes of an item with these annotations."""
    (found,) = export(dataset_of(item("a", *annotations, data=data)), folder, **options)
    return found


def in_pixels(found: Detection, digits: int = 3) -> list[list[float]]:
    """Its boxes."""
    return (found.boxes * (200, 100, 200, 100)).round(digits).tolist()


def test_layout_and_features(tmp_path) -> None:
    found = export_one(tmp_path, Bbox(50, 10, 50, 30, label=2), data=jpeg(), save_media=True)
    assert sorted(os.listdir(tmp_path)) == ["default.tfrecord", "label_map.pbtxt"]
    assert (tmp_path / "label_map.pbtxt").read_text("utf-8") == (
        "item {\n\tid: 1\n\tname: 'cat'\n}\n\nitem {\n\tid: 2\n\tname: 'dog'\n}\n\n"
        "item {\n\tid: 3\n\tname: 'кошка'\n}\n\n"
    )
    assert found.boxes.tolist() == [np.array([0.25, 0.1, 0.5, 0.4], "<f4").tolist()]
    assert (found.class_text, found.class_label) == (["кошка"], [3])
    assert (found.filename, found.source_id, found.format) == ("a.jpg", "1", "jpeg")
    assert (found.height, found.width) == (100, 200)
    assert bytes(found.encoded) == jpeg()
    assert found.sha256 == hashlib.sha256(jpeg()).hexdigest()


def test_without_images_the_ten_keys_are_there_and_empty(tmp_path) -> None:
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


def test_dataset_meta_file(tmp_path) -> None:
    export(dataset_of(item("a")), tmp_path, save_dataset_meta=True)
    assert "кошка" in str(json.loads((tmp_path / "dataset_meta.json").read_text("utf-8")))


def test_progress_is_reported(tmp_path) -> None:
    from datumaro.components.progress_reporting import NullProgressReporter

    class Reporter(NullProgressReporter):
        reported: list[Any] = []  # noqa: RUF012

        def iter(self, iterable, *, total=None, desc=None):
            self.reported.append((len(iterable), desc))
            yield from iterable

    export(dataset_of(item("a"), item("b")), tmp_path, progress_reporter=Reporter())
    assert Reporter.reported == [(2, "Writing TFRecords")]


def test_old_option_name_and_both_in_the_parser(tmp_path) -> None:
    assert bytes(export_one(tmp_path, data=jpeg(), save_images=True).encoded) == jpeg()
    from tfod.datumaro.formats.tf_detection_api import TfDetectionApiExporter

    options = TfDetectionApiExporter.parse_cmdline(["--", "--save-images", "--shard-size", "1MB"])
    assert options["save_images"] and options["shard_size"] == 1 << 20


class TestImages:
    """A JPEG or PNG keeps its bytes unless another extension is asked for."""

    @pytest.mark.parametrize("extension", [".jpg", ".jpeg", "JPG"])
    def test_bytes_are_kept_where_the_format_is_what_was_asked(self, tmp_path, extension) -> None:
        found = export_one(tmp_path, data=jpeg(), save_media=True, image_ext=extension)
        assert bytes(found.encoded) == jpeg()

    def test_another_extension_re_encodes(self, tmp_path) -> None:
        found = export_one(tmp_path, data=jpeg(), save_media=True, image_ext=".png")
        assert (found.filename, found.format) == ("a.png", "png")
        assert PillowImage.open(io.BytesIO(bytes(found.encoded))).size == (200, 100)

    def test_pixels_are_encoded(self, tmp_path) -> None:
        media = compat.image_from_pixels(np.full((4, 6, 3), 7, np.uint8), ".png", None)
        (found,) = export(dataset_of(DatasetItem(id="p", media=media)), tmp_path, save_media=True)
        assert (found.filename, found.format, found.height, found.width) == ("p.png", "png", 4, 6)
        (loaded,) = import_dataset(tmp_path)
        assert np.asarray(loaded.media.data)[0, 0, 0] == 7

    def test_a_wrong_name_does_not_change_the_bytes(self, tmp_path) -> None:
        data = plain_image((3, 2), 0, "PNG", "L")
        found = export_one(tmp_path, data=data, save_media=True)
        assert (found.filename, found.format) == ("a.jpg", "png")
        assert bytes(found.encoded) == data

    def test_an_item_without_a_size_is_an_error_with_its_name(self, tmp_path) -> None:
        nothing = DatasetItem(id="nothing", annotations=[Bbox(0, 0, 1, 1, label=0)])
        assert "'nothing' has no image size" in str(refusal(export, dataset_of(nothing), tmp_path))

    def test_an_item_of_labels_needs_no_size(self, tmp_path) -> None:
        (found,) = export(dataset_of(DatasetItem(id="x", annotations=[Label(1)])), tmp_path)
        assert (found.height, found.image_labels[0].text) == (None, "dog")
        assert content(import_dataset(tmp_path))["x", "default"]["size"] is None


class TestObjects:
    """Boxes, masks, points, labels and attributes."""

    def test_a_mask_joins_only_the_box_of_its_object(self, tmp_path) -> None:
        image = np.zeros((100, 200), bool)
        image[10:40, 50:100] = True
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

    def test_box_and_mask_of_one_annotation_are_one_object_however_little_they_overlap(
        self, tmp_path
    ) -> None:
        """COCO: a box and a mask with one id and group, of which the mask is a small part."""
        image = np.zeros((100, 200), bool)
        image[10:14, 50:54] = True
        box = Bbox(50, 10, 50, 30, label=0, id=7, group=7)
        for number, boxes in ((7, [[50, 10, 100, 40]]), (8, [[50, 10, 100, 40], [50, 10, 54, 14]])):
            mask = Mask(image, label=0, id=number, group=7)
            found = export_one(tmp_path / str(number), box, mask, save_masks=True)
            assert in_pixels(found) == boxes and len(found.masks) == len(boxes)

    def test_save_masks_makes_masks_of_polygons_and_boxes(self, tmp_path) -> None:
        """The box comes back as a box all the same."""
        shapes = [Polygon([50, 10, 100, 10, 100, 40, 50, 40], label=0), Bbox(0, 0, 20, 10, label=1)]
        found = export_one(tmp_path, *shapes, save_masks=True)
        first, second = (decode_mask_png(one.data) for one in found.masks)
        assert first.shape == (100, 200) and first[10:40, 50:100].all() and first.sum() == 1500
        assert second[:10, :20].all() and second.sum() == 200
        (loaded,) = import_dataset(tmp_path)
        mask, box = loaded.annotations
        assert (mask.type.name, box.type.name) == ("mask", "bbox")
        assert box.points == [0, 0, 20, 10]
        assert np.array_equal(mask.image, first)
        # And once more, as often as one likes.
        export(import_dataset(tmp_path), tmp_path / "again", save_masks=True)
        (again,) = import_dataset(tmp_path / "again")
        assert [one.type.name for one in again.annotations] == ["mask", "bbox"]

    def test_masks_of_another_size_than_the_image(self, tmp_path, warnings) -> None:
        """As of images that were resized without their masks; Datumaro's own tests have such."""
        small = np.zeros((50, 100), bool)
        small[5:20, 25:50] = True
        (mask,) = export_one(tmp_path, Mask(small, label=0), save_masks=True).masks
        assert np.array_equal(decode_mask_png(mask.data), small)
        assert any(
            "1" in one and "masks whose size differs from the image" in one for one in warnings()
        )
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

    def test_parts_of_one_instance_are_one_object(self, tmp_path) -> None:
        """COCO: several polygons with the id and group of one annotation."""
        parts = [
            Polygon([0, 0, 10, 0, 10, 10], label=0, id=5, group=5),
            Polygon([50, 50, 60, 50, 60, 60], label=0, id=5, group=5),
        ]
        assert in_pixels(export_one(tmp_path, *parts)) == [[0, 0, 60, 60]]

    @pytest.mark.parametrize(
        ("kind", "values", "attributes", "corners", "pixels"),
        [
            ("Bbox", (40, 40, 20, 10), {"rotation": 90.0}, [45, 35, 55, 55], 200),
            # Datumaro 1.13 gives a rotated box's corners as pairs.
            ("RotatedBbox", (50, 50, 20, 10, 90), {}, [45, 40, 55, 60], 200),
            ("Ellipse", (80, 40, 120, 60), {"rotation": 90.0}, [90, 30, 110, 70], 628),
        ],
    )
    def test_turned_shapes_export_what_encloses_them(
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
    def test_a_rotation_by_no_angle_is_an_attribute(self, tmp_path, rotation) -> None:
        shape = Bbox(40, 40, 20, 10, label=0, attributes={"rotation": rotation, "n": 1})
        assert in_pixels(export_one(tmp_path, shape)) == [[40, 40, 60, 50]]

    def test_rotation_in_an_attribute_turns_the_mask_too(self, tmp_path) -> None:
        """CVAT and the 0.3 line: degrees about the centre, clockwise."""
        shape = Bbox(80, 40, 40, 20, label=0, attributes={"rotation": 45.0})
        found = export_one(tmp_path, shape, save_masks=True)
        ((left, _, right, _),) = in_pixels(found)
        assert right - left == pytest.approx(60 * 2**-0.5, abs=0.01)
        mask = decode_mask_png(found.masks[0].data)
        assert int(mask.sum()) == pytest.approx(800, abs=60)
        assert mask[50 + 10, 100 + 10] and not mask[50 - 10, 100 + 10]

    @pytest.mark.parametrize("save_masks", [False, True])
    def test_what_was_drawn_comes_back(self, tmp_path, save_masks: bool) -> None:
        """Turned boxes, layers, groups of several objects, and the attributes of classes."""
        from datumaro.components import annotation

        turned = Bbox(80, 40, 40, 20, label=0, attributes={"rotation": 30.0, "n": 1}, z_order=2)
        as_it_comes = turned
        if hasattr(annotation, "RotatedBbox"):
            fields = {"label": 0, "attributes": {"n": 1}, "z_order": 2}
            as_it_comes = annotation.RotatedBbox(100, 50, 40, 20, 30, **fields)
        others = [
            annotation.Label(0, attributes={"rain": True, "of": "May"}),
            Bbox(1, 2, 30, 40, label=0, group=5, z_order=-1),
            Bbox(1, 2, 20, 30, label=0, group=5),
        ]
        alone = Bbox(5, 5, 5, 5, label=0, group=6)
        export_one(tmp_path, *others, turned, alone, save_masks=save_masks)
        (loaded,) = import_dataset(tmp_path)
        found = sorted(loaded.annotations, key=repr)
        assert found == sorted([*others, as_it_comes, alone.wrap(group=0)], key=repr)

    def test_boxes_that_are_none_go_through_the_error_policy(self, tmp_path) -> None:
        shapes = [Bbox(float("nan"), 0, 1, 1, label=0), Bbox(5, 5, -3, 1), Bbox(0, 0, 9, 9)]
        refused = refusal(export_one, tmp_path, *shapes)
        assert "item 'a': a box is inverted or not finite" in str(refused)
        policy = TolerantExport()
        assert len(export_one(tmp_path, *shapes, error_policy=policy).boxes) == 1
        assert len(policy.errors) == 2

    def test_a_label_out_of_range_is_one_line(self, tmp_path) -> None:
        refused = refusal(export_one, tmp_path, Bbox(0, 0, 9, 9, label=7))
        assert "label 7 does not exist, there are 3 classes" in str(refused)

    @pytest.mark.parametrize(
        ("attributes", "features"),
        [
            # Numbers beyond a list, and half a surrogate pair, travel beside it.
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
            # It keeps its key from one of another name.
            ([{"is_group_of": True, "group_of": False}], {"image/object/group_of": [0]}),
        ],
    )
    def test_attributes_come_back(self, tmp_path, attributes, features) -> None:
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

    def test_coco_number_of_the_image_is_its_source_id(self, tmp_path) -> None:
        (found,) = export(dataset_of(item("a", attributes={"id": 139})), tmp_path)
        assert found.source_id == "139"

    def test_attributes_with_and_without_a_key_of_their_own(self, tmp_path, caplog) -> None:
        own = {"occluded": True, "track_id": 7, "pose": "Left", "area": 81.0}
        others = {"score": 0.5, "count": np.int64(3), "parked": True, "empty": ""}
        first = Bbox(0, 0, 9, 9, label=0, attributes=own | others | {"odd": object()})
        second = Bbox(20, 0, 9, 9, label=0, attributes={"occluded": False, "pose": "Right"})
        export_one(tmp_path, first, second)
        keys = set(next(iter(read_examples(tmp_path))))
        assert {"image/object/occluded", "image/object/track/label", "image/object/area"} <= keys
        assert {"image/object/view", "image/object/attribute/score"} <= keys
        (loaded,) = import_dataset(tmp_path)
        found = [one.attributes for one in loaded.annotations]
        assert found[0] == own | others
        assert found[0]["parked"] is True and found[0]["occluded"] is True
        assert found[1] == {"occluded": False, "pose": "Right"}
        assert "attributes not written: 1 odd" in caplog.text

    def test_image_level_labels(self, tmp_path) -> None:
        shapes = [Label(0, attributes={"score": 0.25}), Label(1)]
        export_one(tmp_path, *shapes)
        (loaded,) = import_dataset(tmp_path)
        assert [(one.label, one.attributes) for one in loaded.annotations] == [
            (0, {"score": 0.25}),
            (1, {"score": 1.0}),
        ]

    def test_captions(self, tmp_path, caplog) -> None:
        shapes = [Caption("a cat"), Caption("кот", attributes={"by": "me"})]
        found = export_one(tmp_path, *shapes, Bbox(0, 0, 9, 9, label=1))
        assert found.captions == ["a cat", "кот"]
        assert next(iter(read_examples(tmp_path))).byte_strings("image/caption")[0] == b"a cat"
        assert "attributes not written: 1 by (of a caption)" in caplog.text
        (loaded,) = import_dataset(tmp_path)
        captions = [one.caption for one in loaded.annotations if isinstance(one, Caption)]
        assert captions == ["a cat", "кот"]

    def test_unlabelled_boxes_come_back_unlabelled(self, tmp_path, caplog) -> None:
        export_one(tmp_path, Bbox(0, 0, 9, 9), Bbox(0, 0, 5, 5, label=2))
        (loaded,) = import_dataset(tmp_path)
        assert [one.label for one in loaded.annotations] == [None, 2]
        assert "without a class, written as id 0 with an empty text: 1" in caplog.text

    def test_what_cannot_be_carried_is_counted_in_one_message(self, tmp_path, caplog) -> None:
        shapes = [
            PolyLine([0, 0, 1, 1], label=0),
            PolyLine([0, 0, 1, 2], label=0),
            Points([1, 1], label=0),
            Bbox(-10, 0, 20, 10, label=0),
        ]
        found = export_one(tmp_path, *shapes)
        (output,) = [r.getMessage() for r in caplog.records if r.name == "tfod.datumaro"]
        assert output == (
            "tf_detection_api: not written, because the format cannot store them: 2 polyline, "
            "1 points without a schema; boxes that extend beyond the image, "
            "written unchanged: 1"
        )
        assert found.boxes[0, 0] == np.float32(-0.05)

    def test_nothing_to_say_says_nothing(self, tmp_path, caplog) -> None:
        export_one(tmp_path, Bbox(0, 0, 9, 9, label=0))
        assert caplog.text == ""


class TestClasses:
    """Ids and names on the way out."""

    def test_ids_survive_from_import_to_export(self, make_shard, tmp_path) -> None:
        source = tmp_path / "in"
        make_shard("s", image() | objects([[0, 0, 1, 1]], ["b"], [7]), folder=source)
        text = "item {\n\tid: 3\n\tname: 'a'\n\tdisplay_name: 'A'\n}\n\n"
        text += "item {\n\tid: 7\n\tname: 'b'\n}\n\n"
        (source / "label_map.pbtxt").write_text(text)
        (found,) = export(import_dataset(source), tmp_path / "out")
        assert found.class_label == [7]
        assert (tmp_path / "out" / "label_map.pbtxt").read_text() == text

    def test_wanted_label_map(self, tmp_path) -> None:
        found = export_one(tmp_path, Bbox(0, 0, 9, 9, label=1), label_map="coco")
        assert (found.class_text, found.class_label) == (["dog"], [18])
        label_map, _ = read_label_map(tmp_path / "label_map.pbtxt")
        assert len(label_map.items) == 81 and label_map.find("кошка").id == 91

    def test_a_class_more_where_the_largest_id_is_taken(self, tmp_path) -> None:
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
    def test_unlabelled_where_zero_is_a_class(self, make_shard, tmp_path, key) -> None:
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

    def test_no_classes_at_all(self, tmp_path) -> None:
        export(dataset_of(item("a"), names=[]), tmp_path)
        assert ids_of(import_dataset(tmp_path)) == {}


class TestShards:
    """Numbers, sizes, compression."""

    @pytest.mark.parametrize(("items", "wanted"), [(5, 2), (2, 5)])
    def test_num_shards(self, tmp_path, items: int, wanted: int) -> None:
        """No shard is empty: one of no bytes looks like a failed download; nobody needs one."""
        export(dataset_of(*[item(str(n)) for n in range(items)]), tmp_path, num_shards=wanted)
        assert sorted(os.listdir(tmp_path)) == [
            "default-00000-of-00002.tfrecord",
            "default-00001-of-00002.tfrecord",
            "label_map.pbtxt",
        ]
        loaded = import_dataset(tmp_path)
        assert list(loaded.subsets()) == ["default"]
        assert sorted(one.id for one in loaded) == list("01234")[:items]

    def test_shard_size(self, tmp_path) -> None:
        source = dataset_of(*[item(str(n), data=jpeg()) for n in range(6)])
        export(source, tmp_path, save_media=True, shard_size=3 * len(jpeg()))
        shards = sorted(tmp_path.glob("*.tfrecord"))
        assert len(shards) == 3 and max(s.stat().st_size for s in shards) <= 3 * len(jpeg())
        assert [one.id for one in import_dataset(tmp_path)] == list("012345")

    @pytest.mark.parametrize(
        "options",
        [
            {"num_shards": 2, "shard_size": 5},
            {"compression": "rar"},
            {"label_key": "name"},
            {"label_map": "nope"},
            {"image_ext": "bla"},
        ],
    )
    def test_options_that_make_no_sense(self, tmp_path, options) -> None:
        with pytest.raises(DatasetExportError):
            export_one(tmp_path, **options)

    def test_stale_shards_of_the_subset_go(self, tmp_path) -> None:
        source = dataset_of(item("a"), item("b"), item("c"))
        export(source, tmp_path, num_shards=3)
        assert len(list(tmp_path.glob("*.tfrecord"))) == 3
        shutil.copy(tmp_path / "default-00000-of-00003.tfrecord", tmp_path / "other.tfrecord")
        export(dataset_of(item("a")), tmp_path)
        assert sorted(p.name for p in tmp_path.glob("*.tfrecord")) == [
            "default.tfrecord",
            "other.tfrecord",
        ]

    def test_other_options_in_place_write_everything_anew(self, tmp_path) -> None:
        """Datumaro takes an export to where the dataset lies for a patch of what changed."""
        source = dataset_of(item("a"), item("b"))
        export(source, tmp_path)
        export(source, tmp_path, num_shards=2)
        assert len(list(tmp_path.glob("*.tfrecord"))) == 2


class TestWholeOrNotAtAll:
    """Files appear complete or not at all."""

    def test_a_failing_item_leaves_the_previous_files(self, tmp_path) -> None:
        export_one(tmp_path)
        before = files_in(tmp_path)

        def failing(*_: Any) -> bytes:
            raise KeyboardInterrupt

        media = compat.image_from_bytes(failing, "b.jpg", (1, 1))
        source = dataset_of(item("a", data=jpeg()), DatasetItem(id="b", media=media))
        with pytest.raises(KeyboardInterrupt):
            export(source, tmp_path, save_media=True)
        assert files_in(tmp_path) == before


class TestInPlace:
    """``dataset.save`` into the folder that a dataset came from."""

    def three(self, folder: Path) -> Dataset:
        source = dataset_of(
            *[item(name, Bbox(0, 0, 9, 9, label=0), data=jpeg(), subset=name) for name in "abc"]
        )
        export(source, folder, save_media=True)
        return import_dataset(folder)

    def test_keeps_images(self, tmp_path) -> None:
        loaded = self.three(tmp_path)
        loaded.put(item("new", data=jpeg(colour=5), subset="a"))
        loaded.save()
        again = content(import_dataset(tmp_path))
        # save_media was not asked for, but the shard that was replaced may be their only place.
        assert again["a", "a"]["image"] == jpeg()
        assert again["new", "a"]["image"] == jpeg(colour=5)

    @pytest.mark.parametrize("name", ["c", "b, c\n"])
    def test_an_emptied_subset_has_no_shard(self, tmp_path, name: str) -> None:
        source = dataset_of(item("a", subset="a"), item("c", subset=name))
        export(source, tmp_path)
        source.remove("c", name)
        source.save()
        assert [one.name for one in tmp_path.glob("*.tfrecord")] == ["a.tfrecord"]
        assert [one.id for one in import_dataset(tmp_path)] == ["a"]

    @pytest.mark.parametrize(
        "names",
        [
            ["train.record"],
            ["train.record-00000-of-00002", "train.record-00001-of-00002"],
            ["train/Objects.tfrecord", "valid/Objects.tfrecord"],
            ["annotations/train.tfrecord"],
            ["TRAIN.TFRECORD"],
            ["train.tfrecord.gz"],
        ],
    )
    def test_any_layout_is_replaced_not_doubled(self, tmp_path, names) -> None:
        folder = tmp_path / "d"
        for number, name in enumerate(names):
            (made,) = write_records(
                tmp_path / "made",
                "s",
                [encode({"image/filename": f"{number}.jpg", "image/encoded": jpeg(colour=number)})],
                compression="gzip" if name.endswith(".gz") else "none",
            )
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Path(made).rename(folder / name)
        (tmp_path / "label_map.pbtxt").write_text("")
        bystander = folder / "elsewhere.txt"
        bystander.write_text("x")
        loaded = import_dataset(folder)
        before = content(loaded)
        first = next(iter(loaded))
        first.attributes["edited"] = 1
        loaded.put(first)
        loaded.save()
        after = content(import_dataset(folder))
        assert list(after) == list(before) and bystander.exists()
        assert [one["image"] for one in after.values()] == [one["image"] for one in before.values()]
        assert after[first.id, first.subset]["attributes"]["edited"] == 1

    def test_saving_elsewhere_leaves_the_source_alone(self, tmp_path) -> None:
        """An export binds the dataset to its folder; what it was read from is not that folder."""
        self.three(tmp_path / "a")
        loaded = import_dataset(tmp_path / "a")
        export(loaded, tmp_path / "b", save_media=True)
        loaded.put(item("new", subset="a"))
        loaded.remove("c", "c")
        loaded.save()
        assert len(list((tmp_path / "a").glob("*.tfrecord"))) == 3
        found = content(import_dataset(tmp_path / "b"))
        assert sorted(name for name, _ in found) == ["a", "b", "new"]
        assert found["a", "a"]["image"] == jpeg()

    def test_a_renamed_subset_replaces_its_shards(self, tmp_path) -> None:
        self.three(tmp_path)
        loaded = import_dataset(tmp_path, subset="all")
        loaded.put(item("new", subset="all"))
        loaded.save()
        assert [p.name for p in tmp_path.glob("*.tfrecord")] == ["all.tfrecord"]
        assert sorted(one.id for one in import_dataset(tmp_path)) == ["a", "b", "c", "new"]

    def test_other_shards_in_the_folder_are_left_alone(self, tmp_path, caplog) -> None:
        export(dataset_of(item("o", subset="other"), names=["x"]), tmp_path)
        source = dataset_of(item("a", subset="a"))
        export(source, tmp_path)
        assert "written with the old one: other" in caplog.text
        source.put(item("b", subset="a"))
        source.save()
        assert (tmp_path / "other.tfrecord").exists()

    def test_subsets_named_like_shards_or_folders(self, tmp_path) -> None:
        names = ["train", "train-00000-of-00002", "train-00001-of-00002", "train/night"]
        export(dataset_of(*[item("a", subset=name) for name in names]), tmp_path)
        assert sorted(import_dataset(tmp_path).subsets()) == sorted(names)

    def test_subsets_that_are_gone_are_removed(self, tmp_path) -> None:
        loaded = self.three(tmp_path)
        loaded.transform("map_subsets", mapping={"a": "x", "b": "x", "c": "c"})
        loaded.save(save_media=True)
        assert sorted(p.name for p in tmp_path.glob("*.tfrecord")) == ["c.tfrecord", "x.tfrecord"]
        again = import_dataset(tmp_path)
        assert sorted((one.id, one.subset) for one in again) == [("a", "x"), ("b", "x"), ("c", "c")]
        assert all(one["image"] == jpeg() for one in content(again).values())


def test_classes_that_are_known_by_their_id_alone(tmp_path) -> None:
    """The label map has the text of the records, and a text that is a number its own class."""
    box = [0.25, 0.5, 0.5, 1]
    found = objects([box, box], label=[5, 2]), objects([box], ["5"], [3])
    records = [encode(image(f"{n}.jpg") | one) for n, one in enumerate(found)]
    write_shard(tmp_path / "in", "default", *records, label_map=None)
    exported = export(import_dataset(tmp_path / "in"), tmp_path / "out")
    texts = [(one.class_text, one.class_label) for one in exported]
    assert texts == [(["5 (5)", "2"], [5, 2]), (["5"], [3])]
    label_map, _ = read_label_map(tmp_path / "out" / "label_map.pbtxt")
    assert [(one.id, one.name) for one in label_map.items] == [(2, "2"), (3, "5"), (5, "5 (5)")]


@pytest.mark.parametrize("name", ["tf_detection_api", "tf_keras_coco"])
def test_outlines_in_a_group_with_their_box_are_counted(tmp_path, caplog, name: str) -> None:
    box = Bbox(50, 10, 50, 30, label=0, group=1)
    parts = [Polygon([50, 10, 100, 10, x, 40], label=0, group=1, id=7) for x in (50, 100)]
    source = dataset_of(item("a", box, *parts, data=jpeg()))
    source.export(str(tmp_path / "boxes"), name, save_media=True)
    assert "outlines of boxes not written: 2 polygon" in caplog.text
    caplog.clear()
    source.export(str(tmp_path / "masks"), "tf_detection_api", save_media=True, save_masks=True)
    assert caplog.text == ""
