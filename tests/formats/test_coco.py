"""COCO to shards. The expected boxes, masks and areas are from create_coco_tf_record.py.

(With TensorFlow 2.21 and pycocotools 2.0.11, on the example.)
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.detection.detection import Detection
from tfod.detection.images.mask_images import decode_mask_png, is_box_png
from tfod.detection.labels.label_map import read_label_map

from tests.commands import Result, Run
from tests.formats.conftest import COCO, EXAMPLES, IMAGES, by_filename, edited_json, float32
from tests.image_kinds import plain_image

TRAIN = COCO / "instances_train.json"
CROWDED = "shapes_05.jpg"
CROWDED_BOXES = [
    [0.0, 0.018583333119750023, 0.22996875643730164, 0.47054165601730347],
    [0.30431249737739563, 0.0, 0.5151562690734863, 0.26483333110809326],
    [0.010656249709427357, 0.18462499976158142, 0.26271873712539673, 0.5207083225250244],
    [0.13449999690055847, 0.0, 0.4014374911785126, 0.336041659116745],
    [0.555468738079071, 0.08608333021402359, 0.7649999856948853, 0.36545833945274353],
    [0.0, 0.0, 0.765625, 0.47083333134651184],
]
CROWDED_MASKS = "b9945189f4b5 14c6eaa59235 6fa6acae2648 99d6bd064f7a 88e7f4073344 4e4e97d3c891"
"""SHA-256 of the pixels, cut short."""
CROWDED_PIXELS = [6382, 3359, 4365, 2722, 3376, 13895]
Edit = Callable[[Any], object]
Read = Callable[..., Result]
Edited = Callable[..., Path]


@pytest.fixture
def read(convert: Run, tmp_path: Path) -> Read:
    """Convert a JSON file with the images of the example."""
    return lambda file, *options: convert(file, tmp_path / "out", "--images", IMAGES, *options)


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """The example's file after an edit."""
    return lambda edit, name=TRAIN: edited_json(COCO / name, edit, tmp_path / "odd.json")


def masks_of(one: Detection) -> list[np.ndarray]:
    return [decode_mask_png(mask.data) for mask in one.masks or () if mask is not None]


def classes_in(folder: Path) -> dict[int, str | None]:
    items = read_label_map(folder / "label_map.pbtxt")[0].items
    return {one.id: one.name for one in items}


def test_records_are_those_of_the_script(read: Read, tmp_path: Path) -> None:
    assert read(TRAIN, "--masks").succeeded() == ""
    found = by_filename(tmp_path / "out")
    one = found[CROWDED]
    assert one.boxes.tolist() == CROWDED_BOXES
    assert one.class_text == ["circle", "circle", "square", "étoile", "circle", "circle"]
    assert one.class_label == [1, 1, 3, 11, 1, 1]
    assert one.source_id == "1028" and one.format == "jpeg"
    areas = [6379.68, 3351.47, 4365.45, 2714.96, 3374.45, 13895]
    assert one.attributes == {"is_crowd": [0, 0, 0, 0, 0, 1], "area": areas}
    masks = masks_of(one)
    assert [int(mask.sum()) for mask in masks] == CROWDED_PIXELS
    digests = [hashlib.sha256(mask.astype(np.uint8)).hexdigest()[:12] for mask in masks]
    assert digests == CROWDED_MASKS.split()
    assert len(found["shapes_06.jpg"].boxes) == 0 and found["shapes_06.jpg"].masks is None
    names = {1: "circle", 3: "square", 7: "triangle", 11: "étoile"}
    assert classes_in(tmp_path / "out") == names
    says = read(TRAIN, "--overwrite").succeeded()
    assert f"outlines, left out because --masks is not set: 21 (the first: {TRAIN}" in says
    assert by_filename(tmp_path / "out")[CROWDED].masks is None


def test_there_are_never_more_shards_than_images(convert: Run, tmp_path: Path) -> None:
    convert(EXAMPLES / "shapes_coco", tmp_path, "--num-shards=100", "--masks").succeeded()
    shards = {f"{name}-{n:05}-of-{of:05}.tfrecord"
              for name, of in (("train", 8), ("val", 4)) for n in range(of)}  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == shards | {"label_map.pbtxt"}
    assert list(by_filename(tmp_path / "train-00000-of-00008.tfrecord")) == ["shapes_01.jpg"]


def test_masks_without_images(convert: Run, tmp_path: Path) -> None:
    convert(TRAIN, tmp_path / "out", "--no-images", "--masks").succeeded()
    one = by_filename(tmp_path / "out")[CROWDED]
    assert one.boxes.tolist() == CROWDED_BOXES and not one.encoded
    assert [int(mask.sum()) for mask in masks_of(one)] == CROWDED_PIXELS


