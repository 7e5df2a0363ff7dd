"""YOLO folders as tools write them, after reports of what went wrong with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.detection.detection import Detection

from tests.commands import Run
from tests.formats.conftest import by_filename
from tests.image_kinds import plain_image

BOX = "0.25 0.375 0.25 0.5"
NORMALIZED = [0.125, 0.125, 0.375, 0.625]


def dataset(folder: Path, yaml: str, labels: Mapping[str, str]) -> Path:
    """``data.yaml``, and images with these labels, by their folders: ``train`` has images/."""
    for number, (subset, text) in enumerate(labels.items()):
        for part in ("images", "labels"):
            (folder / subset / part).mkdir(parents=True)
        colour = (number * 40, 9, 9)
        (folder / subset / "images" / "a.jpg").write_bytes(plain_image((200, 100), colour))
        (folder / subset / "labels" / "a.txt").write_text(text)
    (folder / "data.yaml").write_text(f"names: [cat, dog]\n{yaml}")
    return folder


def only(folder: Path) -> Detection:
    (one,) = by_filename(folder).values()
    return one


TWO = {"train": f"0 {BOX}", "valid": f"1 {BOX}"}
THERE = "train: ../train/images\nval: ../valid/images\n"


class TestFoldersThatAreMissing:
    """Roboflow's data.yaml names a test folder that its export need not have."""

    @pytest.mark.parametrize(
        "yaml",
        [
            f"{THERE}test: ../test/images\n",
            f"test: ../test/images\n{THERE}",
            "train: train/images\nval: [valid/images, more/images]\n",
            f"{THERE}test: test.txt\n",
            f"path: /data/of/another/machine\n{THERE}test: test/images\n",
        ],
    )
    def test_one_is_said_and_passed_over(self, convert: Run, tmp_path: Path, yaml: str) -> None:
        source = dataset(tmp_path / "s", yaml, TWO)
        done = convert(source, tmp_path / "out")
        assert done.code == 0 and done.out.splitlines()[:-1] == [
            f"{tmp_path}/out: train: 1 image, 1 object",
            f"{tmp_path}/out: val: 1 image, 1 object",
        ]
        what = "folders of images that do not exist, skipped: 1 (the first: "
        assert f"{what}{source}/data.yaml: " in done.err and done.err.count("\n") == 1

    @pytest.mark.parametrize(
        ("yaml", "options", "says"),
        [
            (
                "train: ../test/images\n",
                (),
                "../test/images does not exist; correct it or the value of path",
            ),
            (f"{THERE}test: ../test/images\n", ("--set=test",), "has no subset 'test'; choose ano"),
        ],
    )
    def test_nothing_is_left(
        self, convert: Run, tmp_path: Path, yaml: str, options: tuple[str, ...], says: str
    ) -> None:
        source = dataset(tmp_path / "s", yaml, TWO)
        assert says in convert(source, tmp_path / "out", *options).refused()
        assert not (tmp_path / "out").exists()

    def test_darknets_own_file(self, convert: Run, tmp_path: Path) -> None:
        source = dataset(tmp_path / "s", "", TWO)
        (source / "data.yaml").unlink()
        (source / "obj.names").write_text("cat\ndog\n")
        (source / "obj.data").write_text("train = data/train.txt\nvalid = data/valid.txt\n")
        (source / "train.txt").write_text("data/train/images/a.jpg\n")
        done = convert(source, tmp_path / "out")
        assert done.code == 0 and "folders of images that do not exist" in done.err
        assert done.out.startswith(f"{tmp_path}/out: train: 1 image, 1 object\n")


@pytest.mark.parametrize(
    ("names", "line", "says"),
    [
        ("cat\ndog\n", f"2 {BOX}", "a.txt, line 1: class 2 is not named in"),
        (
            "cat\n\ndog\n\n",
            f"1 {BOX}",
            "obj.names, line 2: empty line, which Darknet counts as a class",
        ),
    ],
)
def test_classes_of_darknet(convert: Run, tmp_path: Path, names: str, line: str, says: str) -> None:
    source = dataset(tmp_path / "s", "", {"train": line})
    (source / "data.yaml").unlink()
    (source / "obj.names").write_text(names)
    (source / "obj.data").write_text("classes = 2\ntrain = train/images\n")
    assert says in convert(source, tmp_path / "out").refused()


