"""``tf_keras_coco``: the records of the Keras recipe, in both directions."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datumaro.components.annotation import Bbox, Label, Mask, Points, Polygon
from datumaro.components.dataset import Dataset
from datumaro.components.environment import Environment
from tfod.datumaro import compat
from tfod.sources.reading import read_examples
from tfod.tfrecord.writer import write_records

from tests.datumaro.conftest import (
    TolerantImport,
    content,
    dataset_of,
    ids_of,
    imaged,
    import_dataset,
    labels_of,
    refusal,
)
from tests.files import files_in
from tests.image_kinds import HEIGHT, WIDTH, saved
from tests.records import encode

FORMAT = "tf_keras_coco"
load = partial(import_dataset, name=FORMAT)
dataset = partial(dataset_of, names=("cat", "dog"))
PNG, JPEG = saved("RGB", "PNG"), saved("RGB", "JPEG")
item = partial(imaged, data=JPEG)


def recipe_record(number: int, image: int = 7, **changes: Any) -> dict[str, Any]:
    """A record of the recipe."""
    return {
        "image": JPEG,
        "path": f"val/{image:012d}.jpg",
        "area": float(number),
        "bbox": [float(number), 2.0, 3.0, 4.5],
        "category_id": number % 3 * 10 + 1,
        "id": 100 + number,
        "image_id": image,
    } | changes


def write_recipe(folder: Path, name: str, *records: dict[str, Any]) -> None:
    """A file of the recipe under its own name."""
    write_records(folder, "x", [encode(one) for one in records], name_files=lambda _: [name])


def records_in(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            "path": one.byte_strings("path")[0].decode(),
            "area": one.floats("area").tolist()[0],
            "bbox": one.floats("bbox").tolist(),
            **{key: one.ints(key)[0] for key in ("category_id", "id", "image_id")},
        }
        for one in read_examples(folder)
    ]


class TestReading:
    def test_records_of_a_image_become_one_item(self, tmp_path, warnings) -> None:
        parts = recipe_record(1), recipe_record(2, image=8), recipe_record(3)
        write_recipe(tmp_path, "file_00-3.tfrec", *parts)
        write_recipe(tmp_path, "file_01-1.tfrec", recipe_record(4))
        found = load(tmp_path)
        assert not warnings()
        assert [(one.id, one.subset, one.attributes["id"]) for one in found] == [
            ("val/000000000007", "default", 7),
            ("val/000000000008", "default", 8),
        ]
        first = next(iter(found))
        assert [one.id for one in first.annotations] == [101, 103, 104]
        assert [one.attributes for one in first.annotations] == [{"area": n} for n in (1, 3, 4)]
        names = labels_of(found)
        assert [names[one.label] for one in first.annotations] == ["11", "1", "11"]
        assert [one.points for one in first.annotations][1] == [3.0, 2.0, 6.0, 6.5]
        assert compat.read_image_bytes(first.media) == JPEG and tuple(first.media.size) == (21, 34)
        assert ids_of(found) == {"1": 1, "11": 11, "21": 21}

    def test_subsets_by_name_folder_and_caller(self, tmp_path) -> None:
        write_recipe(tmp_path, "a%2Fb_00-1.tfrec", recipe_record(1))
        write_recipe(tmp_path / "train", "file_00-1.tfrec", recipe_record(2))
        write_recipe(tmp_path, "petals.tfrec", recipe_record(3))
        assert sorted(load(tmp_path).subsets()) == ["a/b", "petals", "train"]
        assert list(load(tmp_path, subset="mine").subsets()) == ["mine"]
        # The same number in another subset is another image.
        assert len(load(tmp_path)) == 3

    def test_another_image_of_the_same_number_is_told(self, tmp_path, warnings) -> None:
        other = recipe_record(2, image=7) | {"image": PNG}
        write_recipe(tmp_path, "file_00-2.tfrec", recipe_record(1), other)
        assert len(load(tmp_path)) == 1
        (output,) = warnings()
        assert output.startswith("records whose image differs from")

    def test_a_bad_box_is_reported_and_ids_stay_in_place(self, tmp_path) -> None:
        bad = [1.0, 1.0, -5.0, 2.0]
        write_recipe(tmp_path, "file_00-1.tfrec", recipe_record(1, bbox=bad))
        assert "record 0, byte 0" in str(refusal(load, tmp_path))
        lists = {"category_id": [1, 2], "id": [5, 6], "area": [1.0, 2.0]}
        two = recipe_record(1, bbox=[*bad, 0.0, 0.0, 5.0, 5.0], **lists)
        write_recipe(tmp_path, "file_00-1.tfrec", two)
        policy = TolerantImport()
        (found,) = load(tmp_path, error_policy=policy)
        assert [one.id for one in found.annotations] == [6] and len(policy.errors) == 1

    @pytest.mark.parametrize(("image", "bbox"), [(b"broken", None), (JPEG, [1.0])])
    def test_a_bad_record_names_file_record_and_byte(self, tmp_path, image, bbox) -> None:
        second = recipe_record(2) | {"image": image} | ({"bbox": bbox} if bbox else {})
        write_recipe(tmp_path, "file_00-2.tfrec", recipe_record(1), second)
        output = str(refusal(load, tmp_path))
        length = len(encode(recipe_record(1))) + 16
        assert f"file_00-2.tfrec, record 1, byte {length}: bbox " in output

    def test_other_shards_are_refused(self, make_shard, tmp_path) -> None:
        make_shard("s", {"x": 1, "y": 2})
        output = str(refusal(load, tmp_path))
        assert "its first record has the keys x, y, but none of area, bbox" in output


class TestWriting:
    def test_a_record_is_what_the_recipe_writes(self, tmp_path) -> None:
        source = dataset(item("a/b", Bbox(1.1, 2.2, 3.3, 4.4, label=1, id=5), attributes={"id": 9}))
        source.export(str(tmp_path), FORMAT)
        assert sorted(os.listdir(tmp_path)) == ["file_00-1.tfrec", "label_map.pbtxt"]
        (found,) = read_examples(tmp_path)
        wanted = {
            "image": JPEG,
            "path": "a/b.jpg",
            "area": 3.3 * 4.4,
            "bbox": [1.1, 2.2, 3.3, 4.4],
            "category_id": 2,
            "id": 5,
            "image_id": 9,
        }
        assert bytes(found.record.payload) == encode(wanted)

    def test_round_trip(self, tmp_path, warnings) -> None:
        for name, number in (("train_00-3.tfrec", 1), ("val_00-3.tfrec", 20)):
            places = ((0, 1), (1, 1), (2, 8))
            write_recipe(
                tmp_path / "a", name, *(recipe_record(number + i, image=j) for i, j in places)
            )
        (tmp_path / "a" / "label_map.pbtxt").write_text(
            "".join(f"item {{ id: {i} name: 'n{i}' }}" for i in (1, 11, 21))
        )
        first = load(tmp_path / "a")
        first.export(str(tmp_path / "b"), FORMAT)
        for name in ("train_00-3.tfrec", "val_00-3.tfrec"):
            assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
        assert content(load(tmp_path / "b")) == content(first)
        assert not warnings()

    def test_through_the_other_format(self, tmp_path) -> None:
        write_recipe(tmp_path / "a", "file_00-2.tfrec", recipe_record(1), recipe_record(2, image=8))
        load(tmp_path / "a").export(str(tmp_path / "b"), "tf_detection_api", save_media=True)
        between = Dataset.import_from(str(tmp_path / "b"), "tf_detection_api")
        assert {one.attributes["source_id"] for one in between} == {"7", "8"}
        assert ids_of(between) == {"11": 11, "21": 21}

    @pytest.mark.parametrize(
        ("subsets", "found"),
        [
            # Each subset has them once; one has them twice, or not at all.
            (["train", "val"], [(4, 3), (4, 3)]),
            (["train", "train"], [(1, 1), (2, 2)]),
        ],
    )
    def test_ids_stay_where_a_subset_has_them_once(self, tmp_path, subsets, found) -> None:
        items = (
            item(name, Bbox(0, 0, 2, 2, label=0, id=4), subset=subset, attributes={"id": 3})
            for name, subset in zip("ab", subsets, strict=True)
        )
        dataset(*items).export(str(tmp_path), FORMAT)
        assert [(one["id"], one["image_id"]) for one in records_in(tmp_path)] == found

    def test_ids_of_images_that_have_none(self, tmp_path) -> None:
        box = Bbox(0, 0, 2, 2, label=0, id=4)
        source = dataset(item("a", box, attributes={"id": 3}), item("b", box.wrap(id=5)))
        source.export(str(tmp_path), FORMAT)
        assert [(one["id"], one["image_id"]) for one in records_in(tmp_path)] == [(4, 1), (5, 2)]

    def test_areas(self, tmp_path) -> None:
        mask = np.zeros((HEIGHT, WIDTH), bool)
        mask[:3, :5] = True
        source = dataset(
            item(
                "a",
                Polygon([0, 0, 10, 0, 0, 10], label=0, id=1, group=1),
                Mask(mask, label=0, id=2, group=2),
                Bbox(0, 0, 4, 5, label=0, id=3, attributes={"area": 7.5}),
                Bbox(0, 0, 4, 5, label=0, id=4, attributes={"area": "large"}),
            )
        )
        source.export(str(tmp_path), FORMAT)
        found = {one["id"]: (one["area"], one["bbox"]) for one in records_in(tmp_path)}
        area, box = found.pop(1)
        # The 0.3 line counts the pixels of the polygon, 1.x its exact area.
        assert area in (45.0, 50.0) and box == [0, 0, 10, 10]
        assert found == {2: (15.0, [0, 0, 5, 3]), 3: (7.5, [0, 0, 4, 5]), 4: (20.0, [0, 0, 4, 5])}

    def test_what_is_lost_is_counted(self, tmp_path, warnings) -> None:
        source = dataset(
            item("a"),
            item(
                "b",
                Bbox(-2, 0, 4, 4, id=1, attributes={"difficult": True, "occluded": False}),
                Label(0),
                Points([1, 1], label=0),
                attributes={"weather": "fog", "id": 4},
            ),
        )
        source.export(str(tmp_path), FORMAT)
        (output,) = warnings()
        assert output.startswith("tf_keras_coco: ")
        assert set(output.removeprefix("tf_keras_coco: ").split("; ")) == {
            "not written, because the format cannot store them: 1 points without a schema",
            "boxes that extend beyond the image, written unchanged: 1",
            "images not written, because each record needs an object: 1",
            "not written: 1 class of the whole image",
            "attributes not written: 1 weather (of the image), 1 difficult",
            "without a class, written as category -1: 1",
        }
        (found,) = load(tmp_path)
        assert found.annotations[0].label is None

    def test_files_of_4096(self, tmp_path) -> None:
        boxes = [Bbox(0, 0, 1, 1, label=0) for _ in range(4098)]
        dataset(item("a", *boxes, data=saved("L", "PNG", (2, 2)))).export(str(tmp_path), FORMAT)
        assert sorted(os.listdir(tmp_path)) == [
            "file_00-4096.tfrec",
            "file_01-2.tfrec",
            "label_map.pbtxt",
        ]
        (found,) = load(tmp_path)
        assert len(found.annotations) == 4098

    def test_a_image_must_be_there_and_nothing_changes_without(self, tmp_path) -> None:
        dataset(item("a", Bbox(0, 0, 1, 1, label=0))).export(str(tmp_path), FORMAT)
        before = files_in(tmp_path)
        bad = dataset(item("b", Bbox(0, 0, 1, 1, label=0), data=None))
        assert "item 'b' has no image" in str(refusal(bad.export, str(tmp_path), FORMAT))
        assert files_in(tmp_path) == before

    def test_saving_in_place(self, tmp_path) -> None:
        write_recipe(tmp_path, "train_00-2.tfrec", recipe_record(1), recipe_record(2, image=8))
        write_recipe(tmp_path, "val.tfrec", recipe_record(3))  # its name is another's
        (tmp_path / "notes.txt").write_text("mine")
        found = load(tmp_path)
        found.remove("val/000000000008", "train")
        found.remove("val/000000000007", "val")
        found.save(save_media=True)
        assert sorted(os.listdir(tmp_path)) == ["label_map.pbtxt", "notes.txt", "train_00-1.tfrec"]
        assert len(load(tmp_path)) == 1

    def test_what_lies_in_the_folder_is_replaced_only_by_the_same_subset(self, tmp_path) -> None:
        one = item("a", Bbox(0, 0, 1, 1, label=0), subset="train")
        two = item("b", Bbox(0, 0, 1, 1, label=0), subset="train")
        for others in ("train00-9.tfrec", "00-8x8-9.tfrec", "file.tfrec"):
            (tmp_path / others).write_bytes(b"")
        dataset(one, two).export(str(tmp_path), FORMAT)
        dataset(item("c", Bbox(0, 0, 1, 1, label=0), subset="val")).export(str(tmp_path), FORMAT)
        dataset(one).export(str(tmp_path), FORMAT)
        dataset(item("d", Bbox(0, 0, 1, 1, label=0))).export(str(tmp_path), FORMAT)
        assert sorted(path.name for path in tmp_path.glob("*.tfrec")) == [
            "00-8x8-9.tfrec",
            "file.tfrec",
            "file_00-1.tfrec",
            "train00-9.tfrec",
            "train_00-1.tfrec",
            "val_00-1.tfrec",
        ]


def test_datumaros_own_coco(tmp_path) -> None:
    """Ids of images and annotations stay; classes get COCO's, which Datumaro drops, by option."""
    (tmp_path / "images" / "val").mkdir(parents=True)
    (tmp_path / "images" / "val" / "1.jpg").write_bytes(JPEG)
    (tmp_path / "annotations").mkdir()
    common = {"iscrowd": 0, "category_id": 64, "image_id": 7, "segmentation": []}
    document = {
        "images": [{"id": 7, "file_name": "1.jpg", "height": HEIGHT, "width": WIDTH}],
        "categories": [{"id": 2, "name": "person"}, {"id": 64, "name": "potted plant"}],
        "annotations": [
            {**common, "id": 4, "bbox": [1.07, 2.93, 8.65, 8.68], "area": 75.08},
            {**common, "id": 5, "bbox": [7, 1, 3, 9], "area": 27},
        ],
    }
    (tmp_path / "annotations" / "instances_val.json").write_text(json.dumps(document))
    source = Dataset.import_from(str(tmp_path), "coco")
    source.export(str(tmp_path / "out"), FORMAT, label_map="coco")
    assert sorted(os.listdir(tmp_path / "out")) == ["label_map.pbtxt", "val_00-2.tfrec"]
    first, second = sorted(records_in(tmp_path / "out"), key=lambda one: one["id"])
    assert first == {
        "path": "1.jpg",
        "area": pytest.approx(75.08, abs=0.01),
        "bbox": pytest.approx([1.07, 2.93, 8.65, 8.68]),
        "category_id": 64,
        "id": 4,
        "image_id": 7,
    }
    assert (second["id"], second["bbox"], second["area"]) == (5, [7, 1, 3, 9], 27)


def test_who_recognises_what(tmp_path, make_shard) -> None:
    write_recipe(tmp_path / "keras", "file_00-1.tfrec", recipe_record(1))
    image = {"image_raw": JPEG, "label": 1, "height": 21, "width": 34, "depth": 3}
    make_shard("train", image, folder=tmp_path / "label")
    make_shard("train", {"image/encoded": JPEG}, folder=tmp_path / "od")
    make_shard("train", {"x": 1}, folder=tmp_path / "none")
    kinds = {
        name: [
            one
            for one in Environment().detect_dataset(str(tmp_path / name))
            if one.startswith("tf_")
        ]
        for name in ("keras", "label", "od", "none")
    }
    assert kinds == {
        "keras": [FORMAT],
        "label": ["tf_image_classification"],
        "od": ["tf_detection_api"],
        "none": [],
    }