def test_keypoints_of_the_example(read: Read, tmp_path: Path) -> None:
    read(COCO / "person_keypoints_train.json").succeeded()
    one = by_filename(tmp_path / "out")["shapes_08.jpg"].keypoints
    assert one is not None and one.names == ("top", "right", "left")
    corners = [(33.9, 10.0), (85.2, 77.4), (1.2, 88.1)]
    assert one.xy.tolist() == [float32([[x / 320, y / 240] for x, y in corners])]
    assert one.visibility.tolist() == [[2, 2, 2]]
    (item,) = read_label_map(tmp_path / "out" / "label_map.pbtxt")[0].items
    assert [(p.id, p.label) for p in item.keypoints] == [*enumerate(one.names)]


def test_keypoints_are_those_of_the_script(read: Read, edited: Edited, tmp_path: Path) -> None:
    """One object has 17 points at (10 i + 0.5, 7 i) with the visibility i modulo 3."""
    names = [f"p{i}" for i in range(17)]

    def add(found: Any) -> None:
        values = [value for i in range(17) for value in (10 * i + 0.5, 7 * i, i % 3)]
        found["annotations"][2].update(keypoints=values)
        for one in found["categories"]:
            one["keypoints"] = names

    read(edited(add)).succeeded()
    found = by_filename(tmp_path / "out")["shapes_01.jpg"].keypoints
    assert found is not None and list(found.names) == names
    assert found.xy[2, 1].tolist() == [0.03281249850988388, 0.02916666679084301]
    assert found.xy[2, 16].tolist() == [0.5015624761581421, 0.46666666865348816]
    assert found.visibility[2].tolist() == [i % 3 for i in range(17)]
    assert not found.xy[:2].any() and not found.visibility[:2].any()


ROBOFLOW = [
    {"id": 0, "name": "pets-hXq1", "supercategory": "none"},
    {"id": 1, "name": "cat", "supercategory": "pets-hXq1"},
    {"id": 2, "name": "dog", "supercategory": "pets-hXq1"},
]
"""An export of Roboflow begins with the project's name, which no annotation has."""


def small(
    folder: Path,
    categories: Sequence[Mapping[str, Any]] = ({"id": 1, "name": "cat"},),
    used: Sequence[int] = (1,),
    name: str = "1.jpg",
    **more: Any,
) -> Path:
    """A JSON file and its image of 200 x 100, with an object of each category in ``used``."""
    (folder / "1.jpg").write_bytes(plain_image((200, 100)))
    one = {"image_id": 0, "area": 100, "iscrowd": 0, **more}
    annotations = [
        {"id": number, "category_id": category, "bbox": [1, 1, 10 + number, 10], **one}
        for number, category in enumerate(used)
    ]
    images = [{"id": 0, "file_name": name, "width": 200, "height": 100}]
    found = {"images": images, "categories": list(categories), "annotations": annotations}
    (folder / "a.json").write_text(json.dumps(found))
    return folder / "a.json"


def test_the_unused_category_0_of_roboflow_is_left_out(convert: Run, tmp_path: Path) -> None:
    says = convert(small(tmp_path, ROBOFLOW, [1, 2]), tmp_path / "out").succeeded()
    assert "categories with id 0 and without annotations, left out" in says
    assert f": 1 (the first: {tmp_path / 'a.json'}: 'pets-hXq1')\n" in says
    assert classes_in(tmp_path / "out") == {1: "cat", 2: "dog"}
    assert by_filename(tmp_path / "out")["1.jpg"].class_label == [1, 2]


def test_a_used_category_0_needs_a_label_map(convert: Run, tmp_path: Path) -> None:
    names = {1: "dog", 2: "cat", 3: "pets-hXq1"}
    label_map = tmp_path / "mine.pbtxt"
    label_map.write_text("".join(f"item {{ id: {i} name: '{n}' }}\n" for i, n in names.items()))
    file = small(tmp_path, ROBOFLOW, [0, 1, 2])
    for options, facts in (
        ((), ["a.json, annotation 0: category 0 ('pets-hXq1')", "reserves 0", "--label-map\n"]),
        (("--label-map", "coco"), ["annotation 0: class 'pets-hXq1' is not in the label map coco"]),
    ):
        says = convert(file, tmp_path / "out", *options).refused()
        assert all(fact in says for fact in facts) and not (tmp_path / "out").exists()
    assert convert(file, tmp_path / "out", "--label-map", label_map).succeeded() == ""
    one = by_filename(tmp_path / "out")["1.jpg"]
    assert one.class_label == [3, 2, 1] and one.class_text == ["pets-hXq1", "cat", "dog"]
    assert classes_in(tmp_path / "out") == names


