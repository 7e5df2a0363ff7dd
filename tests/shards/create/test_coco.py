"""``tfod create coco``. What is expected was written by create_coco_tf_record.py itself.

(Run with TensorFlow 2.21 and pycocotools 2.0.11 on the example.)
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tfod.convert.coco_keypoints import PERSON_KEYPOINTS
from tfod.detection.detection import Detection
from tfod.detection.labels.label_map import read_label_map
from tfod.detection.stream import read_examples

from tests.commands import Run
from tests.shards.create.conftest import (
    COCO,
    IMAGES,
    by_filename,
    coco_arguments,
    edited_json,
    float32,
)

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


def created(run: Run, out: Path, *options: object, file: Path | None = None) -> str:
    return run(*coco_arguments(file=file), "--output-dir", out, *options).succeeded()


Edit = Callable[[Any], object]


def edited(folder: Path, edit: Edit, name: str = "instances_train") -> Path:
    """The example's file after an edit."""
    return edited_json(COCO / f"{name}.json", edit, folder / "odd.json")


def refused(run: Run, out: Path, *options: object, file: Path | None = None) -> str:
    line = run(*coco_arguments(file=file), "--output-dir", out, *options).refused()
    assert not list(out.glob("coco_*"))
    return line


def masks_of(detection: Detection) -> list[np.ndarray]:
    found = []
    for mask in detection.masks or ():
        assert mask is not None
        with Image.open(io.BytesIO(mask.data)) as image:
            assert image.mode == "L"
            found.append(np.asarray(image))
    return found


class TestRecords:
    def test_boxes_masks_crowds_and_areas_are_the_scripts(self, run: Run, tmp_path: Path) -> None:
        assert created(run, tmp_path, "--include-masks", "--num-shards", "1") == ""
        found = by_filename(tmp_path)
        one = found[CROWDED]
        assert one.boxes.tolist() == CROWDED_BOXES
        assert one.class_text == ["circle", "circle", "square", "étoile", "circle", "circle"]
        assert one.source_id == "1028" and one.format == "jpeg"
        areas = [6379.68, 3351.47, 4365.45, 2714.96, 3374.45, 13895]
        assert one.attributes == {"is_crowd": [0, 0, 0, 0, 0, 1], "area": float32(areas)}
        masks = masks_of(one)
        assert [int(mask.sum()) for mask in masks] == CROWDED_PIXELS
        digests = [hashlib.sha256(mask.tobytes()).hexdigest()[:12] for mask in masks]
        assert digests == CROWDED_MASKS.split()
        assert len(found["shapes_06.jpg"].boxes) == 0 and found["shapes_06.jpg"].masks is None

    def test_category_ids_are_kept_with_their_gaps(self, run: Run, tmp_path: Path) -> None:
        created(run, tmp_path, "--num-shards=1")
        assert by_filename(tmp_path)[CROWDED].class_label == [1, 1, 3, 11, 1, 1]
        items = read_label_map(tmp_path / "label_map.pbtxt")[0].items
        assert [(one.id, one.name) for one in items] == [
            (1, "circle"), (3, "square"), (7, "triangle"), (11, "étoile"),
        ]  # fmt: skip

    def test_files(self, run: Run, tmp_path: Path) -> None:
        """Never more than images: of COCO itself there are 100 and 50."""
        ran = run(*coco_arguments(), *coco_arguments("val")[1:], "--output-dir", tmp_path)
        assert ran.code == 0
        names = {path.name for path in tmp_path.iterdir()}
        assert {f"coco_train.record-0000{n}-of-00008" for n in range(8)} < names
        assert {f"coco_val.record-0000{n}-of-00004" for n in range(4)} < names and len(names) == 13
        first = by_filename(tmp_path / "coco_train.record-00000-of-00008")
        assert list(first) == ["shapes_01.jpg"]

    def test_what_has_no_place_is_left_out_and_counted(self, run: Run, tmp_path: Path) -> None:
        def add(found: Any) -> None:
            one = found["annotations"][0]
            found["annotations"] += [
                {**one, "id": 5, "image_id": 99},
                {"id": 6, "image_id": 1000, "category_id": 1},
            ]

        output = created(run, tmp_path, "--num-shards", "1", file=edited(tmp_path, add))
        assert len(by_filename(tmp_path / "coco_train.record")["shapes_01.jpg"].boxes) == 3
        assert "1 annotations of images that are not listed, left out" in output
        assert "1 annotations without bbox, left out" in output

    def test_sizes(self, run: Run, tmp_path: Path) -> None:
        """The file may lack them, and may be wrong."""

        def edit(found: Mapping[str, Any]) -> None:
            del found["images"][0]["width"], found["images"][0]["height"]
            found["images"][1]["width"] *= 2

        file = edited(tmp_path, edit)
        output = created(run, tmp_path, "--num-shards=1", file=file)
        found = by_filename(tmp_path / "coco_train.record")
        assert found["shapes_01.jpg"].boxes[0, 0] == np.float32(196.1 / 320)
        assert found["shapes_02.jpg"].boxes[0, 0] == np.float32(71.07 / 480)
        assert found["shapes_02.jpg"].width == 240
        assert "shapes_02.jpg is 480x320, the file 240x320" in output
        assert "masks would not fit" in refused(run, tmp_path / "m", "--include-masks", file=file)