def test_classes_of_one_name(run: Run, convert: Run, tmp_path: Path) -> None:
    yaml = "train: train/images\nnames: [cat, cat, dog]\n"
    source = dataset(tmp_path / "s", yaml, {"train": f"0 {BOX}\n1 {BOX}\n2 {BOX}"})
    note = (
        "classes with the name of another one, merged into one class: 1 (the first: "
        f"{source}/data.yaml: 'cat' is 0 and 1)"
    )
    assert convert(source, tmp_path / "out").succeeded() == f"tfod: {note}\n"
    done = run("diff", source, tmp_path / "out")
    assert done.code == 0 and note in done.out + done.err


class TestPoses:
    """Boxes, and behind them keypoints, where data.yaml has ``kpt_shape``: no outlines."""

    @pytest.mark.parametrize(
        ("shape", "line", "xy", "shown"),
        [
            # The report's: nine numbers, as an outline of four corners has.
            ("[2, 2]", "0.2 0.2 0.3 0.5", [[0.2, 0.2], [0.3, 0.5]], [2, 2]),
            ("[2, 2]", "0 0 0.3 0.5", [[0, 0], [0.3, 0.5]], [0, 2]),
            # Seven numbers, as a triangle, and a box with one point.
            ("[1, 2]", "0.2 0.3", [[0.2, 0.3]], [2]),
            ("[1, 3]", "0.2 0.3 1", [[0.2, 0.3]], [1]),
            ("[2, 3]", "0.2 0.2 2 0 0 0", [[0.2, 0.2], [0, 0]], [2, 0]),
            ("[2, 3]", "0.2 0.2 1.0 0.1 0.1 0.0", [[0.2, 0.2], [0.1, 0.1]], [1, 0]),
            ("[2, 3]", "", [[0, 0], [0, 0]], [0, 0]),  # a box alone
        ],
    )
    def test_points_stand_behind_the_box(
        self, convert: Run, tmp_path: Path, shape: str, line: str, xy: Any, shown: list[int]
    ) -> None:
        yaml = f"train: train/images\nkpt_shape: {shape}\nkpt_names: [of, other, points]\n"
        source = dataset(tmp_path / "s", yaml, {"train": f"1 {BOX} {line}\n"})
        assert convert(source, tmp_path / "out").succeeded() == ""
        one = only(tmp_path / "out")
        assert one.boxes.tolist() == [NORMALIZED] and one.class_text == ["dog"]
        assert one.keypoints is not None and one.keypoints.visibility.tolist() == [shown]
        assert not one.keypoints.names
        np.testing.assert_allclose(one.keypoints.xy[0], xy, atol=1e-6)

    def test_of_persons(self, convert: Run, tmp_path: Path) -> None:
        points = " ".join(f"{i / 20} {i / 40} {i % 3}" for i in range(17))
        yaml = "train: train/images\nkpt_shape: [17, 3]\nflip_idx: [0]\n"
        source = dataset(tmp_path / "s", yaml, {"train": f"0 {BOX} {points}\n1 {BOX}\n"})
        convert(source, tmp_path / "out").succeeded()
        found = only(tmp_path / "out").keypoints
        assert found is not None and found.xy.shape == (2, 17, 2)
        assert found.visibility.tolist() == [[i % 3 for i in range(17)], [0] * 17]
        coco = tmp_path / "c"
        convert(tmp_path / "out", coco, "--to=coco").succeeded()
        text = (coco / "annotations/instances_train.json").read_text()
        first = json.loads(text)["annotations"][0]
        assert first["num_keypoints"] == 11 and len(first["keypoints"]) == 51

    @pytest.mark.parametrize(
        ("shape", "line"),
        [
            ("[2, 2]", "0.2 0.2 0.3"),
            ("[2, 2]", "0.2 0.2 0.3 0.3 0.4 0.4"),
            ("[17, 3]", "0.2 0.2 0.3 0.3"),  # an outline
        ],
    )
    def test_a_line_that_fits_neither(
        self, convert: Run, tmp_path: Path, shape: str, line: str
    ) -> None:
        yaml = f"train: train/images\nkpt_shape: {shape}\n"
        source = dataset(tmp_path / "s", yaml, {"train": f"1 {BOX}\n1 {BOX} {line}\n"})
        says = convert(source, tmp_path / "out").refused()
        assert f"a.txt, line 2: expected a class and kpt_shape {shape}" in says
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "box", "says"),
    [
        (BOX, NORMALIZED, ""),
        (f"{BOX} 0.9", NORMALIZED, "confidences after boxes, ignored"),
        ("0.1 0.1 0.3 0.1 0.2 0.4", [0.1, 0.1, 0.3, 0.4], "outlines, replaced by their enclosing"),
        (
            "0.1 0.1 0.3 0.1 0.3 0.4 0.1 0.4",
            [0.1, 0.1, 0.3, 0.4],
            "outlines, replaced by their enclosing boxes",
        ),
    ],
)
def test_lines_without_keypoints(
    convert: Run, tmp_path: Path, line: str, box: list[float], says: str
) -> None:
    source = dataset(tmp_path / "s", "train: train/images\n", {"train": f"0 {line}\n"})
    said = convert(source, tmp_path / "out").succeeded()
    assert says in said and bool(says) is bool(said)
    np.testing.assert_allclose(only(tmp_path / "out").boxes, [box], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.json", '{"categories": [{"id": 0, "name": "cat"}], "info": {}}'),  # Label Studio's
        ("notes.json", '{"info": {"contributor": "images", "keys": ["images", "labels"]}}'),
        ("annotations/notes.json", '{"categories": []}'),
        ("settings.json", "[]"),
        ("broken.json", "{"),
        (".images.json", '{"images": []}'),
    ],
)
@pytest.mark.parametrize("layout", ["beside", "flat"])
def test_a_json_without_images_is_no_coco(
    convert: Run, tmp_path: Path, name: str, text: str, layout: str
) -> None:
    """Label Studio's folders, and labelImg's, which has all files in one."""
    folder = tmp_path / "s"
    images, labels = (
        (folder, folder) if layout == "flat" else (folder / "images", folder / "labels")
    )
    for path, content in {
        images / "i1.jpg": plain_image((200, 100)),
        labels / "i1.txt": f"1 {BOX}\n".encode(),
        folder / "classes.txt": b"cat\ndog\n",
        folder / name: text.encode(),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    done = convert(folder, tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    one = only(tmp_path / "out")
    assert one.boxes.tolist() == [NORMALIZED] and one.class_text == ["dog"]
    assert convert(folder, tmp_path / "out2", "--set=train").out.startswith(
        f"{tmp_path}/out2: train"
    )


LINE = f"0 {BOX}\n"
ONE = "train: train/images\n"


class TestFilesOfLabels:
    def test_an_image_without_one_is_said(self, convert: Run, tmp_path: Path) -> None:
        source = dataset(tmp_path / "s", THERE, TWO)
        (source / "valid/labels/a.txt").unlink()
        said = convert(source, tmp_path / "out").succeeded()
        what = "images without a label file, written without objects: 1 (the first: "
        assert said == f"tfod: {what}{source}/valid/labels/a.txt)\n"

    def test_one_without_an_image_is_said(self, convert: Run, tmp_path: Path) -> None:
        """An image has any name; other texts are no files of labels."""
        source = dataset(tmp_path / "s", THERE, TWO)
        (source / "train/images/a.jpg").rename(source / "train/images/a.jfif")
        for name, text in {"b.txt": LINE, "c.txt": "", "classes.txt": "cat\n"}.items():
            (source / "valid/labels" / name).write_text(text)
        done = convert(source, tmp_path / "out")
        what = "label files without an image, left out: 2 (the first: "
        assert done.succeeded() == f"tfod: {what}{source}/valid/labels/b.txt)\n"
        assert "train: 1 image, 1 object" in done.out

    @pytest.mark.parametrize(
        ("before", "after"), [("labels", "LABELS"), ("labels/a.txt", "labels/a.TXT")]
    )
    def test_none_at_all(self, convert: Run, tmp_path: Path, before: str, after: str) -> None:
        source = dataset(tmp_path / "s", ONE, {"train": LINE})
        (source / "train" / before).rename(source / "train" / after)
        if (source / "train/labels/a.txt").exists():
            pytest.skip("the disk has no cases")
        says = convert(source, tmp_path / "out").refused()
        assert f"without any label file: 1 ({source}/train/labels/a.txt); add it" in says


@pytest.mark.parametrize(
    ("yaml", "says"),
    [
        ("train: 5\n", "data.yaml: 5 does not exist; correct it or the value of path"),
        ("train: {a: b}\n", "data.yaml: train is {'a': 'b'}; write train: images/train"),
        (f"{ONE}val: [train/images, [5]]\n", "data.yaml: val is ['train/images', ['5']]; write"),
        (f"{ONE}kpt_shape: [17, 4]\n", "kpt_shape is ['17', '4'], expected for example [17, 3]"),
        ("train: [a\nval: b\n", "data.yaml, line 3: cannot be read: expected ',' or ']'"),
    ],
)
def test_what_is_no_subset(convert: Run, tmp_path: Path, yaml: str, says: str) -> None:
    source = dataset(tmp_path / "s", yaml, {"train": LINE})
    assert says in convert(source, tmp_path / "out").refused()


@pytest.mark.parametrize("number", ["nan", "inf", "1e300"])
def test_points_that_are_not_finite(convert: Run, tmp_path: Path, number: str) -> None:
    text = f"{LINE}0 {BOX} 0.2 {number}\n"
    source = dataset(tmp_path / "s", f"{ONE}kpt_shape: [1, 2]\n", {"train": text})
    says = convert(source, tmp_path / "out").refused()
    assert "labels/a.txt, line 2: a keypoint has a number that is not finite; correct" in says


def test_hidden_files_and_links(convert: Run, tmp_path: Path) -> None:
    """As glob has them, which Ultralytics asks; links that lead back end."""
    source = dataset(tmp_path / "s", ONE, {"train": LINE})
    images, labels = source / "train/images", source / "train/labels"
    for path in (images / "._x.jpg", images / ".thumbs/a.jpg"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no image")
    for folder, ending in ((images, "jpg"), (labels, "txt")):
        (tmp_path / ending).mkdir()
        (folder / f"a.{ending}").rename(tmp_path / ending / f"b.{ending}")
        (folder / "more").symlink_to(tmp_path / ending)
        (tmp_path / ending / "back").symlink_to(folder)
    assert convert(source, tmp_path / "out").succeeded() == ""
    assert list(by_filename(tmp_path / "out")) == ["more/b.jpg"]


def test_an_image_of_a_list_that_is_not_there(convert: Run, tmp_path: Path) -> None:
    source = dataset(tmp_path / "s", "train: train.txt\n", {"train": LINE})
    (source / "train.txt").write_text("train/images/a.jpg\n\ntrain/images/b.jpg\n")
    says = convert(source, tmp_path / "out").refused()
    place = f"{source}/train/images/b.jpg, of {source}/train.txt, line 3"
    assert f"images that are missing: 1 ({place}); add the images" in says


@pytest.mark.parametrize(
    "name",
    [
        *("cat", "yes", "NO", "001", "0o17", "0x1F", "1.10", ".5", "1e3", "12:30", "2024-01-02"),
        *("2024-13-45", "null", "~", "'on'", '"1.0"', "=", "NaN"),
    ],
)
@pytest.mark.parametrize("names", ["[dog, {}]", "{{0: dog, 1: {}}}", '{{"0": dog, "1": {}}}'])
def test_names_stay_as_typed(convert: Run, tmp_path: Path, names: str, name: str) -> None:
    yaml = f"{ONE}names: {names.format(name)}\n"
    source = dataset(tmp_path / "s", yaml, {"train": f"1 {BOX}\n"})
    assert convert(source, tmp_path / "out").succeeded() == ""
    assert only(tmp_path / "out").class_text == [name.strip("'\"")]


@pytest.mark.parametrize("images", ["images", ".", "labels"])
def test_names_among_the_labels(convert: Run, tmp_path: Path, images: str) -> None:
    """labelImg writes classes.txt into the folder in which it saves."""
    source = dataset(tmp_path / "s", "", {".": LINE})
    (source / "data.yaml").unlink()
    (source / "labels/classes.txt").write_text("cat\ndog\n")
    if images != "images":
        (source / "images/a.jpg").rename(source / images / "a.jpg")
        (source / "images").rmdir()
    assert convert(source, tmp_path / "out").succeeded() == ""
    assert only(tmp_path / "out").class_text == ["cat"]
