"""Outlines and poses that Ultralytics reads, and a data.yaml that needs no change.

Ultralytics 8.4.190, ultralytics/data/utils.py: line 467 refuses labels that mix outlines and boxes,
474 poses with another number of columns, 480 coordinates outside the image.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.encoder import encode_detection
from tfod.detection.images.mask_images import encode_mask_png
from tfod.sources.reading import read_detections
from tfod.tfrecord.writer import write_records

from tests.commands import Run

H, W = 50, 100
NAMES = ("nose", "left_eye", "Right_Eye")
EMPTY = Detection(filename="x.png", height=H, width=W, boxes=np.zeros((0, 4), "<f4"))


def detection(*kinds: str) -> Detection:
    """Objects of 10 x 5 pixels, each of which has a ``mask``, keypoints (``pose``) or a ``box``.

    The size of an ``odd mask`` differs from the image, and a ``far mask`` is far from its box.
    """
    boxes = np.array([[0.1 * i, 0.1, 0.1 * i + 0.1, 0.2] for i in range(len(kinds))], "<f4")
    masks, points = [], np.zeros((len(kinds), 3, 3), "<f4")
    for number, kind in enumerate(kinds):
        pixels = np.zeros((H, W), bool)
        pixels[5:10, 10 * number : 10 * number + 10] = True
        pixels = pixels[::2] if "odd" in kind else pixels[:, ::-1] if "far" in kind else pixels
        masks.append(PngMask(encode_mask_png(pixels, is_box="mask" not in kind)))
        points[number] = [[0.25, 0.5, 2], [0, 0, 0], [0.5, 1.25, 1]] if "pose" in kind else 0
    has_masks, has_points = ("mask" in "".join(kinds)), ("pose" in "".join(kinds))
    return replace(
        EMPTY,
        boxes=boxes,
        class_text=["cat"] * len(kinds),
        class_label=[1] * len(kinds),
        masks=masks if has_masks else None,
        keypoints=Keypoints(points[..., :2], points[..., 2].astype(int), NAMES)
        if has_points
        else None,
    )


def write(folder: Path, subset: str, *images: Detection) -> Path:
    named = (replace(one, filename=f"{subset}{i:03}.png") for i, one in enumerate(images))
    write_records(folder, subset, map(encode_detection, named))
    return folder


def labels(folder: Path) -> list[list[list[float]]]:
    """The numbers of each line of each image."""
    files = sorted((folder / "labels").glob("*/*.txt"))
    return [[[float(x) for x in y.split()] for y in z.read_text().splitlines()] for z in files]


def box(number: int) -> list[float]:
    return [0, 0.1 * number + 0.05, 0.15, 0.1, 0.1]


def outline(number: int) -> list[float]:
    left, right = 0.1 * number, 0.1 * number + 0.1
    return [0, left, 0.1, right, 0.1, right, 0.2, left, 0.2]


POSE = [0.25, 0.5, 2, *[0] * 6]  # the third keypoint is outside the image
NO_POSE = [0] * 9
MASKS_LOST = "not written, because other objects have no mask; choose --masks: {} masks"
OUTSIDE = "keypoints outside their image, written as not labelled: 1"
BOXES = "objects without a mask, written as the outline of their box: 2"
LOST = "because the format cannot store them: 1 {}"
CASES: dict[str, tuple[Sequence[Sequence[str]], str, Sequence[Sequence[Any]], str]] = {
    # the objects of each image, the last of which is in another batch; option; lines; the note
    "boxes": ([("box", "box")], "", [[box(0), box(1)]], ""),
    "masks": ([("mask", "mask"), ()], "", [[outline(0), outline(1)], []], ""),
    "masks after an image without objects": ([(), ("mask",)], "", [[], [outline(0)]], ""),
    "an object without a mask": (
        [("mask", "box"), ("mask",)], "", [[box(0), box(1)], [box(0)]], MASKS_LOST.format(2)
    ),
    "the last object has no mask": (
        [("far mask",), ("mask",), ("box",)], "", [[box(0)]] * 3, MASKS_LOST.format(2)
    ),
    "odd masks that are not needed": (
        [("odd mask",), ("box",)], "", [[box(0)], [box(0)]], MASKS_LOST.format(1)
    ),
    "--masks": (
        [("mask", "box"), ("box",)], "--masks", [[outline(0), outline(1)], [outline(0)]], BOXES
    ),
    "poses": (
        [("pose", "box"), ("box",)],
        "",
        [[box(0) + POSE, box(1) + NO_POSE], [box(0) + NO_POSE]],
        OUTSIDE,
    ),
    "the last object has keypoints": (
        [("box",), ("pose",)], "", [[box(0) + NO_POSE], [box(0) + POSE]], OUTSIDE
    ),
    "both, with --masks": (
        [("mask pose",)], "--masks", [[outline(0)]], LOST.format("keypoints")
    ),
    "both, with --keypoints": (
        [("mask pose", "box")],
        "--keypoints",
        [[box(0) + POSE, box(1) + NO_POSE]],
        LOST.format("masks"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_lines(run: Run, tmp_path: Path, case: str) -> None:
    objects, option, expected, note = CASES[case]
    images = [detection(*kinds) for kinds in objects]
    source = write(tmp_path / "s", "train", *images[: max(1, len(images) - 1)])
    if len(images) > 1:
        write(source, "val", images[-1])
    options = filter(None, ["--to=yolo", "--no-images", option])
    says = run("convert", source, tmp_path / "out", *options).succeeded()
    assert note in says and ("mask" in says) is ("mask" in note) and "far" not in says
    found = labels(tmp_path / "out")
    assert [len(lines) for lines in found] == [len(lines) for lines in expected]
    for lines, ours in zip(found, expected, strict=True):
        for line, numbers in zip(lines, ours, strict=True):
            np.testing.assert_allclose(line, numbers, atol=1e-7)
    data = yaml.safe_load((tmp_path / "out/data.yaml").read_text())
    has_poses = "kpt_shape" in data
    assert has_poses is any(len(line) == 14 for lines in expected for line in lines)
    assert data.get("kpt_shape") == ([3, 3] if has_poses else None)
    assert data.get("flip_idx") == ([0, 2, 1] if has_poses else None)
    assert data.get("kpt_names") == ({0: list(NAMES)} if has_poses else None)


@pytest.mark.parametrize(
    ("kinds", "options", "says"),
    [
        (("mask", "pose"), (), "masks and keypoints"),
        (("mask pose",), ("--masks", "--keypoints"), "either masks or keypoints"),
        (("mask",), ("--keypoints",), "no object has keypoints"),
    ],
)
def test_refusals(
    run: Run, tmp_path: Path, kinds: Sequence[str], options: Sequence[str], says: str
) -> None:
    source = write(tmp_path / "s", "train", detection(*kinds))
    line = run("convert", source, tmp_path / "out", "--to=yolo", "--no-images", *options).refused()
    assert says in line and "--keypoints" in line and not (tmp_path / "out").exists()
    line = run("convert", source, tmp_path / "out", "--to=coco", "--keypoints").refused()
    assert "--keypoints only applies to --to yolo" in line


@pytest.mark.parametrize(
    ("gap", "left", "note"),
    [(-0.4, 9.6, False), (0.4, 10.4, False), (-3, 7, False), (-6, 10, True), (2, 10, True)],
)
def test_an_outline_ends_at_the_box(
    run: Run, tmp_path: Path, gap: float, left: float, note: bool
) -> None:
    """Ultralytics takes the outline's extent as the box (segments2boxes in utils/ops.py)."""
    one = detection("box", "mask")
    one.boxes[1, 0] += gap / W
    source = write(tmp_path / "s", "train", replace(one, boxes=one.boxes[1:], class_text=["cat"],
                   class_label=[1], masks=(one.masks or [])[1:]))  # fmt: skip
    says = run("convert", source, tmp_path / "out", "--to=yolo", "--no-images").succeeded()
    assert ("boxes far from the edges of their mask" in says) is note
    ((line,),) = labels(tmp_path / "out")
    assert min(line[1::2]) * W == pytest.approx(left, abs=1e-4)
    assert max(line[1::2]) * W == pytest.approx(20, abs=1e-4)