@pytest.mark.parametrize(("ids", "kept"), [((1, 2), 1), ((7, 3), 3), ((0, 5), 5)])
def test_categories_of_one_name_are_one_class(
    convert: Run, tmp_path: Path, ids: tuple[int, int], kept: int
) -> None:
    categories = [*({"id": one, "name": "cat"} for one in ids), {"id": 9, "name": "dog"}]
    says = convert(small(tmp_path, categories, [*ids, 9]), tmp_path / "out").succeeded()
    (other,) = {*ids} - {kept}
    assert "merged into one class: 1 (the first: " in says and says.count("\n") == 1
    assert f"'cat' is {kept} and {other}, written as {kept})" in says
    assert by_filename(tmp_path / "out")["1.jpg"].class_label == [kept, kept, 9]
    assert classes_in(tmp_path / "out") == {kept: "cat", 9: "dog"}


@pytest.mark.parametrize(
    ("flag", "expected"), [(True, 1), (False, 0), (None, 0), (1, 1), (0, 0), (1.0, 1)]
)
def test_flags_of_crowds(convert: Run, tmp_path: Path, flag: Any, expected: int) -> None:
    convert(small(tmp_path, iscrowd=flag), tmp_path / "out").succeeded()
    assert by_filename(tmp_path / "out")["1.jpg"].attributes["is_crowd"] == [expected]


def test_two_sets_that_contradict_each_other(convert: Run, tmp_path: Path) -> None:
    file = Path(shutil.copytree(COCO, tmp_path / "annotations")) / "instances_val.json"
    edited_json(file, lambda found: found["categories"][1].update(name="box"), file)
    says = convert(tmp_path, tmp_path / "out").refused()
    assert "category 3 is 'box', but 'square' in another set" in says


RANGE = "category 4 in the list: its id is below 0 or too large for 32 bits"
KEYPOINTS = "annotation 104900: keypoints are not x, y, visibility of the"
INVALID: dict[str, Sequence[tuple[Mapping[str, Any], str]]] = {
    "annotations": [
        ({"category_id": 5}, "there is no category 5"),
        ({"bbox": [1, 2, 3]}, "annotation 100000: bbox is [1, 2, 3], expected 4 numbers"),
        ({"bbox": ["1", 2, 3, 4]}, 'bbox is ["1", 2, 3, 4], expected 4 numbers'),
        ({"bbox": {"x": 1}}, 'bbox is {"x": 1}, expected 4 numbers'),
        ({"bbox": [1, 2, float("nan"), 3]}, "a coordinate that is not a finite number: 1 ("),
        ({"bbox": [-1e300, 2, 1e300, 3]}, "a coordinate that is not a finite number: 1 ("),
        ({"category_id": None}, "category_id is null, expected a number"),
        ({"category_id": 1.5}, "category_id is 1.5, expected a whole number"),
        ({"area": float("nan")}, "area is NaN, expected a number"),
        ({"segmentation": [[1, 2, 3]]}, "annotation 100000: invalid segmentation"),
        ({"segmentation": [[1, 2, 3, 4, 1e30, 4]]}, "extends far beyond the image"),
        ({"segmentation": {"size": [240, 320], "counts": [1, 2]}}, "counts do not add up"),
        ({"segmentation": {"size": [9, 9], "counts": [81]}}, "9x9 in 320x240); choose"),
        ({"segmentation": {"size": [9, -9], "counts": [81]}}, "size is [9, -9], expected"),
        ({"segmentation": {"size": [1 << 20] * 2, "counts": [1]}}, "size is [1048576, "),
        ({"segmentation": {"counts": [81]}}, "size is None, expected height and width"),
        ({"segmentation": {"size": [240, 320], "counts": [1.5]}}, "counts is [1.5], exp"),
        ({"segmentation": {"size": [240, 320]}}, "counts is None, expected whole"),
        ({"segmentation": 5}, "annotation 100000: invalid segmentation (expected"),
        ({"segmentation": "x"}, "invalid segmentation (expected polygons or runs)"),
        ({"segmentation": [None]}, "a polygon needs three or more pairs"),
        ({"segmentation": {"size": [240, 320], "counts": "\x00"}}, "invalid segmentation"),
        ({"segmentation": {"size": [240, 320], "counts": "PPP"}}, "truncated"),
        ({"image_id": [1]}, "image_id is [1], expected a number"),
        ({"iscrowd": "no"}, 'iscrowd is "no", expected a number'),
        ({"attributes": ["a"]}, 'attributes are ["a"], expected an object'),
        ({"keypoints": [1, 1, 2] * 2 + [1, 1]}, KEYPOINTS),
        ({"keypoints": [1e300, 1, 2] * 3}, KEYPOINTS),
        ({"keypoints": [1, 1, 3] * 3}, KEYPOINTS),
        ({"keypoints": "x"}, KEYPOINTS),
    ],
    "categories": [
        ({"name": "\ud800"}, "'\\ud800' is not Unicode text; rename it"),
        ({"id": 1 << 31}, RANGE),
        ({"id": -1}, RANGE),
        ({"id": "x"}, 'id is "x", expected a whole number'),
        ({"id": 2.5}, "id is 2.5, expected a whole number"),
        ({"id": 3}, "id 3 is used by 'square' and 'étoile'"),
        ({"name": None}, "category 4 in the list: category 11 has no name"),
        ({"name": " "}, "category 4 in the list: category 11 has no name"),
    ],
    "images": [
        ({"id": 1007}, "image 1007: another image has the same id"),
        ({"file_name": "\ud800.jpg"}, "\\ud800.jpg"),
        ({"width": 1e300}, "image 1000: width is 1000"),
    ],
}