class TestKeypoints:
    def test_of_the_example(self, run: Run, tmp_path: Path) -> None:
        points = COCO / "person_keypoints_train.json"
        created(run, tmp_path, "--num-shards=1", "--train-keypoint-annotations-file", points)
        found = by_filename(tmp_path)
        one = found["shapes_08.jpg"].keypoints
        assert one is not None and one.names == ("top", "right", "left")
        size = (320, 240)
        corners = [(33.9, 10.0), (85.2, 77.4), (1.2, 88.1)]
        expected = [[x / size[0], y / size[1]] for x, y in corners]
        assert one.xy.tolist() == float32([expected, [[0, 0]] * 3])
        assert one.visibility.tolist() == [[2, 2, 2], [0, 0, 0]]
        other = found["shapes_02.jpg"].keypoints
        assert other is not None and other.visibility.tolist() == [[0, 0, 0]]
        items = read_label_map(tmp_path / "label_map.pbtxt")[0].items
        assert [[(p.id, p.label) for p in one.keypoints] for one in items] == [
            [], [], [(0, "top"), (1, "right"), (2, "left")], [],
        ]  # fmt: skip

    def test_of_persons_are_the_scripts(self, run: Run, tmp_path: Path) -> None:
        """Seventeen points at (10 i + 0.5, 7 i), visibility i modulo 3; one belongs to nobody."""
        values = [value for i in range(17) for value in (10 * i + 0.5, 7 * i, i % 3)]
        one = {"image_id": 1000, "category_id": 1, "keypoints": values}
        points = {
            "images": [],
            "categories": [{"id": 1, "name": "circle"}],
            "annotations": [{**one, "id": 100002}, {**one, "id": 5}],
        }
        (tmp_path / "k.json").write_text(json.dumps(points))
        option = ("--train-keypoint-annotations-file", tmp_path / "k.json")
        output = created(run, tmp_path, "--num-shards=1", *option)
        found = by_filename(tmp_path / "coco_train.record")["shapes_01.jpg"].keypoints
        assert found is not None and found.names == PERSON_KEYPOINTS
        assert found.xy[2, 1].tolist() == [0.03281249850988388, 0.02916666679084301]
        assert found.xy[2, 16].tolist() == [0.5015624761581421, 0.46666666865348816]
        assert found.visibility[2].tolist() == [i % 3 for i in range(17)]
        assert not found.xy[:2].any() and not found.visibility[:2].any()
        assert "1 keypoints of no object that is written, left out" in output
        assert "k.json, annotation 5" in output

    @pytest.mark.parametrize(
        "edit",
        [
            lambda found: found["annotations"][0]["keypoints"].pop(),
            lambda found: found["annotations"][0]["keypoints"].__setitem__(0, 1e300),
        ],
        ids=["too few values", "numbers beyond float32"],
    )
    def test_what_they_are_not(self, run: Run, tmp_path: Path, edit: Edit) -> None:
        file = edited(tmp_path, edit, "person_keypoints_train")
        output = refused(run, tmp_path / "out", "--train-keypoint-annotations-file", file)
        assert "annotation 104900: keypoints are not 3 times x, y and visibility" in output

    def test_of_an_id_that_is_there_twice(self, run: Run, tmp_path: Path) -> None:
        """Both objects had the last one's points."""

        def repeat(found: Any) -> None:
            again = next(one for one in found["annotations"] if one["id"] == 104900)
            found["annotations"].append({**again, "bbox": [1, 1, 9, 9]})

        points = COCO / "person_keypoints_train.json"
        twice = edited_json(points, repeat, tmp_path / "k.json")
        output = refused(run, tmp_path / "out", "--train-keypoint-annotations-file", twice)
        assert "k.json: image 1049 has two annotations of id 104900" in output
        file = edited(tmp_path, repeat)
        option = ("--train-keypoint-annotations-file", points)
        output = refused(run, tmp_path / "out", *option, file=file)
        assert "annotation 104900: two objects of image 1049 have this id" in output