@pytest.mark.parametrize(
    ("names", "mirrored"),
    [
        (("LEFT", "right", "mid"), [1, 0, 2]),
        (("left", "right", "right"), None),
        (("left", "b", "c"), None),
        (("a", "b", "c"), None),
    ],
)
def test_keypoints_are_mirrored_by_their_names(
    run: Run, tmp_path: Path, names: tuple[str, ...], mirrored: list[int] | None
) -> None:
    """Ultralytics and RF-DETR do not flip images without ``flip_idx``."""
    one = detection("pose")
    assert one.keypoints is not None
    one = replace(one, keypoints=replace(one.keypoints, names=names))
    out = tmp_path / "out"
    run("convert", write(tmp_path / "s", "train", one), out, "--to=yolo", "--no-images").succeeded()
    assert yaml.safe_load((out / "data.yaml").read_text()).get("flip_idx") == mirrored


def test_outlines_of_boxes_are_within_the_image(run: Run, tmp_path: Path) -> None:
    one = detection("box")
    one.boxes[0, :2] = -0.25
    source = write(tmp_path / "s", "train", one)
    run("convert", source, tmp_path / "out", "--to=yolo", "--no-images", "--masks").succeeded()
    ((line,),) = labels(tmp_path / "out")
    np.testing.assert_allclose(line[1:], [0, 0, 0.1, 0, 0.1, 0.2, 0, 0.2], atol=1e-7)


