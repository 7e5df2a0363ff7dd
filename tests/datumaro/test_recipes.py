"""The formats of two recipes in both directions: ``tf_keras_coco``, ``tf_image_classification``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datumaro.components.annotation import Bbox, Label, Mask, Points, Polygon
from datumaro.components.dataset import Dataset
from datumaro.components.environment import Environment
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
from tests.files import files_in, write_file
from tests.image_kinds import HEIGHT, WIDTH, saved
from tests.records import encode

KERAS, CLASSIFICATION = "tf_keras_coco", "tf_image_classification"
PNG, JPEG, GRAY = saved("RGB", "PNG"), saved("RGB", "JPEG"), saved("L", "PNG")
item = partial(imaged, data=JPEG)
load_keras = partial(import_dataset, name=KERAS)
load = partial(import_dataset, name=CLASSIFICATION)
PIXEL = Bbox(0, 0, 1, 1, label=0)


def keras(number: int, image: int = 7, **changes: Any) -> dict[str, Any]:
    """A record of the Keras recipe."""
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
    """Write a file of the Keras recipe with this name."""
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


def labels_in(found: Any) -> dict[str, list[str]]:
    names = labels_of(found)
    return {one.id: [names[label.label] for label in one.annotations] for one in found}


class TestReadingKeras:
    def test_records_of_an_image_become_one_item(self, tmp_path, warnings) -> None:
        write_recipe(tmp_path, "file_00-3.tfrec", keras(1), keras(2, image=8), keras(3))
        write_recipe(tmp_path, "file_01-1.tfrec", keras(4))
        found = load_keras(tmp_path)
        assert not warnings()
        first, second = content(found).items()
        assert first[0] == ("val/000000000007", "default") and first[1]["attributes"]["id"] == 7
        assert second[0] == ("val/000000000008", "default") and second[1]["attributes"]["id"] == 8
        assert (first[1]["image"], first[1]["size"]) == (JPEG, (21, 34))
        shapes = first[1]["annotations"]
        assert [one["attributes"] for one in shapes] == [{"area": n} for n in (1, 3, 4)]
        assert [one["label"] for one in shapes] == ["11", "1", "11"]
        assert shapes[1]["points"] == [3.0, 2.0, 6.0, 6.5]
        assert [one.id for one in next(iter(found)).annotations] == [101, 103, 104]
        assert ids_of(found) == {"1": 1, "11": 11, "21": 21}

    def test_subsets_by_name_folder_and_option(self, tmp_path) -> None:
        write_recipe(tmp_path, "a%2Fb_00-1.tfrec", keras(1))
        write_recipe(tmp_path / "train", "file_00-1.tfrec", keras(2))
        write_recipe(tmp_path, "petals.tfrec", keras(3))
        assert sorted(load_keras(tmp_path).subsets()) == ["a/b", "petals", "train"]
        assert list(load_keras(tmp_path, subset="mine").subsets()) == ["mine"]
        # The same number in another subset is another image.
        assert len(load_keras(tmp_path)) == 3

    def test_another_image_with_the_same_number_is_reported(self, tmp_path, warnings) -> None:
        write_recipe(tmp_path, "file_00-2.tfrec", keras(1), keras(2, image=7) | {"image": PNG})
        assert len(load_keras(tmp_path)) == 1
        (output,) = warnings()
        assert output.startswith("records whose image differs from")

    def test_an_invalid_box_does_not_move_the_ids(self, tmp_path) -> None:
        inverted = [1.0, 1.0, -5.0, 2.0]
        lists = {"category_id": [1, 2], "id": [5, 6], "area": [1.0, 2.0]}
        two = keras(1, bbox=[*inverted, 0.0, 0.0, 5.0, 5.0], **lists)
        write_recipe(tmp_path, "file_00-1.tfrec", two)
        policy = TolerantImport()
        (found,) = load_keras(tmp_path, error_policy=policy)
        assert [one.id for one in found.annotations] == [6] and len(policy.errors) == 1


class TestReadingClassification:
    def test_names_of_classes(self, make_shard, tmp_path) -> None:
        make_shard("train", {"image": PNG, "label": 0}, {"image": PNG, "label": 2})
        (tmp_path / "label_map.pbtxt").write_text("item { id: 2 name: 'map' }")
        assert labels_in(load(tmp_path)) == {"record_000000": ["0"], "record_000001": ["map"]}
        (tmp_path / "labels.txt").write_text("0:null\n2:two")
        assert labels_of(load(tmp_path)) == ["null", "two"]
        (tmp_path / "mine.txt").write_text("a\nb\nc\n")
        found = load(tmp_path, label_map=str(tmp_path / "mine.txt"))
        assert labels_in(found) == {"record_000000": ["a"], "record_000001": ["c"]}

    @pytest.mark.parametrize(
        ("records", "labels"),
        [
            ([{"label": [0, 1, 0]}, {"label": [1, 0, 0]}], {0: ["b"], 1: ["a"]}),  # one-hot
            ([{"label": 2}, {"label": -1}, {}], {0: ["c"], 1: [], 2: []}),
            ([{"label": 0, "image/source_id": "1"}], {0: ["a"]}),  # a key of the OD API
        ],
    )
    def test_labels(self, make_shard, tmp_path, records: Any, labels: dict[int, Any]) -> None:
        make_shard("train", *({"image": PNG} | one for one in records))
        (tmp_path / "labels.txt").write_text("a\nb\nc\n")
        assert labels_in(load(tmp_path)) == {f"record_{n:06}": v for n, v in labels.items()}
        od_api = "image/source_id" in records[0]
        assert (Dataset.detect(str(tmp_path)) == "tf_detection_api") is od_api

    def test_raw_pixels(self, make_shard, tmp_path) -> None:
        pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
        raw = {"width": 3, "height": 2, "channels": 3, "label": 1, "image": pixels.tobytes()}
        gray = raw | {"channels": 1, "image": pixels[:, :, 0].tobytes()}
        make_shard("train", raw, gray)
        first, second = load(tmp_path)
        assert first.media.data.tolist() == pixels[:, :, ::-1].tolist()  # BGR in Datumaro
        assert second.media.data.tolist() == pixels[:, :, 0].tolist()

    def test_fiftyone_and_the_codelabs(self, make_shard, tmp_path) -> None:
        fiftyone = {"image_bytes": JPEG, "label": "кот", "filename": "a/b.jpg", "format": "jpg"}
        make_shard("one", fiftyone, folder=tmp_path / "one")
        flowers = {"image": JPEG, "class": 3, "label": "tulips", "one_hot_class": [0.0, 1.0]}
        make_shard("two", flowers, folder=tmp_path / "two")
        assert labels_in(load(tmp_path / "one")) == {"a/b": ["кот"]}
        found = load(tmp_path / "two")
        assert labels_in(found) == {"record_000000": ["tulips"]} and ids_of(found) == {"tulips": 3}

    def test_names_of_files_as_on_kaggle(self, make_shard, tmp_path, warnings) -> None:
        for subset in ("flowers00-1", "flowers01-2", "train/00-8x8-1"):
            folder = tmp_path / os.path.dirname(subset)
            path = make_shard("x", {"image": JPEG, "class": 1}, folder=folder)
            os.rename(path, tmp_path / f"{subset}.tfrec")
        found = load(tmp_path)
        counts = {name: len(found.get_subset(name)) for name in found.subsets()}
        assert counts == {"flowers": 2, "train": 1}
        (output,) = warnings()
        assert "flowers01-2.tfrec has 1 records" in output and output.endswith("2")


LABELLED = {"image": JPEG, "label": 1, "height": 1}
ONE_HOT = "values, expected one, or a single 1 among zeros"
BBOX = "record 1, byte {at}: bbox "


@pytest.mark.parametrize(
    ("name", "first", "second", "message"),
    [
        (KERAS, keras(1), {"image": b"broken"}, BBOX),
        (KERAS, keras(1), {"bbox": [1.0]}, BBOX),
        (KERAS, keras(1), {"bbox": [1.0, 1.0, -5.0, 2.0]}, BBOX + "box 0 is inverted"),
        (KERAS, {"x": 1, "y": 2}, {}, "its first record has the keys x, y, but none of area, bbox"),
        (CLASSIFICATION, LABELLED, {"label": "x"}, "record 1, byte {at}: label is bytes_"),
        (CLASSIFICATION, LABELLED, {"height": [1, 2]}, "record 1, byte {at}: height hol"),
        *((CLASSIFICATION, LABELLED, {"label": one}, ONE_HOT)
          for one in ([3, 5], [1, 0, 1], [0, 0], [0, 2])),
        (CLASSIFICATION, {"x": 1, "y": 2}, {}, "not a classification shard"),
    ],
)  # fmt: skip
def test_invalid_records(
    make_shard: Any, tmp_path: Path, name: str, first: Any, second: Any, message: str
) -> None:
    """Errors name the file, the record and the byte."""
    make_shard("train", first, first | second)
    output = str(refusal(import_dataset, tmp_path, name))
    assert "train.tfrecord" in output
    assert message.format(at=len(encode(first)) + 16) in output


def test_detection_of_the_format(tmp_path, make_shard) -> None:
    write_recipe(tmp_path / KERAS, "file_00-1.tfrec", keras(1))
    image = {"image_raw": JPEG, "label": 1, "height": 21, "width": 34, "depth": 3}
    make_shard("train", image, folder=tmp_path / CLASSIFICATION)
    make_shard("train", {"image/encoded": JPEG}, folder=tmp_path / "tf_detection_api")
    make_shard("train", {"x": 1}, folder=tmp_path / "none")
    for folder in tmp_path.iterdir():
        detected = Environment().detect_dataset(str(folder))
        expected = [] if folder.name == "none" else [folder.name]
        assert [one for one in detected if one.startswith("tf_")] == expected


# Writing


def test_records_are_those_of_the_recipes(tmp_path) -> None:
    box = Bbox(1.1, 2.2, 3.3, 4.4, label=1, id=5)
    dataset_of(item("a/b", box, attributes={"id": 9})).export(str(tmp_path / "k"), KERAS)
    assert sorted(os.listdir(tmp_path / "k")) == ["file_00-1.tfrec", "label_map.pbtxt"]
    area = {"area": 3.3 * 4.4, "bbox": [1.1, 2.2, 3.3, 4.4]}
    expected = {"image": JPEG, "path": "a/b.jpg", **area, "category_id": 2, "id": 5, "image_id": 9}
    (found,) = read_examples(tmp_path / "k")
    assert bytes(found.record.payload) == encode(expected)

    source = dataset_of(item("a/b", Label(2), data=GRAY), item("c", Label(0)))
    source.export(str(tmp_path / "c"), CLASSIFICATION)
    assert sorted(os.listdir(tmp_path / "c")) == ["default.tfrecord", "labels.txt"]
    assert (tmp_path / "c" / "labels.txt").read_text("utf-8") == "0:cat\n1:dog\n2:кошка\n"
    head = {"height": HEIGHT, "width": WIDTH}
    gray = {"depth": 1, "label": 2, "image_raw": GRAY, "filename": "a/b.png"}
    colour = {"depth": 3, "label": 0, "image_raw": JPEG, "filename": "c.jpg"}
    payloads = [bytes(one.record.payload) for one in read_examples(tmp_path / "c")]
    assert payloads == [encode(head | one) for one in (gray, colour)]


def assert_round_trip(folder: Path, load: Callable[..., Any], name: str, **options: Any) -> None:
    """Import ``folder/a``, export it to ``folder/b``, and compare files and items."""
    first = load(folder / "a")
    first.export(str(folder / "b"), name, **options)
    assert files_in(folder / "b").keys() == files_in(folder / "a").keys()
    for file, data in files_in(folder / "a").items():
        assert file.endswith(".pbtxt") or (folder / "b" / file).read_bytes() == data
    assert content(load(folder / "b")) == content(first)


def test_round_trip_of_keras(tmp_path, warnings) -> None:
    for name, number in (("train_00-3.tfrec", 1), ("val_00-3.tfrec", 20)):
        images = enumerate((1, 1, 8), number)
        write_recipe(tmp_path / "a", name, *(keras(n, image) for n, image in images))
    label_map = "".join(f"item {{ id: {i} name: 'n{i}' }}" for i in (1, 11, 21))
    (tmp_path / "a" / "label_map.pbtxt").write_text(label_map)
    assert_round_trip(tmp_path, load_keras, KERAS)
    assert not warnings()


@pytest.mark.parametrize("profile", ["image_classification", "image_label"])
def test_round_trip_of_classification(tmp_path, profile) -> None:
    source = dataset_of(
        item("a/b", Label(2), data=PNG, subset="train"),
        item("a b", Label(1), subset="train"),
        item("c", subset="val"),
    )
    source.export(str(tmp_path / "a"), CLASSIFICATION, profile=profile, num_shards=2)
    assert labels_in(load(tmp_path / "a")) == {"a/b": ["кошка"], "a b": ["dog"], "c": []}
    assert_round_trip(tmp_path, load, CLASSIFICATION, profile=profile, num_shards=2)


def test_ids_in_the_format_of_the_od_api(make_shard, tmp_path) -> None:
    """Detection counts classes from 1, since 0 is its background; a classifier from 0."""
    write_recipe(tmp_path / "k", "file_00-2.tfrec", keras(1), keras(2, image=8))
    load_keras(tmp_path / "k").export(str(tmp_path / "o"), "tf_detection_api", save_media=True)
    between = import_dataset(tmp_path / "o")
    assert {one.attributes["source_id"] for one in between} == {"7", "8"}
    assert ids_of(between) == {"11": 11, "21": 21}

    make_shard("s", *({"image": JPEG, "label": n} for n in (5, 7)), folder=tmp_path / "a")
    found = load(tmp_path / "a")
    found.export(str(tmp_path / "b"), CLASSIFICATION)
    assert ids_of(load(tmp_path / "b")) == {"5": 5, "7": 7}
    found.export(str(tmp_path / "c"), "tf_detection_api", save_media=True)
    between = import_dataset(tmp_path / "c")
    assert ids_of(between) == {"5": 1, "7": 2}
    between.export(str(tmp_path / "d"), CLASSIFICATION)
    assert (tmp_path / "d" / "labels.txt").read_text() == "0:5\n1:7\n"
    label_map = write_file(tmp_path / "map.pbtxt", "item { id: 9 name: '7' }")
    between.export(str(tmp_path / "e"), CLASSIFICATION, label_map=str(label_map))
    assert (tmp_path / "e" / "labels.txt").read_text() == "9:7\n10:5\n"


@pytest.mark.parametrize(
    ("images", "ids"),
    [
        # Ids are kept if they are unique in each subset, and no item or object is without one.
        ([("train", {"id": 3}, 4), ("val", {"id": 3}, 4)], [(4, 3), (4, 3)]),
        ([("train", {"id": 3}, 4), ("train", {"id": 3}, 4)], [(1, 1), (2, 2)]),
        ([("train", {"id": 3}, 4), ("train", {}, 5)], [(4, 1), (5, 2)]),
    ],
)
def test_ids_of_images_and_objects(tmp_path: Path, images: Any, ids: list[Any]) -> None:
    items = []
    for name, (subset, attributes, box_id) in zip("ab", images, strict=True):
        items.append(item(name, PIXEL.wrap(id=box_id), subset=subset, attributes=attributes))
    dataset_of(*items).export(str(tmp_path), KERAS)
    assert [(one["id"], one["image_id"]) for one in records_in(tmp_path)] == ids


def test_areas(tmp_path) -> None:
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[:3, :5] = True
    shapes = (
        Polygon([0, 0, 10, 0, 0, 10], label=0, id=1, group=1),
        Mask(mask, label=0, id=2, group=2),
        Bbox(0, 0, 4, 5, label=0, id=3, attributes={"area": 7.5}),
        Bbox(0, 0, 4, 5, label=0, id=4, attributes={"area": "large"}),
    )
    dataset_of(item("a", *shapes)).export(str(tmp_path), KERAS)
    found = {one["id"]: (one["area"], one["bbox"]) for one in records_in(tmp_path)}
    area, box = found.pop(1)
    # Datumaro 0.3 counts the pixels of the polygon, 1.x its exact area.
    assert area in (45.0, 50.0) and box == [0, 0, 10, 10]
    assert found == {2: (15.0, [0, 0, 5, 3]), 3: (7.5, [0, 0, 4, 5]), 4: (20.0, [0, 0, 4, 5])}


ODD_BOX = Bbox(-2, 0, 4, 4, id=1, attributes={"difficult": True, "occluded": False})


@pytest.mark.parametrize(
    ("name", "items", "losses"),
    [
        (
            KERAS,
            [
                item("a"),
                item("b", ODD_BOX, Label(0), Points([1, 1], label=0),
                     attributes={"weather": "fog", "id": 4}),
            ],
            {
                "not written, because the format cannot store them: 1 points without a schema",
                "boxes that extend beyond the image, written unchanged: 1",
                "images not written, because each record needs an object: 1",
                "not written: 1 class of the whole image",
                "attributes not written: 1 weather (of the image), 1 difficult",
                "without a class, written as category -1: 1",
            },
        ),
        (
            CLASSIFICATION,
            [
                item("a", Label(0), Label(1), Label(2), PIXEL),
                item("b", Label(1, attributes={"score": 0.5}), attributes={"weather": "fog"}),
                item("c"),
            ],
            {
                "not written, because a record has only one label: 2 further label, 1 bbox",
                "attributes not written: 1 score, 1 weather (of the image)",
                "without a label, written as -1: 1",
            },
        ),
    ],
)  # fmt: skip
def test_losses_are_counted(tmp_path, warnings, name, items, losses) -> None:
    dataset_of(*items).export(str(tmp_path), name)
    (output,) = warnings()
    assert set(output.removeprefix(f"{name}: ").split("; ")) == losses
    found = {one.id: [x.label for x in one.annotations] for one in import_dataset(tmp_path, name)}
    assert found == ({"b": [None]} if name == KERAS else {"a": [0], "b": [1], "c": []})


def test_files_of_4096(tmp_path) -> None:
    source = dataset_of(item("a", *[PIXEL] * 4098, data=saved("L", "PNG", (2, 2))))
    source.export(str(tmp_path), KERAS)
    files = ["file_00-4096.tfrec", "file_01-2.tfrec", "label_map.pbtxt"]
    assert sorted(os.listdir(tmp_path)) == files
    (found,) = load_keras(tmp_path)
    assert len(found.annotations) == 4098


NOT_DRAWN = [item("c", Label(0), PIXEL, data=None)]


@pytest.mark.parametrize(
    ("name", "items", "names", "message"),
    [
        (KERAS, NOT_DRAWN, ["cat"], "item 'c' has no image"),
        (CLASSIFICATION, NOT_DRAWN, ["cat"], "item 'c' has no image"),
        (CLASSIFICATION, [item("b", Label(0)), item("c", Label(7))], ["cat"],
         "label 7 does not exist, there are 1"),
        (CLASSIFICATION, [item("b", Label(0))], ["a\nb"], "has a line break, which labels.txt"),
    ],
)  # fmt: skip
def test_a_failing_export_does_not_change_the_folder(
    tmp_path: Path, name: str, items: list[Any], names: list[str], message: str
) -> None:
    dataset_of(item("a", Label(0), PIXEL)).export(str(tmp_path), name)
    before = files_in(tmp_path)
    assert message in str(refusal(dataset_of(*items, names=names).export, str(tmp_path), name))
    assert files_in(tmp_path) == before


def test_an_unknown_profile(tmp_path) -> None:
    message = str(refusal(dataset_of().export, str(tmp_path), CLASSIFICATION, profile="nix"))
    assert "profile: 'nix' is not one of image_classification, image_label" in message


def test_saving_in_place(tmp_path) -> None:
    write_recipe(tmp_path, "train_00-2.tfrec", keras(1), keras(2, image=8))
    write_recipe(tmp_path, "val.tfrec", keras(3))  # not a name of ours
    (tmp_path / "notes.txt").write_text("mine")
    found = load_keras(tmp_path)
    found.remove("val/000000000008", "train")
    found.remove("val/000000000007", "val")
    found.save(save_media=True)
    assert sorted(os.listdir(tmp_path)) == ["label_map.pbtxt", "notes.txt", "train_00-1.tfrec"]
    assert len(load_keras(tmp_path)) == 1


def test_files_are_replaced_only_by_the_same_subset(tmp_path) -> None:
    others = "00-8x8-9.tfrec", "file.tfrec", "train00-9.tfrec"
    for name in others:
        (tmp_path / name).write_bytes(b"")
    train = item("a", PIXEL, subset="train")
    exports = [train, item("b", PIXEL, subset="train")], [item("c", PIXEL, subset="val")]
    for items in (*exports, [train], [item("d", PIXEL)]):
        dataset_of(*items).export(str(tmp_path), KERAS)
    ours = "file_00-1.tfrec", "train_00-1.tfrec", "val_00-1.tfrec"
    assert {path.name for path in tmp_path.glob("*.tfrec")} == {*others, *ours}


def test_datumaros_coco(tmp_path) -> None:
    """Ids of images and annotations are kept; an option gives classes the ids of COCO."""
    common = {"iscrowd": 0, "category_id": 64, "image_id": 7, "segmentation": []}
    document = {
        "images": [{"id": 7, "file_name": "1.jpg", "height": HEIGHT, "width": WIDTH}],
        "categories": [{"id": 2, "name": "person"}, {"id": 64, "name": "potted plant"}],
        "annotations": [
            {**common, "id": 4, "bbox": [1.07, 2.93, 8.65, 8.68], "area": 75.08},
            {**common, "id": 5, "bbox": [7, 1, 3, 9], "area": 27},
        ],
    }
    write_file(tmp_path / "images" / "val" / "1.jpg", JPEG)
    write_file(tmp_path / "annotations" / "instances_val.json", json.dumps(document))
    source = Dataset.import_from(str(tmp_path), "coco")
    source.export(str(tmp_path / "out"), KERAS, label_map="coco")
    assert sorted(os.listdir(tmp_path / "out")) == ["label_map.pbtxt", "val_00-2.tfrec"]
    records = records_in(tmp_path / "out")
    ids = [(one["path"], one["category_id"], one["id"], one["image_id"]) for one in records]
    assert sorted(ids) == [("1.jpg", 64, 4, 7), ("1.jpg", 64, 5, 7)]
    by_id = {one["id"]: (*one["bbox"], one["area"]) for one in records}
    assert by_id[4] == pytest.approx((1.07, 2.93, 8.65, 8.68, 75.08), abs=0.01)
    assert by_id[5] == (7, 1, 3, 9, 27)
