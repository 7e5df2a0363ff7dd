"""Import of records as they exist in the wild."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datumaro.components.errors import DatasetImportError
from tfod.cli.main import main
from tfod.datumaro import compat
from tfod.errors import RecordError, ShardError
from tfod.sources.reading import read_detections
from tfod.tfrecord.reader import RecordBatch
from tfod.tfrecord.writer import write_records

from tests.datumaro.conftest import (
    Progress,
    TolerantImport,
    boxes,
    ids_of,
    jpeg,
    labels_of,
    refusal,
)
from tests.files import write_files
from tests.image_kinds import image_of_pixels
from tests.records import encode, image, objects

BOX = [0.25, 0.1, 0.5, 0.4]
OPENCV = "node { name: 'x' op: 'Const' }"
"""The description of a network, which many folders of shards have."""


class TestClasses:
    """The text has precedence over the id; ids are kept; nothing is out of range."""

    @pytest.mark.parametrize(
        ("records", "label_map", "classes", "ids", "warning"),
        [
            # Gaps, and ids from 0 without a label map.
            ([(["truck", "car"], [7, 3])], {3: "car", 7: "truck"}, ["truck", "car"],
             {"car": 3, "truck": 7}, ""),
            ([(["b", "a"], [1, 0])], {}, ["b", "a"], {"a": 0, "b": 1}, ""),
            # Only ids, which a label map or another record explains; only texts; neither.
            ([(None, [2, 9])], {}, ["2", "9"], {"2": 2, "9": 9}, ""),
            ([(None, [2, 9])], {2: "two"}, ["two", "9"], {"two": 2, "9": 9}, ""),
            ([(None, [5]), (["x"], [5])], {}, ["x", "x"], {"x": 5}, ""),
            ([(["x"], None), (None, None)], {}, ["x", None], {"x": 1}, ""),
            # Datumaro's exporter empties texts that are not ASCII; the label map has them.
            ([(["", "", "cat"], [1, 0, 2])], {1: "кошка", 2: "cat"}, ["кошка", None, "cat"],
             {"кошка": 1, "cat": 2}, ""),
            # The id contradicts the text; the map has no class for the text.
            ([(["car"], [2])], {1: "car", 2: "bus"}, ["car"], {"car": 1, "bus": 2},
             "1 'car' with id 2"),
            ([(["dog"], [9])], {1: "car"}, ["dog"], {"car": 1, "dog": 9}, "1 'dog'"),
            *(([([name], [4])], {}, [name], {name: 4}, "")
              for name in ("it's", 'a "b"', "日本語", "é \\ n", "two words")),
            # In the order of the map's ids, then of ids, then of appearance.
            ([(["zebra"], None), (["cat"], [9]), (["p"], [3])], {3: "p", 1: "d"},
             ["zebra", "cat", "p"], {"d": 1, "p": 3, "cat": 9, "zebra": 10}, ""),
            # Scripts that write the same id for everything, and ids that no label map can hold.
            ([(["a", "b", "c"], [0, 0, 0])], {}, ["a", "b", "c"], {"a": 0, "b": 1, "c": 2}, ""),
            ([(["a"], [1 << 40]), (None, [1 << 40])], {}, ["a", str(1 << 40)],
             {"a": 1, str(1 << 40): 2}, ""),
            ([([""], [0]), ([""], None), (None, [0]), (["x"], [-5]), ([""], [-1])], {},
             [None, None, "0", "x", None], {"0": 0, "x": 1}, ""),
            ([([""], [0]), (None, [1])], {0: "background", 1: "cat"}, ["background", "cat"],
             {"background": 0, "cat": 1}, ""),
            ([([b"caf\xe9"], [1])], {}, ["café"], {"café": 1}, "not UTF-8"),
        ],
    )  # fmt: skip
    def test_texts_and_ids(
        self, make_shard, load, tmp_path, warnings, records, label_map, classes, ids, warning
    ) -> None:
        lists = (objects([BOX] * len(text or label or "1"), text, label) for text, label in records)
        make_shard("s", *(image(f"{number}.jpg") | one for number, one in enumerate(lists)))
        if label_map:
            text = "".join(f"item {{ id: {n} name: '{name}' }}\n" for n, name in label_map.items())
            (tmp_path / "label_map.pbtxt").write_text(text, "utf-8")
        dataset = load()
        assert [box[0] for box in boxes(dataset)] == classes
        assert list(ids_of(dataset).items()) == list(ids.items())
        assert any(warning in output for output in warnings()) or not warning

    def test_splits_with_different_maps_get_one_list_of_classes(self, tmp_path, load) -> None:
        """Roboflow renumbers the classes in each export."""
        for split, names in (("train", ["bowl", "cup", "table"]), ("valid", ["cup", "table"])):
            record = image() | objects([BOX], ["cup"], [names.index("cup") + 1])
            write_records(tmp_path / split, "Objects", [encode(record)])
            items = (f'item {{ name: "{name}", id: {n}, }}' for n, name in enumerate(names, 1))
            (tmp_path / split / "Objects_label_map.pbtxt").write_text("\n".join(items))
        dataset = load()
        assert labels_of(dataset) == ["bowl", "cup", "table"]
        assert [box[0] for box in boxes(dataset)] == ["cup", "cup"]
        assert sorted(dataset.subsets()) == ["train", "valid"]

    @pytest.mark.parametrize(
        ("files", "name", "warning"),
        [
            ({"label_map.pbtxt": "item { id: 1 name: “cat” }"}, "cat", "quot"),
            ({"ssd.pbtxt": OPENCV}, "1", "ssd.pbtxt is not a label map"),
            ({"ssd.pbtxt": OPENCV, "classes.pbtxt": "item { id: 1 name: 'cat' }"}, "cat", ""),
            (dict.fromkeys(("pet_label_map.pbtxt", "coco_label_map.pbtxt"), "item { id: 1 }"),
             "1", "several are possible"),
        ],
    )  # fmt: skip
    def test_label_maps_in_the_folder(
        self, make_shard, load, tmp_path, warnings, files: Any, name: str, warning: str
    ) -> None:
        make_shard("s", image() | objects([BOX], None, [1]))
        write_files(tmp_path, files)
        assert labels_of(load()) == [name]
        assert any(warning in output for output in warnings()) or not warning

    def test_label_maps_by_option(self, make_shard, load, tmp_path) -> None:
        """A damaged label map is an error only if it is an option."""
        make_shard("s", image() | objects([BOX], None, [18]))
        assert boxes(load(label_map="coco"))[0][0] == "dog"
        (tmp_path / "classes.pbtxt").write_text("item { id: 1 name: 'cat' ")
        assert "classes.pbtxt" in str(refusal(load, label_map=str(tmp_path / "classes.pbtxt")))


class TestKeys:
    """Records with few keys, and with other ones."""

    def test_source_ids(self, make_shard, load) -> None:
        size = {"image/height": 10, "image/width": 10}
        source_ids = [{"image/source_id": one} for one in ("42", "")]
        others = image("a.jpg"), image("b.jpg") | source_ids[1], image("c.jpg") | source_ids[0]
        make_shard("s", size | source_ids[0], size, size | {"image/filename": ""}, *others)
        dataset = load()
        names = ["42", "record_000001", "record_000002", "a", "b", "c"]
        assert [item.id for item in dataset] == names
        assert [item.attributes["source_id"] for item in dataset][3:] == [None, "", "42"]

    def test_file_names(self, make_shard, load) -> None:
        roboflow = "Frame_jpg.rf." + "0123456789abcdef" * 2
        names = {
            "sub folder/кадр 1.jpg": ("sub folder/кадр 1", None),
            f"{roboflow}.jpg": (roboflow, None),
            "/data/kitti/000001.png": ("000001", "/data/kitti/000001.png"),
            "C:\\images\\x.jpg": ("x", "C:\\images\\x.jpg"),
            "1.jpg": ("1", None),
            "1.png": ("1.png", "1.png"),
            "frame.000123": ("frame.000123", "frame.000123"),
            "../up.jpg": ("up", "../up.jpg"),
        }
        make_shard("s", *map(image, [*names, "1.jpg"]))
        found = [(item.id, item.attributes.get("filename")) for item in load()]
        assert found == [*names.values(), ("1~2", "1.jpg")]

    def test_images_next_to_the_shard(self, make_shard, load, tmp_path) -> None:
        """They also have the size if the record has none."""
        sizeless = {"image/filename": "a.jpg"} | objects([BOX])
        make_shard("s", sizeless, image("b.jpg"), folder=tmp_path / "annotations")
        write_files(tmp_path, {"images/a.jpg": jpeg()})
        dataset = load()
        found, absent = dataset
        assert compat.read_image_bytes(found.media) == jpeg()
        assert boxes(dataset)[0][1:] == (50, 10, 100, 40)
        assert not absent.media.has_data and tuple(absent.media.size) == (100, 200)

    def test_a_name_never_finds_a_file_outside(self, make_shard, load, tmp_path) -> None:
        secret = tmp_path / "secret.jpg"
        secret.write_bytes(jpeg())
        make_shard("s", image(str(secret)), image("../secret.jpg"), folder=tmp_path / "d" / "e")
        assert not any(item.media.has_data for item in load(tmp_path / "d"))

    def test_unknown_features_are_reported(self, make_shard, load, warnings) -> None:
        make_shard("s", image() | {"image/mood": "a cat", "weather": [1, 2]})
        load()
        assert any("1 image/mood, 1 weather" in output for output in warnings())


MASK = np.zeros((100, 200), np.uint8)
MASK[20:30, 60:90] = 1


def masked(mask: Any) -> dict[str, Any]:
    """A record of an object whose box is larger than its mask."""
    return image() | objects([BOX], ["a"], [1]) | {"image/object/mask": [image_of_pixels(mask)]}


class TestObjects:
    """Masks, keypoints, attributes, image-level classes."""

    @pytest.mark.parametrize(
        "masks",
        [[image_of_pixels([[0, 1, 1], [0, 1, 0]]), b""], [0.0, 1, 1, 0, 1, 0] + [0.0] * 6],
        ids=["png", "numerical"],
    )
    def test_masks_and_boxes_in_one_record(self, make_shard, load, masks, warnings) -> None:
        record = image("a.png", 2, 3) | objects([BOX, BOX], ["a", "b"], [1, 2])
        make_shard("s", record | {"image/object/mask": masks})
        (item,) = load()
        assert [one.type.name for one in item.annotations] == ["mask", "bbox"]
        assert item.annotations[0].image.astype(int).tolist() == [[0, 1, 1], [0, 1, 0]]
        warning = ["masks without a pixel, imported as boxes: 1"] if masks[0] == 0 else []
        assert warnings() == warning

    def test_a_mask_keeps_the_box_of_its_record(self, make_shard, load, tmp_path) -> None:
        """The boxes of COCO are not the extents of their masks."""
        make_shard("s", masked(MASK), folder=tmp_path / "in")
        dataset = load(tmp_path / "in")
        (item,) = dataset
        assert item.annotations[0].get_bbox() == [50, 10, 50, 30]
        for options in ({}, {"save_masks": True}):
            out = tmp_path / f"out{len(options)}"
            dataset.export(str(out), "tf_detection_api", **options)
            (found,) = read_detections(out)
            assert found.boxes.tolist() == [np.array(BOX, "<f4").tolist()]
            (again,) = load(out)
            assert again.annotations[0].get_bbox() == [50, 10, 50, 30]
        assert again.annotations == item.annotations

    def test_boxes_of_masks(self, make_shard, load, warnings) -> None:
        (item,) = load(make_shard("s", masked(MASK)))
        mask = item.annotations[0]
        for other in (mask.wrap(label=0), copy.deepcopy(item).annotations[0]):
            assert other.get_bbox() == [50, 10, 50, 30]
        assert mask.wrap(image=np.roll(MASK, 50, axis=1)).get_bbox()[0] == 110
        opaque = np.zeros((100, 200, 4))
        opaque[:, :, 3] = 255
        opaque[5, 6, :3] = 1
        (item,) = load(make_shard("opaque", masked(opaque)))
        assert int(item.annotations[0].image.sum()) == 1
        (item,) = load(make_shard("empty", masked([[0, 0]])))
        assert item.annotations[0].get_bbox() == [50, 10, 50, 30]
        assert warnings() == ["masks whose size differs from the image: 1"]

    def test_keypoints(self, make_shard, load, tmp_path) -> None:
        (tmp_path / "label_map.pbtxt").write_text(
            "item { id: 1 name: 'person' keypoints { id: 1 label: 'eye' }"
            " keypoints { id: 0 label: 'nose' } } item { id: 2 name: 'dog' }"
        )
        points = {
            "image/object/keypoint/x": [0.5, 0.25, 0.0, 0.0],
            "image/object/keypoint/y": [0.5, 0.1, 0.0, 0.0],
            "image/object/keypoint/visibility": [2, 1, 0, 0],
        }
        make_shard("s", image() | objects([BOX, BOX], ["person", "dog"], [1, 2]) | points)
        dataset = load()
        (item,) = dataset
        box, points, other = item.annotations
        assert (box.type.name, points.type.name, other.type.name) == ("bbox", "points", "bbox")
        assert points.points == [50, 10, 100, 50] and points.group == box.group != 0
        assert [value.value for value in points.visibility] == [1, 2]
        schema = dataset.categories()[compat.AnnotationType.points].items[0]
        assert schema.labels == ["eye", "nose"]
        (tmp_path / "label_map.pbtxt").unlink()  # neither names nor visibility
        half = {f"image/object/keypoint/{side}": [0.5, np.nan] for side in "xy"}
        (item,) = load(make_shard("t", image() | objects([BOX], ["x"], [1]) | half))
        points = item.annotations[1]
        assert [value.value for value in points.visibility] == [2, 0]
        assert points.points == [100, 50, 0, 0]

    def test_captions_of_records_whose_classes_are_sorted(self, make_shard, load) -> None:
        record = image() | objects([BOX] * 2, ["dog", "cat"], [2, 1])
        make_shard("s", record | {"image/caption": ["a yard"]})
        dataset = load()
        assert sorted(one[0] for one in boxes(dataset)) == ["cat", "dog"]
        (item,) = dataset
        captions = [one.caption for one in item.annotations if one.type.name == "caption"]
        assert captions == ["a yard"]


NO_CLASS: dict[str, Any] = {"image/class/text": [], "image/class/label": []}


class TestDefects:
    """Errors name the record; a tolerant policy imports the other records."""

    def test_boxes_outside_are_clamped_and_counted_once(self, make_shard, load, warnings) -> None:
        make_shard("s", image() | objects([[-0.1, 0.5, 1.2, 0.6], [0.5, 0.25, 3.0, 0.5], BOX]))
        assert [box[1:] for box in boxes(load())][:2] == [(0, 50, 200, 60), (100, 25, 200, 50)]
        assert warnings() == ["boxes outside the image, clamped to its edge: 2"]

    @pytest.mark.parametrize(
        ("box", "message"),
        [
            ([float("nan"), 0.1, 0.5, 0.4], "not a box of finite numbers"),
            ([0.5, 0.1, 0.25, 0.4], "is inverted (xmin, ymin, xmax, ymax = 0.5, 0.1, 0.25, 0.4)"),
            ([0.5, 0.1, 0.49999, 0.4], "is inverted"),  # by less than a hundredth of a pixel
        ],
    )
    def test_invalid_boxes(self, make_shard, load, box, message, tmp_path) -> None:
        shard = make_shard("s", image("a.jpg"), image("b.jpg") | objects([BOX, box], ["x"] * 2))
        error = refusal(load)
        assert isinstance(error, RecordError) and error.record == 1 and error.offset
        assert f"{shard}, record 1, byte {error.offset}: image/object/bbox box 1" in str(error)
        assert message in str(error)
        (command,) = re.findall(r"type: tfod (repair .+)", str(error))
        name, source, _, *options = shlex.split(command)
        repaired = tmp_path.with_name(f"{tmp_path.name}-repaired")
        assert main([name, source, str(repaired), *options]) < 2
        assert [len(one.boxes) for one in read_detections(repaired)] == [0, 1]
        policy = TolerantImport()
        dataset = load(error_policy=policy)
        assert len(dataset) == 2 and len(boxes(dataset)) == 1
        assert [item_id for item_id, _ in policy.errors] == [("b", "s")]

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"image/object/bbox/xmin": [0.1, 0.2]}, "lists differ in length: 2 xmin, 1 ymin"),
            ({"image/object/class/text": ["a", "b"]}, "holds 2 values for 1 boxes"),
            ({"image/height": 1.5}, "image/height is float_list, expected int64_list"),
            ({"image/filename": ["a", "b"]}, "holds 2 values, expected one"),
            ({"image/width": [1, 2]}, "holds 2 values, expected one"),
            ({"image/encoded": [b"a", b"b"]}, "holds 2 values, expected one"),
            ({"image/object/mask": [0.5] * 3}, "holds 3 numbers, expected 1 x 100 x 200"),
            ({"image/object/keypoint/x": [0.5]}, "1 x and 0 y coordinates for 1 objects"),
            ({"image/class/text": ["a"], "image/class/label": [1, 2]}, "1 text, 2 label"),
            (NO_CLASS | {"image/class/confidence": [0.5]}, "0 text, 0 label, 1 confidence"),
            ({"image/width": []}, "the image size is unknown"),
        ],
    )
    def test_records_that_contradict_themselves(self, make_shard, load, bad, message) -> None:
        good = image() | objects([BOX], ["x"], [1])
        good |= {"image/class/text": ["sun"], "image/class/label": [1]}
        make_shard("s", good, good | bad, good)
        error = refusal(load)
        assert isinstance(error, RecordError) and error.record == 1 and message in str(error)
        policy = TolerantImport()
        assert len(load(error_policy=policy)) == 2
        assert policy.errors[0][0] == ("record 1", "s")

    def test_no_record_stays_in_memory(self, make_shard, load, tmp_path) -> None:
        """Neither items nor errors keep the buffers of records."""
        good = masked(MASK) | {"image/encoded": jpeg()}
        bad = good | {"image/width": [1, 2]}, {"age": 3}, good | objects([BOX[::-1]])
        shard = make_shard("s", good, *bad)
        policy = TolerantImport()
        dataset = load(error_policy=policy)
        assert (len(dataset), len(policy.errors)) == (2, 3)
        assert gc.isenabled()  # it is paused while shards are read
        other = make_shard("t", good, folder=tmp_path / "t")
        not_walked = load(other)
        batches = [one for one in gc.get_objects() if type(one) is RecordBatch]
        assert not [one for one in batches if one.shard in (shard, other)]
        assert len(not_walked) == 1

    def test_records_of_other_kinds(self, load, tmp_path) -> None:
        sequence = encode(image()) + b"\x12\x00"
        write_records(tmp_path, "s", [encode(image()), b"", encode({"age": 3}), sequence])
        policy = TolerantImport()
        assert len(load(error_policy=policy)) == 1
        messages = "has no features", "has the keys age", "feature lists of a SequenceExample"
        for (_, error), message in zip(policy.errors, messages, strict=True):
            assert message in str(error)

    def test_damaged_shards(self, make_shard, load) -> None:
        shard = Path(make_shard("s", image("a.jpg"), image("b.jpg")))
        data = shard.read_bytes()
        for damaged, record in ((data[:-1], 1), (data + b"\0" * 5, 2), (data[:20], 0)):
            shard.write_bytes(damaged)
            error = refusal(load)
            assert isinstance(error, ShardError) and error.record == record
            assert error.offset is not None and error.fix
        shard.write_bytes(b"")
        assert "is empty (0 bytes)" in str(refusal(load))

    def test_missing_shards_are_named(self, make_shard, load, tmp_path, warnings) -> None:
        make_shard("s", image())
        (tmp_path / "s.tfrecord").rename(tmp_path / "train.record-00002-of-00004")
        assert list(load().subsets()) == ["train"]
        assert any("train.record-00000-of-00004" in output for output in warnings())

    def test_files_folders_and_globs(self, make_shard, load, tmp_path) -> None:
        for path in (tmp_path, tmp_path / "nope", tmp_path / "*.record"):
            with pytest.raises(DatasetImportError, match=r"no shard|no such|no file matches"):
                load(path)
        make_shard("a", image())
        shard = make_shard("b", image())
        assert len(load(shard)) == 1
        assert len(load(tmp_path)) == len(load(tmp_path / "*.tfrecord")) == 2
        assert list(load(shard, subset="other").subsets()) == ["other"]


class TestImages:
    """Images are read from the shard on demand."""

    @pytest.mark.parametrize(
        ("encoded", "is_valid"),
        [
            (b"not an image", False),
            (b"\xff\xd8\xff" + b"x" * 50_000, False),
            (b"x" * (100 * 200 * 3 - 1), False),
            (bytes(100 * 200 * 3), True),
            (jpeg(), True),
            (jpeg()[:2] + b"\xff\xe2\xff\xff" + bytes(65_533) + jpeg()[2:], True),
            (image_of_pixels(np.zeros((100, 200))), True),
        ],
        ids=["text", "JPEG without an end", "few pixels", "pixels", "JPEG", "long profile", "PNG"],
    )
    def test_invalid_images_are_reported(
        self, make_shard, load, warnings, encoded: bytes, is_valid: bool
    ) -> None:
        """The record has the size, so that its boxes are imported."""
        record = image("b.jpg") | {"image/encoded": encoded} | objects([BOX], ["cat"], [1])
        make_shard("train", image("a.jpg") | {"image/encoded": jpeg()}, record)
        assert boxes(load(), "b") == [("cat", 50, 10, 100, 40)]
        if is_valid:
            assert warnings() == []
            return
        (output,) = warnings()
        assert "encoded image is neither a JPEG" in output
        assert output.endswith("with tfod check: 1 (the first: record 1 of train.tfrecord)")

    def test_they_survive_pickling_copies_and_replaced_files(self, make_shard, load) -> None:
        shard = Path(make_shard("s", image() | {"image/encoded": jpeg()}))
        (item,) = load()
        others = [copy.deepcopy(item)]
        if hasattr(compat.Image, "from_bytes"):  # the 0.3 line's images cannot be pickled at all
            others.append(pickle.loads(pickle.dumps(item)))
        for other in others:
            assert compat.read_image_bytes(other.media) == jpeg()
        aside = shard.with_suffix(".new")
        aside.write_bytes(b"another shard")
        aside.replace(shard)
        assert compat.read_image_bytes(item.media) == jpeg()
        assert np.asarray(item.media.data).shape[:2] == (100, 200)

    def test_an_overwritten_shard_is_an_error(self, make_shard, load) -> None:
        shard = Path(make_shard("s", image() | {"image/encoded": jpeg()}))
        (item,) = load()
        with shard.open("r+b") as file:
            file.write(bytes(shard.stat().st_size))
        with pytest.raises(ShardError, match="was replaced, changed or removed"):
            compat.read_image_bytes(item.media)


def test_progress_is_reported(make_shard, load) -> None:
    size, progress = Path(make_shard("s", image())).stat().st_size, Progress()
    load(progress_reporter=progress)
    assert progress.reported == [(size, "Reading TFRecords"), size]