@pytest.mark.parametrize(
    ("subsets", "expected", "notes"),
    [
        (("train", "val"), {"train": "train", "val": "val"}, ()),
        (("train", "valid", "test"), {"train": "train", "val": "valid", "test": "test"}, ()),
        (("train", "validation"), {"train": "train", "val": "validation"}, ()),
        (("val", "valid"), {"val": "val", "valid": "valid", "train": "val"}, ("train",)),
        (("train",), {"train": "train", "val": "train"}, ("val",)),
        (
            ("test", "others"),
            {"test": "test", "others": "others", "train": "others", "val": "others"},
            ("train", "val"),
        ),
    ],
)
def test_ultralytics_takes_data_yaml_as_it_is(
    run: Run, tmp_path: Path, subsets: Sequence[str], expected: Mapping[str, str], notes: Any
) -> None:
    """Lines 756 and 789: train and val are required, and without path, its folder is the root."""
    for number, subset in enumerate(subsets):
        png = encode_mask_png(np.full((H, W), number % 2, bool)) + bytes([number])
        write(tmp_path / "s", subset, replace(detection("box"), encoded=png))
    out = tmp_path / "out"
    says = run("convert", tmp_path / "s", out, "--to=yolo").succeeded()
    assert [key for key in ("train", "val") if f"{key} in data.yaml names the images" in says] == [
        *notes
    ]
    data = yaml.safe_load((out / "data.yaml").read_text())
    assert data == {key: f"images/{name}" for key, name in expected.items()} | {"names": {0: "cat"}}
    for key in expected:
        (image,) = (out / data[key]).iterdir()
        label = os.path.splitext(str(image).replace("/images/", "/labels/"))[0] + ".txt"
        assert image.suffix == ".png" and len(Path(label).read_text().split()) == 5
    says = run("convert", out, tmp_path / "back").succeeded()
    assert ("subsets with the same images as another one, read once" in says) is bool(notes)
    assert len(list(read_detections(str(tmp_path / "back")))) == len(subsets)