@pytest.mark.parametrize(
    ("part", "change", "says"), [(part, *row) for part, rows in INVALID.items() for row in rows]
)
def test_invalid_entries(
    read: Read, edited: Edited, tmp_path: Path, part: str, change: Mapping[str, Any], says: str
) -> None:
    index = 3 if part == "categories" else 0
    name = "person_keypoints_train.json" if "keypoints" in change else TRAIN
    file = edited(lambda found: found[part][index].update(change), name)
    refused = read(file, "--masks").refused()
    assert says in refused and (str(file) in refused or "choose" in says or part != "annotations")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (  # JSON tells 1000 from "1000", and every box would be lost.
            lambda one: one.update(image_id=str(one["image_id"])),
            "(a number and a text are different ids), left out: 21 (the first: ",
        ),
        (lambda one: one.update(bbox=[]), "annotations without bbox, left out: 21"),
    ],
    ids=["ids as texts", "no box"],
)
def test_no_annotation_remains(read: Read, edited: Edited, edit: Edit, says: str) -> None:
    refused = read(edited(lambda found: [edit(one) for one in found["annotations"]])).refused()
    assert "all 21 annotated objects were left out" in refused and says in refused


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"images": ', "is not valid JSON"),
        ('[{"images": []}]', "is not COCO JSON"),
        ('{"images": [], "annotations": "", "categories": []}', "is not COCO JSON: it lacks"),
        ('{"images": [], "annotations": [3], "categories": []}', "an entry of annotations is 3, "),
        ('{"images": [null], "annotations": [], "categories": []}', "an entry of images is null, "),
        ('{"images": [{"id": 1}], "annotations": [], "categories": []}', "'file_name' is missing"),
    ],
)
def test_invalid_files(read: Read, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert says in read(tmp_path / "x.json").refused()
    assert not (tmp_path / "out").exists()


def test_annotations_without_an_image_or_a_box(read: Read, edited: Edited, tmp_path: Path) -> None:
    def add(found: Any) -> None:
        one = {**found["annotations"][0], "id": 5, "image_id": 99}
        found["annotations"] += [one, {"id": 6, "image_id": 1000, "category_id": 1}]

    says = read(edited(add)).succeeded()
    assert len(by_filename(tmp_path / "out")["shapes_01.jpg"].boxes) == 3
    assert "annotations whose image_id is not the id of an image" in says
    assert "annotations without bbox, left out" in says
    # The JSON files of COCO's test images have no list of annotations.
    without = edited(lambda found: found.pop("annotations"))
    assert read(without, "--overwrite").succeeded() == ""


def test_without_segmentation_or_area(read: Read, edited: Edited, tmp_path: Path) -> None:
    def empty(found: Any) -> None:
        found["annotations"][3]["segmentation"] = []
        del found["annotations"][3]["area"]

    says = read(edited(empty), "--masks").succeeded()
    assert "annotations without segmentation, replaced by their box" in says
    assert "annotations without area, computed from their box" in says
    one = by_filename(tmp_path / "out")["shapes_02.jpg"]
    (mask,) = masks_of(one)
    rows, columns = np.nonzero(mask)
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (71, 188, 148, 265)
    assert mask.sum() == 78 * 78
    assert one.masks is not None and one.masks[0] is not None and is_box_png(one.masks[0].data)
    assert one.attributes["area"] == [6085.56]


def test_attributes_of_cvat_are_kept(read: Read, edited: Edited, tmp_path: Path) -> None:
    def add(found: Mapping[str, Any]) -> None:
        image = next(one for one in found["images"] if one["file_name"] == CROWDED)
        of_one = [one for one in found["annotations"] if one["image_id"] == image["id"]]
        of_one[0]["attributes"] = {"occluded": True, "rotation": 0.0, "colour": "red"}
        of_one[1]["attributes"] = {"occluded": False, "track_id": 7}

    read(edited(add)).succeeded()
    found = by_filename(tmp_path / "out")[CROWDED].attributes
    assert found["occluded"][:3] == [True, False, None]
    assert found["colour"][:2] == ["red", None] and found["rotation"][0] == 0.0
    assert found["track_id"][:2] == [None, 7] and "area" in found
