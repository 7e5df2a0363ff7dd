"""YOLO folders of other tools, from reports of errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.detection.detection import Detection

from tests.commands import Run
from tests.files import write_file, write_files
from tests.formats.conftest import by_filename
from tests.image_kinds import plain_image

BOX = "0.25 0.375 0.25 0.5"
NORMALIZED = [0.125, 0.125, 0.375, 0.625]


def dataset(folder: Path, yaml: str | None, labels: Mapping[str, str]) -> Path:
    """Write ``data.yaml`` and, for each folder such as ``train``, an image and its labels."""
    for number, (subset, text) in enumerate(labels.items()):
        picture = plain_image((200, 100), (number * 40, 9, 9))
        write_files(folder / subset, {"images/a.jpg": picture, "labels/a.txt": text})
    if yaml is not None:
        write_file(folder / "data.yaml", f"names: [cat, dog]\n{yaml}")
    return folder


def only(folder: Path) -> Detection:
    (one,) = by_filename(folder).values()
    return one


LINE = f"0 {BOX}\n"
ONE = "train: train/images\n"
TWO = {"train": f"0 {BOX}", "valid": f"1 {BOX}"}
THERE = "train: ../train/images\nval: ../valid/images\n"


@pytest.mark.parametrize(
    "yaml",  # Roboflow always names a test folder, which may be missing
    [
        f"{THERE}test: ../test/images\n",
        f"test: ../test/images\n{THERE}",
        "train: train/images\nval: [valid/images, more/images]\n",
        f"{THERE}test: test.txt\n",
        f"path: /data/of/another/machine\n{THERE}test: test/images\n",
    ],
)
def test_a_missing_folder_is_skipped(convert: Run, tmp_path: Path, yaml: str) -> None:
    source = dataset(tmp_path / "s", yaml, TWO)
    done = convert(source, tmp_path / "out")
    assert done.code == 0 and done.out.splitlines()[:-1] == [
        f"{tmp_path}/out: {subset}: 1 image, 1 object" for subset in ("train", "val")
    ]
    what = "folders of images that do not exist, skipped: 1 (the first: "
    assert f"{what}{source}/data.yaml: " in done.err and done.err.count("\n") == 1
    line = convert(source, tmp_path / "x", "--set=test").refused()
    assert "has no subset 'test'; choose another" in line


DARKNET = {
    "obj.names": "cat\ndog\n",
    "obj.data": "train = data/train.txt\nvalid = data/valid.txt\n",
}


def test_a_missing_list_of_darknet_is_skipped(convert: Run, tmp_path: Path) -> None:
    source = dataset(tmp_path / "s", None, TWO)
    write_files(source, {**DARKNET, "train.txt": "data/train/images/a.jpg\n"})
    done = convert(source, tmp_path / "out")
    assert done.code == 0 and "folders of images that do not exist" in done.err
    assert done.out.startswith(f"{tmp_path}/out: train: 1 image, 1 object\n")


def test_classes_of_one_name(run: Run, tmp_path: Path) -> None:
    yaml = "train: train/images\nnames: [cat, cat, dog]\n"
    source = dataset(tmp_path / "s", yaml, {"train": f"0 {BOX}\n1 {BOX}\n2 {BOX}"})
    note = f"merged into one class: 1 (the first: {source}/data.yaml: 'cat' is 0 and 1)\n"
    assert run("convert", source, tmp_path / "out").succeeded().endswith(note)
    done = run("diff", source, tmp_path / "out")
    assert done.code == 0 and note.strip() in done.out + done.err


@pytest.mark.parametrize(
    ("shape", "line", "xy", "shown"),
    [
        # Nine numbers could be an outline of four corners, seven a triangle.
        ("[2, 2]", "0.2 0.2 0.3 0.5", [[0.2, 0.2], [0.3, 0.5]], [2, 2]),
        ("[2, 2]", "0 0 0.3 0.5", [[0, 0], [0.3, 0.5]], [0, 2]),
        ("[1, 2]", "0.2 0.3", [[0.2, 0.3]], [2]),
        ("[1, 3]", "0.2 0.3 1", [[0.2, 0.3]], [1]),
        ("[2, 3]", "0.2 0.2 2 0 0 0", [[0.2, 0.2], [0, 0]], [2, 0]),
        ("[2, 3]", "0.2 0.2 1.0 0.1 0.1 0.0", [[0.2, 0.2], [0.1, 0.1]], [1, 0]),
        ("[2, 3]", "", [[0, 0], [0, 0]], [0, 0]),
    ],
)
def test_keypoints_after_a_box(
    convert: Run, tmp_path: Path, shape: str, line: str, xy: Any, shown: list[int]
) -> None:
    yaml = f"{ONE}kpt_shape: {shape}\nflip_idx: [0]\nkpt_names: [of, other, points]\n"
    source = dataset(tmp_path / "s", yaml, {"train": f"1 {BOX} {line}\n{LINE}"})
    assert convert(source, tmp_path / "out").succeeded() == ""
    one = only(tmp_path / "out")
    assert one.boxes.tolist() == [NORMALIZED] * 2 and one.class_text == ["dog", "cat"]
    assert one.keypoints is not None
    assert one.keypoints.visibility.tolist() == [shown, [0] * len(shown)]
    assert not one.keypoints.names
    np.testing.assert_allclose(one.keypoints.xy[0], xy, atol=1e-6)
    convert(tmp_path / "out", tmp_path / "c", "--to=coco").succeeded()
    text = (tmp_path / "c/annotations/instances_train.json").read_text()
    counts = [one.get("num_keypoints", 0) for one in json.loads(text)["annotations"]]
    assert counts == [np.count_nonzero(shown), 0]


@pytest.mark.parametrize(
    ("line", "box", "says"),
    [
        (BOX, NORMALIZED, ""),
        (f"{BOX} 0.9", NORMALIZED, "confidences after boxes, ignored"),
        *(
            (outline, [0.1, 0.1, 0.3, 0.4], "outlines, replaced by their enclosing boxes")
            for outline in ("0.1 0.1 0.3 0.1 0.2 0.4", "0.1 0.1 0.3 0.1 0.3 0.4 0.1 0.4")
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
        ("notes.json", '{"categories": [{"id": 0, "name": "cat"}], "info": {}}'),  # Label Studio
        ("notes.json", '{"info": {"contributor": "images", "keys": ["images", "labels"]}}'),
        ("annotations/notes.json", '{"categories": []}'),
        ("settings.json", "[]"),
        ("broken.json", "{"),
        (".images.json", '{"images": []}'),
    ],
)
@pytest.mark.parametrize("folders", [("images/", "labels/"), ("", "")])
def test_a_json_without_images_is_not_coco(
    convert: Run, tmp_path: Path, name: str, text: str, folders: tuple[str, str]
) -> None:
    """Label Studio writes two folders, labelImg one."""
    images, labels = folders
    files = {f"{images}i1.jpg": plain_image((200, 100)), f"{labels}i1.txt": f"1 {BOX}\n"}
    folder = write_files(tmp_path / "s", {**files, "classes.txt": "cat\ndog\n", name: text})
    done = convert(folder, tmp_path / "out", "--set=train")
    assert (done.code, done.err) == (0, "") and done.out.startswith(f"{tmp_path}/out: train")
    one = only(tmp_path / "out")
    assert one.boxes.tolist() == [NORMALIZED] and one.class_text == ["dog"]


def test_an_image_without_a_label_file(convert: Run, tmp_path: Path) -> None:
    source = dataset(tmp_path / "s", THERE, TWO)
    (source / "valid/labels/a.txt").unlink()
    said = convert(source, tmp_path / "out").succeeded()
    what = "images without a label file, written without objects: 1 (the first: "
    assert said == f"tfod: {what}{source}/valid/labels/a.txt)\n"


def test_a_label_file_without_an_image(convert: Run, tmp_path: Path) -> None:
    """Images have any extension. Other texts are not label files."""
    source = dataset(tmp_path / "s", THERE, TWO)
    (source / "train/images/a.jpg").rename(source / "train/images/a.jfif")
    write_files(source / "valid/labels", {"b.txt": LINE, "c.txt": "", "classes.txt": "cat\n"})
    done = convert(source, tmp_path / "out")
    what = "label files without an image, left out: 2 (the first: "
    assert done.succeeded() == f"tfod: {what}{source}/valid/labels/b.txt)\n"
    assert "train: 1 image, 1 object" in done.out


@pytest.mark.parametrize(
    ("before", "after"), [("labels", "LABELS"), ("labels/a.txt", "labels/a.TXT")]
)
def test_no_label_file(convert: Run, tmp_path: Path, before: str, after: str) -> None:
    source = dataset(tmp_path / "s", ONE, {"train": LINE})
    (source / "train" / before).rename(source / "train" / after)
    if (source / "train/labels/a.txt").exists():
        pytest.skip("the disk has no cases")
    says = convert(source, tmp_path / "out").refused()
    assert f"without any label file: 1 ({source}/train/labels/a.txt); add it" in says


POSES = "train: train/images\nkpt_shape: {}\n"
ABSENT = "does not exist; correct it or the value of path"


@pytest.mark.parametrize(
    ("yaml", "lines", "says"),
    [
        ("train: ../test/images\n", "", f"../test/images {ABSENT}"),
        ("train: 5\n", "", f"data.yaml: 5 {ABSENT}"),
        ("train: {a: b}\n", "", "data.yaml: train is {'a': 'b'}; write train: images/train"),
        (f"{ONE}val: [train/images, [5]]\n", "", "val is ['train/images', ['5']]; write"),
        (POSES.format("[17, 4]"), "", "kpt_shape is ['17', '4'], expected for example [17, 3]"),
        ("train: [a\nval: b\n", "", "data.yaml, line 3: cannot be read: expected ',' or ']'"),
        *(
            (
                POSES.format(shape),
                f"{LINE}1 {BOX} {line}",
                f"line 2: expected a class and kpt_shape {shape}",
            )
            for shape, line in (
                ("[2, 2]", "0.2 0.2 0.3"),
                ("[2, 2]", "0.2 0.2 0.3 0.3 0.4 0.4"),
                ("[17, 3]", "0.2 0.2 0.3 0.3"),  # an outline
            )
        ),
        *(
            (
                POSES.format("[1, 2]"),
                f"{LINE}0 {BOX} 0.2 {number}\n",
                "line 2: a keypoint has a number that is not finite",
            )
            for number in ("nan", "inf", "1e300")
        ),
    ],
)
def test_invalid_yamls_and_labels(
    convert: Run, tmp_path: Path, yaml: str, lines: str, says: str
) -> None:
    source = dataset(tmp_path / "s", yaml, {"train": lines or LINE})
    assert says in convert(source, tmp_path / "out").refused()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("names", "line", "says"),
    [
        ("cat\ndog\n", f"2 {BOX}", "a.txt, line 1: class 2 is not named in"),
        ("cat\n\ndog\n\n", f"1 {BOX}", "obj.names, line 2: empty line, which Darknet counts"),
    ],
)
def test_invalid_classes_of_darknet(
    convert: Run, tmp_path: Path, names: str, line: str, says: str
) -> None:
    source = dataset(tmp_path / "s", None, {"train": line})
    write_files(source, {"obj.names": names, "obj.data": "classes = 2\ntrain = train/images\n"})
    assert says in convert(source, tmp_path / "out").refused()


def test_hidden_files_and_links(convert: Run, tmp_path: Path) -> None:
    """Ultralytics calls glob, which skips hidden files. Links may lead back."""
    source = dataset(tmp_path / "s", ONE, {"train": LINE})
    images, labels = source / "train/images", source / "train/labels"
    write_files(images, {"._x.jpg": b"no image", ".thumbs/a.jpg": b"no image"})
    for folder, ending in ((images, "jpg"), (labels, "txt")):
        (tmp_path / ending).mkdir()
        (folder / f"a.{ending}").rename(tmp_path / ending / f"b.{ending}")
        (folder / "more").symlink_to(tmp_path / ending)
        (tmp_path / ending / "back").symlink_to(folder)
    assert convert(source, tmp_path / "out").succeeded() == ""
    assert list(by_filename(tmp_path / "out")) == ["more/b.jpg"]


def test_a_missing_image_of_a_list(convert: Run, tmp_path: Path) -> None:
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
def test_names_next_to_the_labels(convert: Run, tmp_path: Path, images: str) -> None:
    """labelImg writes classes.txt into the folder of the labels."""
    source = dataset(tmp_path / "s", None, {".": LINE})
    write_file(source / "labels/classes.txt", "cat\ndog\n")
    if images != "images":
        (source / "images/a.jpg").rename(source / images / "a.jpg")
        (source / "images").rmdir()
    assert convert(source, tmp_path / "out").succeeded() == ""
    assert only(tmp_path / "out").class_text == ["cat"]