class TestRefusals:
    def test_two_sets_that_contradict_each_other(self, run: Run, tmp_path: Path) -> None:
        rename = lambda found: found["categories"][1].update(name="box")  # noqa: E731
        file = edited(tmp_path, rename, "instances_val")
        arguments = [*coco_arguments(), *coco_arguments("val", file)[1:]]
        ran = run(*arguments, "--output-dir", tmp_path / "out")
        assert ran.code == 2 and "category 3 is 'box', and 'square' in another set" in ran.err

    def test_missing_options(self, run: Run, tmp_path: Path) -> None:
        ran = run("coco", "--output-dir", tmp_path)
        assert ran.code == 2 and "name the files of a set" in ran.err
        ran = run("coco", "--output-dir", tmp_path, "--val-image-dir", IMAGES)
        assert ran.code == 2 and "--val-annotations-file is missing" in ran.err

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"category_id": 5}, "there is no category 5"),
            ({"bbox": [1, 2, 3]}, "annotation 100000: bbox is [1, 2, 3], expected 4 numbers"),
            ({"bbox": ["1", 2, 3, 4]}, 'bbox is ["1", 2, 3, 4], expected 4 numbers'),
            ({"bbox": {"x": 1}}, 'bbox is {"x": 1}, expected 4 numbers'),
            ({"bbox": [1, 2, float("nan"), 3]}, "boxes with a number that is not finite: 1 ("),
            ({"bbox": [-1e300, 2, 1e300, 3]}, "boxes with a number that is not finite: 1 ("),
            ({"category_id": None}, "category_id is null, expected a number"),
            ({"category_id": 1.5}, "category_id is 1.5, expected a whole number"),
            ({"area": float("nan")}, "area is NaN, expected a number"),
            ({"segmentation": [[1, 2, 3]]}, "annotation 100000: invalid segmentation"),
            ({"segmentation": [[1, 2, 3, 4, 1e30, 4]]}, "goes far beyond the image"),
            ({"segmentation": {"size": [240, 320], "counts": [1, 2]}}, "not as many pixels"),
            ({"segmentation": {"size": [9, 9], "counts": [81]}}, "its size is [9, 9]"),
            (
                {"segmentation": {"counts": [81]}},
                "its size is null, that of the image [240, 320]",
            ),
            ({"segmentation": {"size": [240, 320], "counts": [1.5]}}, "its counts are [1.5], exp"),
            ({"segmentation": {"size": [240, 320]}}, "its counts are null, expected whole"),
            ({"segmentation": 5}, "annotation 100000: invalid segmentation (it is neither"),
            ({"segmentation": "x"}, "invalid segmentation (it is neither polygons nor runs)"),
            ({"segmentation": [None]}, "a polygon is three or more pairs of finite numbers"),
            ({"segmentation": {"size": [240, 320], "counts": "\x00"}}, "invalid segmentation"),
            ({"segmentation": {"size": [240, 320], "counts": "PPP"}}, "cut off"),
            ({"id": [1]}, "id is [1], expected a number"),
            ({"image_id": [1]}, "image_id is [1], expected a number"),
            ({"iscrowd": "no"}, 'iscrowd is "no", expected a number'),
        ],
    )
    def test_annotations(
        self, run: Run, tmp_path: Path, change: Mapping[str, Any], says: str
    ) -> None:
        file = edited(tmp_path, lambda found: found["annotations"][0].update(change))
        output = refused(run, tmp_path / "out", "--include-masks", file=file)
        assert says in output and str(file) in output

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"name": "\ud800"}, "\\ud800'\\n}\\n\\n\" is not Unicode text"),
            ({"id": 1 << 31}, "category 4 in the list: its id is below 0 or beyond 32 bits"),
            ({"id": -1}, "category 4 in the list: its id is below 0 or beyond 32 bits"),
            ({"id": "x"}, 'id is "x", expected a whole number'),
            ({"id": 2.5}, "id is 2.5, expected a whole number"),
            ({"id": 3}, "id 3 is that of 'square' and of 'étoile'"),
            ({"name": None}, "category 4 in the list: category 11 has no name"),
            ({"name": " "}, "category 4 in the list: category 11 has no name"),
        ],
    )
    def test_categories(
        self, run: Run, tmp_path: Path, change: Mapping[str, Any], says: str
    ) -> None:
        edit = lambda found: found["categories"][3].update(change)  # noqa: E731
        file = edited(tmp_path, edit, "instances_val")
        ran = run(*coco_arguments("val", file), "--output-dir", tmp_path / "out")
        assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("edit", "says"),
        [
            (
                lambda found: found["images"][1].update(id=found["images"][0]["id"]),
                ["image 1000: another image has this id"],
            ),
            # JSON tells 1000 from "1000", and every box would be lost.
            (
                lambda found: [
                    one.update(image_id=str(one["image_id"])) for one in found["annotations"]
                ],
                [
                    "nothing is written: annotations whose image_id is not the id of an image: 21 "
                    '({file}, annotation 100000: "1000"; ',
                    "a number and a text are different ids",
                ],
            ),
            (
                lambda found: [one.update(bbox=[]) for one in found["annotations"]],
                [
                    "annotations without bbox, and no other annotation of the file has one: 21",
                    "({file}, annotation 100000; ",
                ],
            ),
            (
                lambda found: [
                    found["images"][2].update(file_name="../../shapes_02.jpg"),
                    found["images"][3].pop("file_name"),
                ],
                ["image 1021: 'file_name' is missing"],
            ),
            (
                lambda found: found["images"][0].update(file_name="\ud800.jpg"),
                ["\\ud800.jpg is not a valid file name"],
            ),
            (
                lambda found: found["annotations"][0].update(attributes=["occluded"]),
                ['attributes are ["occluded"], expected names and values'],
            ),
        ],
        ids=[
            "image-id-twice",
            "ids-as-texts",
            "no-box",
            "no-name",
            "no-file-name",
            "no-attributes",
        ],
    )
    def test_files(self, run: Run, tmp_path: Path, edit: Edit, says: list[str]) -> None:
        file = edited(tmp_path, edit)
        output = refused(run, tmp_path / "out", file=file)
        assert all(one.replace("{file}", str(file)) in output for one in says)

    @pytest.mark.parametrize(("unplaced", "code"), [(1, 0), (2, 2)])
    def test_more_than_one_in_twenty_without_image(
        self, run: Run, tmp_path: Path, unplaced: int, code: int
    ) -> None:
        def edit(found: Mapping[str, Any]) -> None:
            for one in found["annotations"][:unplaced]:
                one["image_id"] = 99

        file = edited(tmp_path, edit)
        ran = run(*coco_arguments(file=file), "--output-dir", tmp_path / "out")
        assert ran.code == code and f"{file}, annotation 100000: 99" in ran.err
        assert (tmp_path / "out").exists() is (code == 0)

    def test_without_the_list_of_annotations(self, run: Run, tmp_path: Path) -> None:
        """Only COCO's test images come without; an empty list is of images without objects."""

        file = edited(tmp_path, lambda found: found.pop("annotations"))
        output = refused(run, tmp_path / "out", file=file)
        assert f"{file} is not COCO JSON: it lacks" in output
        testdev = ("--test-image-dir", IMAGES, "--testdev-annotations-file", file)
        ran = run("coco", *testdev, "--output-dir", tmp_path / "out")
        assert ran.code == 0 and "8 images, 0 objects" in ran.out


def test_two_images_of_one_file(run: Run, tmp_path: Path) -> None:
    def edit(found: Mapping[str, Any]) -> None:
        found["images"][1]["file_name"] = found["images"][0]["file_name"]
        found["images"][1].update(width=320, height=240)

    file = edited(tmp_path, edit)
    output = created(run, tmp_path / "out", "--odd-boxes=drop", file=file)
    what = "1 images whose file_name another image has, too, a record for each"
    assert f"{what} (the first: {file}, image 1007: shapes_01.jpg)" in output


def test_an_annotation_without_segmentation_or_area_gets_its_boxs(run: Run, tmp_path: Path) -> None:
    def empty(found: Any) -> None:
        found["annotations"][3]["segmentation"] = []
        del found["annotations"][3]["area"]

    file = edited(tmp_path, empty)
    output = created(run, tmp_path, "--include-masks", "--num-shards=1", file=file)
    assert "1 annotations without segmentation, their mask is their box" in output
    assert "1 annotations without area, that of their box is written" in output
    found = by_filename(tmp_path / "coco_train.record")["shapes_02.jpg"]
    (mask,) = masks_of(found)
    rows, columns = np.nonzero(mask)
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (71, 188, 148, 265)
    assert mask.sum() == 78 * 78
    assert found.attributes["area"] == float32([78.01 * 78.01])


def test_attributes_as_cvat_writes_them_are_kept(run: Run, tmp_path: Path) -> None:
    def add(found: Mapping[str, Any]) -> None:
        of_one = [one for one in found["annotations"] if one["image_id"] == image["id"]]
        of_one[0]["attributes"] = {"occluded": True, "rotation": 0.0, "colour": "red"}
        of_one[1]["attributes"] = {"occluded": False, "track_id": 7}

    instances = COCO / "instances_train.json"
    images = json.loads(instances.read_text())["images"]
    image = next(one for one in images if one["file_name"] == CROWDED)
    file = edited_json(instances, add, tmp_path / "a.json")
    created(run, tmp_path, "--num-shards=1", file=file)
    found = by_filename(tmp_path / "coco_train.record")[CROWDED].attributes
    assert found["occluded"][:3] == [True, False, None]
    assert found["colour"][:2] == ["red", None] and found["rotation"][0] == 0.0
    assert found["track_id"][:2] == [None, 7] and "area" in found


def test_attributes_that_are_null_in_all_objects_of_an_image(run: Run, tmp_path: Path) -> None:
    """Other images have texts there, and a key whose values are now numbers, now texts, has no
    reader."""

    def add(found: Mapping[str, Any]) -> None:
        images = [one["image_id"] for one in found["annotations"]]
        for one in found["annotations"]:
            one["attributes"] = {"colour": "red" if one["image_id"] == images[0] else None}

    file = edited(tmp_path, add)
    created(run, tmp_path, "--num-shards=1", file=file)
    key = "image/object/attribute/colour"
    found = [set(one.byte_strings(key)) for one in read_examples(tmp_path) if key in one]
    assert found == [{b"red"}]


def test_attributes_named_as_cocos_own_values_are_counted(run: Run, tmp_path: Path) -> None:
    def add(found: Mapping[str, Any]) -> None:
        first, second = found["annotations"][:2]
        first["attributes"] = {"area": "north", "is_crowd": bool(first["iscrowd"])}
        second["attributes"] = {"area": second["area"], "is_crowd": 7}

    file = edited(tmp_path, add)
    output = created(run, tmp_path, "--num-shards=1", file=file)
    for name in ("area", "is_crowd"):
        assert f"1 attributes named {name}, left out for COCO's own value (the first: " in output
    found = [one.attributes.get("area", []) for one in by_filename(tmp_path).values()]
    areas = [one["area"] for one in json.loads(file.read_text())["annotations"]]
    assert sorted(itertools.chain(*found)) == sorted(float32(areas))


def test_annotations_of_one_id_are_counted(run: Run, tmp_path: Path) -> None:
    """As of files that were joined, or one that was joined with itself."""

    def add(found: Mapping[str, Any]) -> None:
        for one in found["annotations"][:3]:
            one["id"] = None  # which is none
        found["annotations"].append(dict(found["annotations"][5]))

    before = created(run, tmp_path / "before")
    file = edited(tmp_path, add)
    output = created(run, tmp_path / "after", file=file)
    says = "1 annotations whose id another one has, too, an object for each (the first: "
    assert says in output and says not in before
    counts = [
        sum(len(one.boxes) for one in by_filename(tmp_path / folder).values())
        for folder in ("before", "after")
    ]
    assert counts[1] == counts[0] + 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not COCO JSON"),
        (
            '{"images": [], "annotations": [3], "categories": []}',
            "an entry of annotations is 3, expected an object",
        ),
        (
            '{"images": [null], "annotations": [], "categories": []}',
            "an entry of images is null, expected an object",
        ),
        ('{"images": [], "annotations": "", "categories": []}', "is not COCO JSON: it lacks"),
        (
            '{"images": [{"id": 1, "file_name": "a", "width": 1e300}], "annotations": [], '
            '"categories": []}',
            "image 1: width is 1000",
        ),
    ],
)
def test_files_that_are_none(run: Run, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert says in refused(run, tmp_path / "out", file=tmp_path / "x.json")
    (tmp_path / "x.json").unlink()
    assert "x.json cannot be read" in refused(run, tmp_path / "out", file=tmp_path / "x.json")
